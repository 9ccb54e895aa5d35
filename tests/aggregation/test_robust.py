"""Median and trimmed mean against numpy and scipy, what they promise, and what they refuse."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import trim_mean
from torch import tensor

from fedmed.aggregation.robust import BLOCK, RobustAggregator
from fedmed.errors import JobError
from fedmed.messages.answers import Update
from fedmed.seeds import derive_seed

from .conftest import mean_of, on_threads, update

RULES = [{"rule": "median"}, {"rule": "trimmed_mean"}, {"rule": "trimmed_mean", "trim": 0.4}]


def random_tensors(count, shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(derive_seed(0, count, *shape, str(dtype)))
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for _ in range(count)]


def moved(rule, *values, base=0.0):
    """Return the value of a scalar tensor after sites a, b, c, … have sent these differences."""
    updates = [update(site, w=tensor([value])) for site, value in zip("abcdefgh", values, strict=False)]
    return rule.aggregate({"w": tensor([base])}, updates).tensors["w"].item()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 5, 2), (BLOCK + 1,)])
@pytest.mark.parametrize("count", [3, 4, 5, 8])
def test_median_is_numpys(count, shape, dtype):
    base, *differences = random_tensors(count + 1, shape, dtype)
    result = RobustAggregator("median")("w", base, differences, [1.0] * count)
    stacked = np.stack([difference.double().numpy() for difference in differences])
    expected = (torch.from_numpy(np.asarray(np.median(stacked, axis=0))) + base.double()).to(dtype)
    assert result.dtype == dtype and result.shape == base.shape
    torch.testing.assert_close(result, expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("count", "trim", "cut"), [(5, 0.2, 1), (4, 0.2, 1), (3, 0.2, 1), (10, 0.3, 3), (7, 0, 0), (25, 0.28, 7)]
)
def test_trimmed_mean_is_scipys_with_the_number_rounded_up(count, trim, cut):
    """0.28 * 25 is 7.000000000000001."""
    base, *differences = random_tensors(count + 1, (6, 7), torch.float64)
    rule = RobustAggregator("trimmed_mean", trim)
    assert rule.dropped(count) == cut
    expected = base + torch.from_numpy(trim_mean(torch.stack(differences).numpy(), cut / count + 1e-9, axis=0))
    torch.testing.assert_close(rule("w", base, differences, [1.0] * count), expected)


def test_reads_tensors_of_any_memory_layout():
    base, *differences = (each.permute(2, 0, 1) for each in random_tensors(4, (4, 6, 5)))
    differences[1] = differences[1].contiguous()
    expected = base + torch.stack(differences).median(dim=0).values
    torch.testing.assert_close(RobustAggregator("median")("w", base, differences, [1.0] * 3), expected)


@settings(max_examples=20, deadline=None)
@given(st.permutations("abcde"), st.sampled_from(RULES), st.sampled_from([None, 1.0]))
def test_order_of_replies_changes_no_bit(order, options, clip_norm):
    state = dict(zip(("w", "bn.running_var"), random_tensors(2, (50,)), strict=True))
    state["bn.running_var"].abs_()
    updates = {
        site: Update(site, 0, dict(zip(state, random_tensors(2, (50,), torch.float32), strict=True)), k + 1, 1)
        for k, site in enumerate("abcde")
    }
    for k, each in enumerate(updates.values()):
        each.tensors["w"] = each.tensors["w"] * (k + 1)
    rule = mean_of(clip_norm=clip_norm, **options)
    first, second = (rule.aggregate(state, [updates[site] for site in sites]).tensors for sites in (order, "abcde"))
    assert all(torch.equal(first[name], second[name]) for name in state)


@pytest.mark.parametrize("options", [{"rule": "mean"}, *RULES])
def test_number_of_threads_changes_no_bit_with_clipping(options):
    base, *differences = random_tensors(6, (300_001,), torch.float32)
    updates = [update(site, w=each) for site, each in zip("abcde", differences, strict=True)]
    results = on_threads(lambda: mean_of(clip_norm=100.0, **options).aggregate({"w": base}, updates).tensors["w"])
    assert all(torch.equal(result, results[0]) for result in results)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(-1, 1, width=32), min_size=3, max_size=7),
    st.floats(-(2.0**60), 2.0**60, width=32),
    st.integers(0, 6),
    st.sampled_from(["median", "trimmed_mean"]),
)
def test_one_wrong_site_cannot_leave_the_range_of_the_others(honest, wrong, where, rule):
    honest = [0.0 + value for value in honest]
    sent = honest[:where] + [wrong] + honest[where:]
    result = moved(mean_of(rule=rule), *sent)
    assert min(honest) - 1e-6 <= result <= max(honest) + 1e-6


def test_steps_do_not_count_and_zero_leaves_a_site_out():
    values = {"a": 1.0, "b": 2.0, "c": 6.0, "d": 100.0}
    updates = [update(site, 10 ** (k + 1), w=tensor([v])) for k, (site, v) in enumerate(values.items())]
    rule = mean_of(rule="median", user_weights={"d": 0, "a": 1})
    assert rule.aggregate({"w": tensor([0.0])}, updates).tensors["w"].item() == 2.0
    assert rule.coefficients(updates) == {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3, "d": 0.0}
    idle = [*updates[:3], update("d", 0, w=tensor([0.0]))]
    assert mean_of(rule="median").aggregate({"w": tensor([0.0])}, idle).tensors["w"].item() == 2.0


def test_each_tensor_is_judged_among_its_senders():
    state = {"shared": tensor([0.0]), "head": tensor([0.0]), "unsent": tensor([5.0])}
    updates = [update(s, shared=tensor([v]), head=tensor([v])) for s, v in zip("abc", (1.0, 2.0, 9.0), strict=True)]
    updates += [update(s, shared=tensor([0.5])) for s in "de"]
    result = mean_of(rule="median").aggregate(state, updates).tensors
    assert (result["shared"].item(), result["head"].item()) == (1.0, 2.0)
    assert result["unsent"] is state["unsent"]


def test_a_counter_is_the_median_and_a_constant_stays():
    state = {"norm.num_batches_tracked": tensor(3), "index": tensor([7])}
    counts = dict(zip("abcd", (4, 4, 5, 10**15), strict=True))
    updates = [update(s, norm__num_batches_tracked=tensor(n), index=tensor([0])) for s, n in counts.items()]
    for options in RULES[:2]:
        result = mean_of(**options).aggregate(state, updates).tensors
        counter = result["norm.num_batches_tracked"]
        assert counter.item() == 7 and counter.dtype == torch.int64
        assert result["index"] is state["index"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "krum"}, "rule 'krum' is unknown; use mean, median, trimmed_mean"),
        ({"rule": "trimmed_mean", "trim": 0.5}, "'trim' is 0.5; .* below 0.5"),
        ({"rule": "trimmed_mean", "trim": -0.1}, "'trim' is -0.1"),
        ({"rule": "trimmed_mean", "trim": math.nan}, "'trim' is nan"),
        ({"rule": "trimmed_mean", "trim": True}, "'trim' is True"),
        ({"rule": "median", "trim": 0.2}, "'trim' is for rule 'trimmed_mean'"),
        ({"trim": 0.2}, "'trim' is for rule 'trimmed_mean'; the rule is 'mean'"),
        ({"rule": "median", "user_weights": {"ct_east": 0.5}}, "site 'ct_east' is 0.5; .* one vote"),
        ({"rule": "median", "normalise": False}, "'normalise: false'"),
        ({"rule": "median", "buffers": "pooled"}, "buffers 'pooled' needs the weights of a mean"),
        ({"clip_norm": 0}, "'clip_norm' is 0"),
        ({"clip_norm": math.inf}, "'clip_norm' is inf"),
        ({"clip_norm": "5"}, "'clip_norm' is '5'"),
        ({"clip_norm": True}, "'clip_norm' is True"),
    ],
)
def test_arguments_that_cannot_be_meant(options, message):
    with pytest.raises(JobError, match=message):
        mean_of(**options)


@pytest.mark.parametrize(
    ("options", "senders", "message"),
    [
        ({"rule": "median"}, 2, "tensor 'w' is sent by 2 sites; a median needs 3"),
        ({"rule": "median"}, 1, "tensor 'w' is sent by 1 site;"),
        ({"rule": "trimmed_mean"}, 2, "tensor 'w' is sent by 2 sites, and trim 0.2 drops 1 .*leaves none"),
        ({"rule": "trimmed_mean", "trim": 0.4}, 6, "tensor 'w' is sent by 6 sites.*drops 3"),
    ],
)
def test_too_few_senders_are_named(options, senders, message):
    with pytest.raises(JobError, match=message):
        moved(mean_of(**options), *[1.0] * senders)
