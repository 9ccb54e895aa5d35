"""The server's rule: checks of the method documents, properties, bad input, memory."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import tensor

from fedmed.aggregation.robust import BLOCK
from fedmed.errors import FedMedError, JobError, RoundFailed, SharingError
from fedmed.messages.answers import Update

from .conftest import mean_of, update


def network_state(seed=0):
    """A small state with every kind of tensor."""
    torch.manual_seed(seed)
    layers = [torch.nn.Conv3d(1, 4, 3), torch.nn.BatchNorm3d(4), torch.nn.Conv3d(4, 2, 1).double()]
    state = torch.nn.Sequential(*layers).state_dict()
    return state | {"half": torch.randn(5).half(), "index": torch.arange(4), "mask": torch.tensor([True, False])}


def random_update(state, site, n_steps, seed):
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, value in state.items():
        if value.is_floating_point():
            tensors[name] = (torch.rand(value.shape, generator=generator) * 0.1).to(value.dtype)
        else:
            tensors[name] = torch.zeros_like(value)
    tensors["1.num_batches_tracked"] += n_steps
    return Update(site, 0, tensors, n_steps, 10)


def assert_same(left, right):
    assert list(left) == list(right)
    for name, value in left.items():
        assert value.dtype == right[name].dtype and torch.equal(value, right[name]), name


def test_fedavg_worked_out_by_hand():
    """θ_1=[1,2] (n=100), θ_2=[3,6] (n=300) → [2.5, 5]; the user weight carries n."""
    base = tensor([10.0, -4.0])
    updates = [update("a", 1, w=tensor([1.0, 2.0]) - base), update("b", 1, w=tensor([3.0, 6.0]) - base)]
    result = mean_of(user_weights={"a": 100, "b": 300}).aggregate({"w": base}, updates).tensors
    torch.testing.assert_close(result["w"], tensor([2.5, 5.0]))


@pytest.mark.parametrize(
    ("steps", "normalise", "expected"),
    [
        ((400, 400), False, [0.225, 0.05]),
        ((400, 400), True, [0.3, 0.0666667]),
        ((400, 100), False, [0.33, -0.10]),
        ((400, 100), True, [0.3666667, -0.1111111]),
    ],
)
def test_iterations_and_weights_worked_out_by_hand(steps, normalise, expected):
    """Yang et al. 2021, Eq. 2-3."""
    base = {"w": torch.zeros(2, dtype=torch.float64)}
    updates = [
        update("a", steps[0], w=tensor([0.4, -0.2], dtype=torch.float64)),
        update("b", steps[1], w=tensor([0.1, 0.6], dtype=torch.float64)),
    ]
    rule = mean_of(normalise=normalise, user_weights={"a": 1, "b": 0.5})
    result = rule.aggregate(base, updates).tensors["w"]
    torch.testing.assert_close(result, tensor(expected, dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("buffers", "variance"), [("average", 1.0), ("pooled", 1.75)])
def test_batch_norm_statistics_worked_out_by_hand(buffers, variance):
    """Coefficients (¼, ¾), means (0, 2), variances (1, 1)."""
    base = {"bn.running_mean": tensor([0.5]), "bn.running_var": tensor([3.0])}
    updates = [
        update("a", 1, bn__running_mean=tensor([-0.5]), bn__running_var=tensor([-2.0])),
        update("b", 3, bn__running_mean=tensor([1.5]), bn__running_var=tensor([-2.0])),
    ]
    result = mean_of(buffers=buffers).aggregate(base, updates).tensors
    assert (result["bn.running_mean"].item(), result["bn.running_var"].item()) == pytest.approx((1.5, variance))


@settings(max_examples=20, deadline=None)
@given(st.permutations("abcde"), st.sampled_from(["average", "pooled"]))
def test_order_of_replies_changes_no_bit(order, buffers):
    """Sums run in the order of the sites' names, whatever the order of arrival."""
    state = network_state()
    updates = {site: random_update(state, site, 3 + k, k) for k, site in enumerate("abcde")}
    rule = mean_of(user_weights={"c": 0.3}, buffers=buffers)
    assert_same(
        rule.aggregate(state, [updates[site] for site in order]).tensors,
        rule.aggregate(state, list(updates.values())).tensors,
    )


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 6),
    st.integers(1, 500),
    st.sampled_from([{}, {"buffers": "pooled"}, {"rule": "median"}, {"rule": "trimmed_mean"}]),
)
def test_identical_sites_give_any_one_of_them(count, steps, options):
    """Coefficients sum to 1, so the mean of equal updates is that update (McMahan et al. 2017, Algorithm 1)."""
    state = network_state()
    sites = range(count + 2 * ("rule" in options))
    updates = [random_update(state, f"site{k}", steps, seed=7) for k in sites]
    result = mean_of(**options).aggregate(state, updates).tensors
    for name, value in state.items():
        difference = updates[0].tensors[name]
        expected = value if value.dtype == torch.bool else value + difference
        torch.testing.assert_close(result[name], expected)


