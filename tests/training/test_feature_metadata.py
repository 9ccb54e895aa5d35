import logging

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedmed.errors import FedMedError
from fedmed.systems.fedmoco.metadata import FeatureMetadata, SyntheticNegatives, box_cox, inverse_box_cox

Z = torch.tensor([[0.6, 0.8], [0.8, 0.6], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)


class Pixels(nn.Module):
    """The pixels themselves are the features."""

    def forward(self, x):
        return x.flatten(1)


def metadata(z, **options):
    return FeatureMetadata(Pixels(), [{"image": part[:, None, None]} for part in z.split(3)], **options)


def summary(z):
    return metadata(z, min_images=2)()


def draws(others, count=5, seed=0):
    return SyntheticNegatives(others, count, 0.5, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "others",
    [
        *([{}], [3], ["mu"], [{"mu": torch.ones(2)}], [{"mu": [1.0], "sigma": torch.ones(1)}]),
        *([{"mu": torch.tensor(1.0), "sigma": torch.ones(1)}], [{"mu": torch.ones(1), "sigma": torch.ones(1).long()}]),
    ],
)
def test_statistics_that_are_none_are_an_error_in_words(others):
    with pytest.raises(FedMedError, match="statistics of another site hold no vector '(mu|sigma)'"):
        draws(others)


def test_box_cox_worked_out_by_hand():
    """Dong and Voiculescu 2021, Eq. 3; below -1/λ the inverse is clamped to 0."""
    z = torch.tensor([0, 0.04, 0.25, 0.64, 1.0], dtype=torch.float64)
    assert box_cox(z, 0.5).tolist() == pytest.approx([-2, -1.6, -1, -0.4, 0], abs=1e-12)
    assert inverse_box_cox(box_cox(z, 0.5), 0.5).tolist() == pytest.approx(z.tolist(), abs=1e-12)
    assert inverse_box_cox(torch.tensor([-3.0, 0.5]), 0.5).tolist() == [0, 1.5625]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.sampled_from([0.5, 1.0, 2.0]))
def test_the_inverse_brings_back(values, lam):
    z = torch.tensor(values, dtype=torch.float64)
    back = inverse_box_cox(box_cox(z, lam), lam)
    # At λ = 2 the root of a rounding error remains near 0.
    assert torch.allclose(back, z, rtol=0, atol=1e-12 if lam <= 1 else 1e-7)


def test_mean_and_covariance_worked_out_by_hand():
    """Dong and Voiculescu 2021, Eq. 4; with denominator n the inverse gives back the mean of the features."""
    result = summary(Z)
    assert result["mu"].tolist() == pytest.approx([-0.66548807] * 2, abs=1e-7)
    assert result["sigma"].tolist() == pytest.approx([0.82543721, -0.52704193, 0.82543721], abs=1e-7)
    assert result["n"] == 4 and result["sigma"].dtype == torch.float32
    biased = result["sigma"].double() * 3 / 4  # denominator n
    assert biased.tolist() == pytest.approx([0.61907791, -0.39528145, 0.61907791], abs=1e-7)
    mean, variance = result["mu"].double(), biased[[0, 2]]
    assert ((mean / 2 + 1) ** 2 + variance / 4).tolist() == pytest.approx([0.6, 0.6], abs=1e-7)


@pytest.mark.parametrize(("features", "floats"), [(2, 5), (128, 8384)])
def test_size_on_the_wire(features, floats):
    result = summary(torch.rand(6, features))
    assert sum(result[name].numel() for name in ("mu", "sigma")) == floats
    assert sum(result[name].nbytes for name in ("mu", "sigma")) == 4 * floats  # d = 128: 33 536 bytes


def test_too_few_images_send_nothing(caplog):
    with caplog.at_level(logging.WARNING, "fedmed"):
        assert metadata(torch.rand(7, 4))() == {}
    assert "7 images, but a covariance of 4 features needs 8" in caplog.text
    assert metadata(torch.rand(8, 4))()["n"] == 8


def test_looks_at_no_more_images_than_asked():
    assert metadata(Z, min_images=2, max_images=2)()["n"] == 2


def test_metadata_stops_when_asked():
    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        metadata(Z)(before_batch=stop)


