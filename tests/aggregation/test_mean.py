"""The blockwise mean against an obvious one."""

import pytest
import torch

from fedmed.aggregation.tensor_means import BlockMean
from fedmed.seeds import derive_seed

from .conftest import on_threads


def random_tensors(count, shape, dtype):
    generator = torch.Generator().manual_seed(derive_seed(0, *shape, str(dtype)))
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for _ in range(count)]


def reference(base, differences, coefficients):
    moved = base.double()
    for difference, coefficient in zip(differences, coefficients, strict=True):
        moved = moved + coefficient * difference.double()
    return moved.to(base.dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (8,), (9,), (3, 5, 2), (64,)])
def test_equals_the_plain_float64_sum_bit_for_bit(shape, dtype):
    base, *differences = random_tensors(4, shape, dtype)
    coefficients = [0.5, 0.3, 0.2]
    result = BlockMean(block=8)(base, differences, coefficients)
    assert result.dtype == dtype and result.shape == base.shape
    torch.testing.assert_close(result, reference(base, differences, coefficients), rtol=0, atol=0)


def test_reads_tensors_of_any_memory_layout():
    base, first, second = random_tensors(3, (4, 6, 5), torch.float32)
    strided = [tensor.permute(2, 0, 1) for tensor in (base, first)]
    result = BlockMean(block=8)(strided[0], [strided[1], second.permute(2, 0, 1).contiguous()], [0.25, 0.75])
    torch.testing.assert_close(result.permute(1, 2, 0), reference(base, [first, second], [0.25, 0.75]), rtol=0, atol=0)


def test_number_of_threads_changes_no_bit():
    base, *differences = random_tensors(3, (300_001,), torch.float64)
    results = on_threads(lambda: BlockMean()(base, differences, [0.7, 0.3]))
    assert all(torch.equal(result, results[0]) for result in results)


def test_small_differences_are_not_lost():
    """1 + 16 × 2^-26 is representable in float32, but adding 2^-26 sixteen times in float32 gives 1."""
    result = BlockMean()(torch.ones(1), [torch.full((1,), 2.0**-26)] * 16, [1.0] * 16)
    assert result.item() == 1 + 2.0**-22


def test_inputs_stay_as_they_are_and_the_result_needs_no_gradient():
    base = torch.nn.Parameter(torch.ones(3))
    difference = torch.ones(3)
    result = BlockMean()(base, [difference], [0.5])
    assert base.tolist() == difference.tolist() == [1, 1, 1]
    assert not result.requires_grad and result.data_ptr() != base.data_ptr()