def test_a_site_of_weight_zero_is_as_if_absent():
    """Weight 0 of an unlabelled site gives supervised training alone (Yang et al. 2021, Eq. 3), counters included."""
    state = network_state()
    labelled, unlabelled = random_update(state, "labelled", 5, 1), random_update(state, "unlabelled", 50, 2)
    without = mean_of().aggregate(state, [labelled]).tensors
    assert_same(mean_of(user_weights={"unlabelled": 0}).aggregate(state, [labelled, unlabelled]).tensors, without)
    tiny = mean_of(user_weights={"unlabelled": 1e-9}).aggregate(state, [labelled, unlabelled]).tensors
    for name, value in without.items():
        if value.is_floating_point():
            torch.testing.assert_close(tiny[name], value)


def test_weight_zero_still_shrinks_the_literal_step():
    updates = [update("a", 1, w=tensor([1.0])), update("b", 3, w=tensor([9.0]))]
    rule = mean_of(normalise=False, user_weights={"b": 0})
    assert rule.aggregate({"w": tensor([0.0])}, updates).tensors["w"].item() == 0.25


def test_each_tensor_is_averaged_over_its_senders():
    state = {"shared": tensor([0.0]), "head": tensor([0.0]), "unsent": tensor([5.0])}
    updates = [update("a", 1, shared=tensor([1.0]), head=tensor([1.0])), update("b", 3, shared=tensor([5.0]))]
    result = mean_of().aggregate(state, updates).tensors
    assert (result["shared"].item(), result["head"].item()) == (4.0, 1.0)
    assert result["unsent"] is state["unsent"]
    literal = mean_of(normalise=False, user_weights={"a": 0.5}).aggregate(state, updates).tensors
    assert literal["head"].item() == 0.5  # Eq. 3 with the one sender's m: (1 / 1) · 0.5


def test_a_tensor_whose_senders_did_no_step_stays():
    state = {"shared": tensor([0.0]), "head": tensor([2.0])}
    updates = [update("a", 0, shared=tensor([0.0]), head=tensor([0.0])), update("b", 3, shared=tensor([6.0]))]
    result = mean_of().aggregate(state, updates).tensors
    assert result["head"] is state["head"] and result["shared"].item() == 6.0


@pytest.mark.parametrize(("options", "count"), [({"buffers": "pooled"}, 9), ({"rule": "median", "clip_norm": 0.1}, 8)])
def test_nothing_that_was_given_is_modified_and_whole_numbers_are_exact(options, count):
    state = network_state()
    updates = [random_update(state, site, 7 + k, k) for k, site in enumerate("abc")]
    copies = [{name: value.clone() for name, value in part.items()} for part in (state, *(u.tensors for u in updates))]
    result = mean_of(**options).aggregate(state, updates).tensors
    assert result["1.num_batches_tracked"].item() == count and result["1.num_batches_tracked"].dtype == torch.int64
    assert result["index"] is state["index"] and result["mask"] is state["mask"]
    for part, copy in zip((state, *(u.tensors for u in updates)), copies, strict=True):
        assert_same(part, copy)
    new = {value.data_ptr() for name, value in result.items() if value.is_floating_point()}
    assert not new & {value.data_ptr() for part in (state, *(u.tensors for u in updates)) for value in part.values()}


