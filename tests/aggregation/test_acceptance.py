"""Updates that the server refuses, and what it says."""

import numpy
import pytest
import torch

from fedmed.aggregation.acceptance import all_finite, check_update, update_norm
from fedmed.errors import UpdateRefused
from fedmed.messages.answers import Update

EXPECTED = {"conv.weight": torch.ones(2, 3), "bn.num_batches_tracked": torch.tensor(5), "index": torch.arange(3)}


def good(**changes):
    tensors = {name: torch.zeros_like(value) for name, value in EXPECTED.items()}
    tensors["conv.weight"] = torch.full((2, 3), 0.5)
    return Update(**({"site": "ct_east", "round": 4, "tensors": tensors, "n_steps": 20, "n_samples": 6} | changes))


def with_tensors(**changes):
    update = good()
    update.tensors |= {name.replace("__", "."): value for name, value in changes.items()}
    return update


def without(name):
    update = good()
    del update.tensors[name]
    return update


def weight(position, value, dtype=torch.float32):
    tensor = torch.zeros(2, 3, dtype=dtype)
    tensor.view(-1)[position] = value
    return tensor


def test_a_good_update_is_accepted_and_one_without_a_step_and_a_change():
    check_update(good(), EXPECTED, round=4, seen={"ct_north"}, max_norm=10)
    check_update(good(n_steps=numpy.int64(20)), EXPECTED, round=4, seen=())
    zeros = {name: torch.zeros_like(value) for name, value in EXPECTED.items()}
    check_update(good(n_steps=0, tensors=zeros), EXPECTED, round=4, seen=())


@pytest.mark.parametrize(
    ("update", "tensor", "message"),
    [
        (good(round=3), None, "computed for round 3, this is round 4"),
        (good(round=5), None, "computed for round 5"),
        (good(site="ct_north"), None, "already sent an update for round 4"),
        (good(n_steps=-1), None, "n_steps is -1"),
        (good(n_steps=2.5), None, "n_steps is 2.5"),
        (good(n_steps=2**60), None, "n_steps is 1152921504606846976; .* 0 to 1,000"),
        (good(n_samples=-3), None, "n_samples is -3"),
        (good(n_samples=True), None, "n_samples is True"),
        (good(n_steps=0), "conv.weight", "changed although the site did no step"),
        (with_tensors(head__weight=torch.ones(1)), "head.weight", "not one that the site may send"),
        (without("bn.num_batches_tracked"), "bn.num_batches_tracked", "missing"),
        (with_tensors(conv__weight=torch.ones(3, 2)), "conv.weight", r"shape is \(3, 2\), the model's is \(2, 3\)"),
        (with_tensors(conv__weight=torch.ones(2, 3).double()), "conv.weight", "dtype is torch.float64"),
        (with_tensors(bn__num_batches_tracked=torch.tensor(1.0)), "bn.num_batches_tracked", "dtype is torch.float32"),
        (with_tensors(conv__weight=numpy.ones((2, 3))), "conv.weight", "is a ndarray, not a tensor"),
        (with_tensors(conv__weight=weight(4, float("nan"))), "conv.weight", "1 of 6 values are NaN or infinite"),
        (with_tensors(conv__weight=weight(0, float("-inf"))), "conv.weight", "1 of 6 values"),
        (with_tensors(index=torch.tensor([0, 1, 0])), "index", "constant in this model"),
        (with_tensors(conv__weight=weight(0, 11.0)), None, "norm of its differences is 11, above the limit 10"),
        (with_tensors(conv__weight=weight(0, 3e38)), None, "above the limit 10"),
    ],
)
def test_a_bad_update_is_refused_by_site_and_tensor(update, tensor, message):
    with pytest.raises(UpdateRefused, match=message) as caught:
        check_update(update, EXPECTED, round=4, seen={"ct_north"}, max_norm=10)
    assert caught.value.site == update.site and f"'{update.site}'" in str(caught.value)
    assert caught.value.tensor == tensor and (tensor is None or f"'{tensor}'" in str(caught.value))
    assert EXPECTED["conv.weight"].tolist() == [[1] * 3] * 2 and EXPECTED["index"].tolist() == [0, 1, 2], "as before"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_finite_values_whose_sum_overflows_are_finite(dtype):
    assert all_finite(torch.full((9,), torch.finfo(dtype).max, dtype=dtype))


def test_non_finite_values_never_cancel_and_integers_are_finite():
    for values in ([torch.inf, -torch.inf], [torch.nan, 1], [-torch.inf, 1]):
        assert not all_finite(torch.tensor(values))
    assert all_finite(torch.tensor([2**62])) and all_finite(torch.tensor([True]))


def test_norm_is_over_all_floating_tensors():
    tensors = {"a": torch.tensor([3.0]), "b": torch.tensor([[4.0]]).half(), "count": torch.tensor(100)}
    assert update_norm(tensors) == 5.0
    assert update_norm({"half": torch.full((100,), 6e4).half()}) == pytest.approx(6e5, rel=1e-3)
    assert update_norm({}) == 0.0
