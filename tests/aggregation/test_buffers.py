"""Kinds of tensors, and the rules of those that are not averaged."""

import pytest
import torch

from fedmed.aggregation.sharing import changed, classify, is_batch_norm_buffer, maximum, pooled_variance


@pytest.mark.parametrize(
    ("name", "dtype", "kind"),
    [
        ("layer1.0.bn1.weight", torch.float32, "parameter"),
        ("layer1.0.bn1.running_mean", torch.float32, "running_mean"),
        ("running_var", torch.float16, "running_var"),
        ("bn0.num_batches_tracked", torch.int64, "counter"),
        ("head.my_running_mean", torch.float32, "parameter"),
        ("running_mean.weight", torch.float32, "parameter"),
        ("attention.relative_position_index", torch.int64, "constant"),
        ("attention.mask", torch.bool, "constant"),
    ],
)
def test_kind_follows_name_and_dtype(name, dtype, kind):
    assert classify(name, torch.zeros(2, dtype=dtype)) == kind
    assert is_batch_norm_buffer(name) == (kind in ("running_mean", "running_var", "counter"))


def test_every_batch_norm_buffer_of_torch_is_recognised():
    state = torch.nn.Sequential(torch.nn.BatchNorm3d(4)).state_dict()
    kinds = [classify(name, tensor) for name, tensor in state.items()]
    assert kinds == ["parameter", "parameter", "running_mean", "running_var", "counter"]


def test_counters_take_the_maximum_exactly():
    large = 2**53 + 1  # a float64 would round it
    result = maximum(torch.tensor(large), [torch.tensor(0), torch.tensor(2), torch.tensor(1)])
    assert result.item() == large + 2 and result.dtype == torch.int64


def test_pooled_variance_is_that_of_the_pooled_samples():
    generator = torch.Generator().manual_seed(1)
    samples = [torch.randn(n, 3, generator=generator, dtype=torch.float64) * n + n for n in (10, 30)]
    zero = torch.zeros(3, dtype=torch.float64)
    means, variances = zip(*[(s.mean(0), s.var(0, correction=0)) for s in samples], strict=True)
    pooled = pooled_variance(zero, zero, means, variances, [0.25, 0.75])
    torch.testing.assert_close(pooled, torch.cat(samples).var(0, correction=0))


def test_pooled_variance_survives_a_mean_far_from_zero():
    """The textbook form, E[x²] − E[x]², would cancel to nothing here."""
    mean, variance = torch.tensor([1e8], dtype=torch.float64), torch.tensor([1e-6], dtype=torch.float64)
    none = torch.zeros_like(mean)
    torch.testing.assert_close(pooled_variance(mean, variance, [none] * 2, [none] * 2, [0.5, 0.5]), variance)


def test_changed_sees_any_dtype():
    assert changed(torch.tensor([0.0, 1e-30])) and changed(torch.tensor([False, True]))
    assert not changed(torch.zeros(3, dtype=torch.int64)) and not changed(torch.zeros(2, dtype=torch.bool))
