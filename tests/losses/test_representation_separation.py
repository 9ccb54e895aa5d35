"""Moving average and penalties of the server's training, against numbers worked out by hand."""

import pytest
import torch

from fedmed.errors import FedMedError
from fedmed.systems.fedst.separation import descriptor_penalty, instrument_penalty, moving_average

F_SY, DOMAIN = [1.0, 2.0, 3.0, 4.0], [0.5, 0.5, 0.0, 1.0]


def batch(values):
    """(1, 1, 2, 2), with a gradient."""
    return torch.tensor(values, dtype=torch.float64).reshape(1, 1, 2, 2).requires_grad_()


def map_of(values):
    return torch.tensor(values, dtype=torch.float64).reshape(1, 2, 2).requires_grad_()


def test_the_average_moves_halfway():
    average = moving_average(None, torch.tensor(1.0), 0.5)
    for new, wanted in ((3.0, 2.0), (5.0, 3.5)):
        average = moving_average(average, torch.tensor(new), 0.5)
        assert average.item() == wanted


def test_the_average_of_what_stays_is_what_stays():
    feature = torch.rand(2, 3, 3, generator=torch.Generator().manual_seed(0))
    average = torch.zeros_like(feature)
    for _ in range(40):
        average = moving_average(average, feature, 0.5)
    assert torch.allclose(average, feature)
    first = moving_average(None, feature, 0.5)
    assert torch.equal(first, feature) and first.data_ptr() != feature.data_ptr()


def test_the_descriptors_penalty_and_its_gradient():
    domain, average = map_of(DOMAIN), map_of([0.5, 1.0, 3.0, 2.0])
    penalty = descriptor_penalty(batch(F_SY), domain, average)
    penalty.backward()
    assert penalty.item() == pytest.approx(0.3125) and 0.3 * penalty.item() == pytest.approx(0.09375)
    assert domain.grad.flatten().tolist() == pytest.approx([0, -0.25, 0, -0.5]) and average.grad is None


def test_the_instruments_penalty_and_its_gradient():
    features, synthetic, domain = batch([1.0, 1.0, 2.0, 3.0]), batch(F_SY), map_of(DOMAIN)
    penalty = instrument_penalty(features, synthetic, domain)
    penalty.backward()
    assert penalty.item() == pytest.approx(0.375) and 0.3 * penalty.item() == pytest.approx(0.1125)
    assert features.grad.flatten().tolist() == pytest.approx([0.25, -0.25, -0.5, 0])
    assert synthetic.grad is None and domain.grad is None


def test_penalties_are_means_over_the_batch_and_one_descriptor_may_stand_for_all_places():
    draw = torch.Generator().manual_seed(1)
    features, synthetic = torch.rand(2, 5, 3, 4, 6, generator=draw)
    domain, average = torch.rand(2, 3, 1, 1, generator=draw)
    parts = [descriptor_penalty(one[None], domain, average) for one in features]
    assert torch.allclose(descriptor_penalty(features, domain, average), torch.stack(parts).mean())
    whole = [each.expand(3, 4, 6) for each in (domain, average)]
    assert torch.allclose(descriptor_penalty(features, *whole), descriptor_penalty(features, domain, average))
    pooled = instrument_penalty(features, synthetic, domain)
    assert torch.allclose(pooled, instrument_penalty(features, synthetic, whole[0]))


def test_what_does_not_fit_is_refused():
    features, domain = torch.zeros(2, 3, 4, 4), torch.zeros(3, 2, 2)
    with pytest.raises(FedMedError, match=r"domain descriptor has shape \(3, 2, 2\), features .* have \(3, 4, 4\)"):
        descriptor_penalty(features, domain, torch.zeros(3, 4, 4))
    with pytest.raises(FedMedError, match=r"average feature has shape \(2, 1, 1\)"):
        descriptor_penalty(features, torch.zeros(3, 1, 1), torch.zeros(2, 1, 1))
    with pytest.raises(FedMedError, match="both networks must be the same"):
        instrument_penalty(features, torch.zeros(2, 3, 2, 2), torch.zeros(3, 1, 1))
    with pytest.raises(FedMedError, match="mu is 1.5"):
        moving_average(None, features, 1.5)
    with pytest.raises(FedMedError, match=r"earlier one has shape \(3, 2, 2\)"):
        moving_average(domain, torch.zeros(3, 4, 4), 0.5)
