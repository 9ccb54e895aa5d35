"""Clipping and noise, checked by statistics."""

import math

import pytest
import torch
from scipy import stats

from fedmed.privacy import protection as noise
from fedmed.privacy.protection import add_noise, gaussian, l2_norm, scale_down, seeded_source, system_source

N = 200_000


@pytest.mark.parametrize("source", [system_source(), seeded_source(7)], ids=["system", "seeded"])
def test_noise_is_standard_normal(source):
    sample = gaussian(N, source)
    assert sample.dtype == torch.float64
    assert abs(float(sample.mean())) < 5 / math.sqrt(N)
    assert abs(float(sample.var()) - 1) < 5 * math.sqrt(2 / N)
    assert abs(float(sample[1:] @ sample[:-1]) / N) < 5 / math.sqrt(N)
    assert stats.kstest(sample.numpy(), "norm").pvalue > 1e-6


@pytest.mark.parametrize(("byte", "most"), [(b"\0", -8.2095), (b"\xff", 8.2095)])
def test_noise_stays_finite_at_both_ends_of_the_bits(byte, most):
    assert float(gaussian(1, lambda n: byte * n)) == pytest.approx(most, rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_noise_has_the_asked_standard_deviation_and_keeps_dtype_and_shape(dtype, monkeypatch):
    monkeypatch.setattr(noise, "_BLOCK", 1000)  # a tensor larger than a block, and not a multiple of it
    start = torch.full((301, 100), 2.0, dtype=dtype)
    noised = add_noise(start, 0.25, system_source())
    assert noised.dtype == dtype and noised.shape == start.shape and bool((start == 2).all())
    assert float(noised.double().mean()) == pytest.approx(2, abs=5 * 0.25 / math.sqrt(30_100))
    assert float(noised.double().std()) == pytest.approx(0.25, rel=0.03)
    assert add_noise(torch.zeros((), dtype=dtype), 1.0, system_source()).shape == ()


def test_noise_repeats_with_a_seed_only():
    zeros = torch.zeros(50)
    assert torch.equal(add_noise(zeros, 1.0, seeded_source(3)), add_noise(zeros, 1.0, seeded_source(3)))
    assert not torch.equal(add_noise(zeros, 1.0, seeded_source(3)), add_noise(zeros, 1.0, seeded_source(4)))
    assert not torch.equal(add_noise(zeros, 1.0, system_source()), add_noise(zeros, 1.0, system_source()))


def test_norm_and_scaling_against_one_long_vector():
    tensors = {"w": torch.randn(300, 100), "b": torch.randn(7).half(), "s": torch.tensor(2.0), "n": torch.tensor(9)}
    floats = torch.cat([t.double().reshape(-1) for t in tensors.values() if t.is_floating_point()])
    norm = l2_norm(tensors)
    assert norm == pytest.approx(float(floats.norm()), rel=1e-12)
    scaled = scale_down(tensors, norm, 3.0)
    assert l2_norm(scaled) == pytest.approx(3, rel=1e-5) and scaled["n"] is tensors["n"]
    cosine = torch.cosine_similarity(scaled["w"].reshape(1, -1), tensors["w"].reshape(1, -1))
    assert float(cosine) == pytest.approx(1, abs=1e-6) and scaled["b"].dtype == torch.float16
    within = scale_down(tensors, norm, norm)
    assert all(within[name] is tensor for name, tensor in tensors.items())
