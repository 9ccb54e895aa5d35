"""The gradient of a squared distance: block by block it is bit for bit that of whole tensors."""

import pytest
import torch

from fedmed.training.corrections.correction import BLOCK, add_pull


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (BLOCK - 1,), (BLOCK,), (2, BLOCK + 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_it_equals_the_sum_of_whole_tensors(shape, dtype):
    gradient, weights, received = (torch.randn(shape).to(dtype) for _ in range(3))
    expected = gradient.clone().add_(weights - received, alpha=0.01)
    add_pull(gradient, weights, received, 0.01)
    assert torch.equal(gradient, expected)


def test_a_tensor_in_another_memory_order_is_taken_too():
    weights = torch.randn(4, 3, 5, 5).contiguous(memory_format=torch.channels_last)
    gradient, received = torch.randn(4, 3, 5, 5), torch.randn(4, 3, 5, 5)
    expected = gradient + 0.5 * (weights - received)
    add_pull(gradient, weights, received, 0.5)
    torch.testing.assert_close(gradient, expected)


def test_where_nothing_has_moved_no_bit_changes():
    weights, gradient = torch.randn(2 * BLOCK), torch.randn(2 * BLOCK)
    before = gradient.clone()
    add_pull(gradient, weights, weights.clone(), 0.01)
    assert torch.equal(gradient, before)