@pytest.mark.parametrize("options", [{}, {"buffers": "pooled"}, {"rule": "median"}])
def test_no_site_can_make_a_variance_negative(options):
    """By noise or on purpose; every output of the network would be NaN."""
    state = {"bn.running_mean": tensor([0.0]), "bn.running_var": tensor([1.0])}
    sent = [update(s, bn__running_mean=tensor([0.0]), bn__running_var=tensor([-100.0])) for s in "abc"]
    assert mean_of(**options).aggregate(state, sent).tensors["bn.running_var"].item() == 0


def test_an_extrapolated_variance_does_not_become_negative():
    """The printed Eq. 3 with a user weight above 1 overshoots: 1 + 2·(−0.9)."""
    updates = [update("a", 1, bn__running_var=tensor([-0.9]))]
    rule = mean_of(normalise=False, user_weights={"a": 2})
    assert rule.aggregate({"bn.running_var": tensor([1.0])}, updates).tensors["bn.running_var"].item() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"buffers": "fedbn"}, "'fedbn' is unknown; use one of average, pooled, local"),
        ({"buffers": "pooled", "normalise": False}, "sum to 1"),
        ({"user_weights": {"ct_east": -1}}, "site 'ct_east'"),
        ({"user_weights": {"ct_east": math.nan}}, "site 'ct_east'"),
    ],
)
def test_arguments_that_cannot_be_meant(arguments, message):
    with pytest.raises(JobError, match=message):
        mean_of(**arguments)


@pytest.mark.parametrize(
    ("updates", "error", "message"),
    [
        ([], RoundFailed, "no update"),
        ([update("a", w=tensor([1.0])), update("a", w=tensor([1.0]))], FedMedError, "two updates.*'a', 'a'"),
        ([update("a", 0, w=tensor([0.0]))], FedMedError, "no site has a weight above 0"),
        ([update("a", v=tensor([1.0]))], SharingError, "site 'a' sends tensor 'v'"),
        ([update("a", w=tensor([1.0, 2.0]))], SharingError, r"site 'a': tensor 'w' has shape \(2,\)"),
        ([update("a", index=tensor([1]))], SharingError, "site 'a' changed tensor 'index'"),
    ],
)
def test_updates_that_do_not_fit(updates, error, message):
    state = {"w": tensor([1.0]), "index": tensor([3])}
    with pytest.raises(error, match=message):
        mean_of().aggregate(state, updates)
    assert [value.item() for value in state.values()] == [1.0, 3]


@pytest.mark.parametrize("rule", ["mean", "median"])
def test_a_result_that_is_not_finite_fails_the_round(rule):
    state, updates = {"half": tensor([6e4]).half()}, [update(site, half=tensor([6e4]).half()) for site in "abc"]
    with pytest.raises(RoundFailed, match="tensor 'half' is not finite in torch.float16"):
        mean_of(rule=rule).aggregate(state, updates)
    assert state["half"].item() == 6e4


def test_pooling_needs_the_mean_of_the_same_sites():
    state = {"bn.running_mean": tensor([0.0]), "bn.running_var": tensor([1.0])}
    updates = [update("a", bn__running_var=tensor([0.0]))]
    with pytest.raises(SharingError, match="'bn.running_var' cannot be pooled without 'bn.running_mean'"):
        mean_of(buffers="pooled").aggregate(state, updates)


@pytest.mark.parametrize(
    ("options", "blocks"), [({}, 2**21), ({"rule": "median"}, 5 * BLOCK * 8), ({"rule": "trimmed_mean"}, 5 * BLOCK * 8)]
)
def test_memory_beyond_the_updates_is_the_result_and_a_few_blocks(options, blocks):
    """Counts every allocation made during the call, freed or not: stricter than a peak."""
    state = {f"layer{k}": torch.zeros(200_000) for k in range(10)}
    updates = [Update(site, 0, {name: torch.ones(200_000) for name in state}, 1, 1) for site in "abcd"]
    rule = mean_of(**options)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        rule.aggregate(state, updates)
    events = profiler.profiler.kineto_results.events()
    allocated = sum(max(event.nbytes(), 0) for event in events if event.name() == "[memory]")
    model = sum(value.numel() * 4 for value in state.values())
    assert model <= allocated < min(2 * model, 1.1 * (model + blocks + 2**21))
