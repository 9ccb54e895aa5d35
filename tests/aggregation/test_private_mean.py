"""The mean of sites' private layers: Fang et al. 2025, unseen site."""

import itertools

import pytest
import torch

from fedmed.errors import SharingError
from fedmed.federation.personal_layers import mean_of_sites, site_shares

SAMPLES = {"A": 1800, "B": 2235, "C": 2023, "D": 998}  # of the paper's four sites


def test_shares_follow_the_training_samples():
    expected = {"A": 0.2551020, "B": 0.3167517, "C": 0.2867063, "D": 0.1414399}
    assert site_shares(SAMPLES) == pytest.approx(expected, abs=1e-7)
    assert site_shares(SAMPLES, "uniform") == dict.fromkeys("ABCD", 0.25)


def test_a_mean_by_hand():
    tensors = {"a": {"w": torch.tensor([1.0, 2.0])}, "b": {"w": torch.tensor([3.0, 4.0])}}
    assert mean_of_sites(tensors, site_shares({"a": 1, "b": 1}))["w"].tolist() == [2.0, 3.0]
    assert mean_of_sites(tensors, site_shares({"a": 1, "b": 3}))["w"].tolist() == [2.5, 3.5]


def test_sites_that_agree_give_what_they_have_bit_for_bit_in_new_memory():
    draw = torch.Generator().manual_seed(0)
    for dtype in (torch.float16, torch.float32, torch.float64):
        local = {"w": torch.randn(1000, generator=draw, dtype=torch.float64).to(dtype), "n": torch.tensor(7)}
        local["w"][0], local["w"][1] = -0.0, 1e-40
        mean = mean_of_sites({site: dict(local) for site in SAMPLES}, site_shares(SAMPLES))
        assert all(mean[name].dtype == local[name].dtype for name in local) and mean["n"] == 7
        assert mean["w"].numpy().tobytes() == local["w"].numpy().tobytes()
        assert mean["w"].data_ptr() != local["w"].data_ptr() and mean["n"].data_ptr() != local["n"].data_ptr()


def test_which_site_has_what_changes_no_bit():
    draw = torch.Generator().manual_seed(1)
    have = [(number, torch.randn(500, generator=draw, dtype=torch.float64)) for number in SAMPLES.values()]
    means = []
    for turned in itertools.permutations(have):
        named = dict(zip(SAMPLES, turned, strict=True))
        shares = site_shares({site: number for site, (number, _) in named.items()})
        means.append(mean_of_sites({site: {"w": tensor} for site, (_, tensor) in named.items()}, shares)["w"])
    assert all(torch.equal(means[0], other) for other in means)
    stack = torch.stack([tensor for _, tensor in have])
    assert (means[0] <= stack.amax(0)).all() and (means[0] >= stack.amin(0)).all()


def test_counters_tables_and_what_is_not_finite():
    def pair(name, *values):
        given = {site: {name: value} for site, value in zip("ab", values, strict=True)}
        return mean_of_sites(given, {"a": 0.5, "b": 0.5})

    assert pair("norm.num_batches_tracked", torch.tensor(3), torch.tensor(9))["norm.num_batches_tracked"] == 9
    with pytest.raises(SharingError, match="'index' is a table of whole numbers that differs"):
        pair("index", torch.tensor([1]), torch.tensor([2]))
    with pytest.raises(SharingError, match="mean of tensor 'w'"):
        pair("w", torch.tensor([-1.7e308], dtype=torch.float64), torch.tensor([1.7e308], dtype=torch.float64))
