import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from torch import nn

from fedmed.errors import DataError, FedMedError
from fedmed.systems.fedmoco.metadata import dissimilarity, features, similarity_of

F0 = torch.tensor([[1, 0, 0], [0, 1, 0], [0.6, 0.8, 0], [0, 0.6, 0.8]], dtype=torch.float64)
F1 = torch.tensor([[0.8, 0.6, 0], [0, 1, 0], [0.6, 0.8, 0], [0, 0, 1]], dtype=torch.float64)


def test_without_ties_it_is_the_papers_formula():
    """Dong and Voiculescu 2021, Eq. 6: 1 - 6 · 16 / (6 · 35)."""
    a, b = torch.tensor([0.1, 0.4, 0.2, 0.9, 0.7, 0.5]), torch.tensor([0.2, 0.3, 0.6, 0.8, 0.9, 0.1])
    assert similarity_of(a, b) == pytest.approx(0.5428571429, abs=1e-9)


def test_from_features_to_similarity_with_ties():
    first, second = dissimilarity(F0), dissimilarity(F1)
    expected = [1.5, 0.7226499, 0.30662475, 1.97072534, 0.7226499, 1.5]
    assert first.tolist() == pytest.approx(expected, abs=1e-7)
    expected = [0.7226499, 0.11538462, 0.30662475, 1.97072534, 1.5, 1.97072534]
    assert second.tolist() == pytest.approx(expected, abs=1e-7)
    assert similarity_of(first, second) == pytest.approx(0.7314247567, abs=1e-9)
    assert similarity_of(first, dissimilarity(F1.float())) == pytest.approx(0.7314247567, abs=1e-9)


def test_all_pairs_of_a_hundred_images():
    assert dissimilarity(torch.rand(100, 8)).shape == (4950,)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.integers(3, 12))
def test_equals_scipy(seed, count):
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.rand(count, 5, generator=generator) for _ in range(2)]
    rows[1][: count // 2] = rows[1][0]  # ties
    first, second = (dissimilarity(r) for r in rows)
    expected = spearmanr(first, second).statistic
    assert similarity_of(first, second) == pytest.approx(1.0 if expected != expected else expected, abs=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31))
def test_invariances(seed):
    generator = torch.Generator().manual_seed(seed)
    before, after = torch.rand(2, 10, 6, generator=generator, dtype=torch.float64)
    r = similarity_of(dissimilarity(before), dissimilarity(after))
    scale, shift = torch.rand(2, 10, 1, generator=generator, dtype=torch.float64) + 0.1
    assert similarity_of(dissimilarity(before * scale + shift), dissimilarity(after)) == pytest.approx(r, abs=1e-12)
    assert similarity_of(dissimilarity(before).exp(), dissimilarity(after) ** 3) == pytest.approx(r, abs=1e-12)
    order = torch.randperm(10, generator=generator)
    assert similarity_of(dissimilarity(before[order]), dissimilarity(after[order])) == pytest.approx(r, abs=1e-12)


def test_an_untouched_model_has_similarity_exactly_one():
    values = dissimilarity(torch.rand(30, 16))
    assert similarity_of(values, values.clone()) == 1.0


def test_constant_rows_correlate_with_nothing():
    rows = torch.tensor([[0.1, 0.1, 0.1], [0.0, 0.0, 0.0], [1.0, 2.0, 4.0]])
    assert dissimilarity(rows).tolist() == [1, 1, 1]


def test_no_change_is_measurable_where_all_is_equal():
    assert similarity_of(torch.ones(6), torch.rand(6)) == 1.0
    assert similarity_of(torch.ones(0), torch.ones(0)) == 1.0


def test_an_opposite_view_is_minus_one():
    values = torch.rand(20, dtype=torch.float64)
    assert similarity_of(values, -values) == pytest.approx(-1, abs=1e-12)


def test_features_leave_the_network_as_it_was():
    network = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 3))
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    batches = [{"image": torch.rand(4, 1, 4, 4)} for _ in range(3)]
    result = features(network, batches)
    assert result.shape == (12, 3) and result.dtype == torch.float64 and not result.requires_grad
    assert torch.equal(result, features(network, batches))
    assert all(module.training for module in network)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_features_stop_at_the_limit_and_when_asked():
    batches = [{"image": torch.rand(4, 1, 2, 2)} for _ in range(3)]
    network, requested = nn.Flatten(), []
    assert len(features(network, batches, limit=6, before_batch=lambda: requested.append(1))) == 6
    assert len(requested) == 2

    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        features(network, batches, before_batch=stop)


def test_errors():
    with pytest.raises(DataError, match="no image"):
        features(nn.Flatten(), [])
    with pytest.raises(FedMedError, match=r"\(2, 1, 4, 4\) for 2 images"):
        features(nn.Identity(), [{"image": torch.rand(2, 1, 4, 4)}])
    with pytest.raises(FedMedError, match="has diverged"):
        dissimilarity(torch.full((3, 2), float("nan")))
    with pytest.raises(FedMedError, match="the same images"):
        similarity_of(torch.rand(3), torch.rand(6))
