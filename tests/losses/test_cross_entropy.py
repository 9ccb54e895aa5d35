import logging

import pytest
import torch
from torch.nn import BCEWithLogitsLoss

from fedmed.errors import FedMedError
from fedmed.losses.consistency_loss import ConsistencyLoss
from fedmed.losses.cross_entropy import pos_weight_from_counts


def test_binary_cross_entropy_worked_out_by_hand():
    y = torch.tensor([1.0, 0, 1, 0], dtype=torch.float64).view(1, 1, 4)
    q = torch.tensor([0.8, 0.2, 0.6, 0.4], dtype=torch.float64).view(1, 1, 4)
    assert ConsistencyLoss("ce", "whole")(y, q).item() == pytest.approx(0.3669845876, abs=1e-9)


def test_weighted_cross_entropy_worked_out_by_hand():
    """Markert 2022, Eq. 4.21-4.22."""
    logits = torch.tensor([[2.1972246, -1.3862944], [-0.4054651, 0.0]])
    y = torch.tensor([[1.0, 0], [0, 1]])
    weights = pos_weight_from_counts([25, 50], 100)
    assert weights.tolist() == [3, 1]
    assert BCEWithLogitsLoss(pos_weight=weights)(logits, y).item() == pytest.approx(0.4357994757, abs=1e-6)


def test_weights_from_counts():
    assert pos_weight_from_counts([10, 95, 100], 100).tolist() == pytest.approx([9, 0.0526316, 0], abs=1e-6)


def test_rare_labels_are_capped_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING, "fedmed.losses"):
        assert pos_weight_from_counts([0, 1, 50], 5000).tolist() == [1000, 1000, 99]
        assert pos_weight_from_counts([10, 0], 10, names=("hook", "bag")).tolist() == [0, 10]
    assert "labels [0, 1] are cut to 1000" in caplog.text
    assert "labels ['bag'] count one positive, for no sample shows them" in caplog.text
    assert "labels ['hook'] are 0, for all samples show them" in caplog.text
    assert pos_weight_from_counts([0], 10).item() == 10


@pytest.mark.parametrize(("positives", "samples"), [([-1], 10), ([11], 10), ([], 0)])
def test_bad_counts(positives, samples):
    with pytest.raises(FedMedError, match="do not fit"):
        pos_weight_from_counts(positives, samples)