def test_draws_are_unit_vectors_without_negatives_site_by_site():
    others = [summary(torch.rand(20, 3)), summary(torch.rand(20, 3) * torch.tensor([1.0, 0, 0]))]
    result = draws(others).draw()
    assert result.shape == (10, 3) and result.dtype == torch.float32
    assert torch.allclose(result.norm(dim=1), torch.ones(10)) and result.min() >= 0
    # The second site's last two features are dead, and its covariance singular.
    assert torch.allclose(result[5:], torch.tensor([1.0, 0, 0]).expand(5, 3), atol=1e-6)


def test_every_draw_is_fresh_and_repeats_with_the_seed():
    others = [summary(torch.rand(20, 3))]
    first = draws(others)
    result = [first.draw(), first.draw()]
    assert not torch.equal(*result)
    again = draws(others)
    assert torch.equal(result[0], again.draw()) and torch.equal(result[1], again.draw())
    assert not torch.equal(result[0], draws(others, seed=1).draw())


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**31))
def test_mean_of_draws_before_normalisation(seed):
    """Invariant 10: without clamping ``E z̃ = (μ/2 + 1)² + diag(Σ)/4``."""
    mean = torch.tensor([-0.5, -0.8], dtype=torch.float64)
    sigma = torch.tensor([0.02, 0.01, 0.03], dtype=torch.float64)
    source = draws([{"mu": mean, "sigma": sigma}], count=40_000, seed=seed)
    drawn = source._gaussians()[0]
    assert torch.allclose(torch.cov(drawn.T), torch.tensor([[0.02, 0.01], [0.01, 0.03]]).double(), atol=2e-3)
    expected = (mean / 2 + 1) ** 2 + sigma[[0, 2]] / 4
    assert torch.allclose(inverse_box_cox(drawn).mean(dim=0), expected, atol=3e-3)
    source.draw()
    assert source.clamped_fraction == 0


def test_a_poor_fit_is_seen_in_the_clamped_fraction():
    source = draws([{"mu": torch.full((2,), -2.0), "sigma": torch.tensor([1.0, 0, 1.0])}], count=4000)
    result = source.draw()
    assert source.clamped_fraction == pytest.approx(0.5, abs=0.03)
    assert source.zero_rows == 0 and torch.allclose(result.norm(dim=1), torch.ones(4000))  # zero rows were redrawn


def test_rows_that_stay_zero_stay_finite():
    source = draws([{"mu": torch.full((2,), -9.0), "sigma": torch.zeros(3)}])
    assert torch.equal(source.draw(), torch.zeros(5, 2)) and source.zero_rows == 5


def test_covariances_with_noise_are_drawn_from_as_far_as_they_are_ones():
    other = {"mu": torch.full((2,), -0.5), "sigma": torch.tensor([-0.1, 0.0, 0.01])}
    assert torch.isfinite(draws([other]).draw()).all()


def test_errors():
    with pytest.raises(FedMedError, match="ReLU"):
        summary(torch.tensor([[0.5, -0.1], [0.2, 0.3]]))
    with pytest.raises(FedMedError, match="finite"):
        summary(torch.tensor([[0.5, float("nan")], [0.2, 0.3]]))
    with pytest.raises(FedMedError, match="λ is 0; features contain zeros, so use a positive number"):
        box_cox(torch.zeros(1), 0)
    with pytest.raises(FedMedError, match="λ is -1"):
        inverse_box_cox(torch.zeros(1), -1)
    with pytest.raises(FedMedError, match="λ is 0"):
        metadata(Z, box_cox=0)
    with pytest.raises(FedMedError, match="at least 2 images"):
        metadata(Z, min_images=1)
    good = summary(Z)
    with pytest.raises(FedMedError, match="both must be 1 or more"):
        draws([good], count=0)
    with pytest.raises(FedMedError, match=r"\(2,\) and \(2,\); 2 features need \(2,\) and \(3,\)"):
        draws([good | {"sigma": torch.zeros(2)}])
    with pytest.raises(FedMedError, match="need"):
        draws([good, summary(torch.rand(5, 3))])
    with pytest.raises(FedMedError, match="NaN"):
        draws([good | {"mu": torch.tensor([0.0, float("nan")])}])
