import logging

import pytest
import torch
from torch.nn import BCEWithLogitsLoss

from fedmed.errors import FedMedError
from fedmed.losses.cross_entropy import class_weights_from_counts, pos_weight_from_counts


def test_weighted_cross_entropy_worked_out_by_hand():
    """Markert 2022, Eq. 4.21-4.22."""
    logits = torch.tensor([[2.1972246, -1.3862944], [-0.4054651, 0.0]])
    y = torch.tensor([[1.0, 0], [0, 1]])
    weights = pos_weight_from_counts([25, 50], 100)
    assert weights.tolist() == [3, 1]
    assert BCEWithLogitsLoss(pos_weight=weights)(logits, y).item() == pytest.approx(0.4357994757, abs=1e-6)


def test_weights_from_counts():
    assert pos_weight_from_counts([10, 95, 100], 100).tolist() == pytest.approx([9, 0.0526316, 0], abs=1e-6)
    assert pos_weight_from_counts([50] * 3, 100).tolist() == [1] * 3, "as often as not: the plain loss"


def test_rare_labels_are_capped_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING, "fedmed.losses"):
        assert pos_weight_from_counts([0, 1, 50], 5000).tolist() == [1000, 1000, 99]
        assert pos_weight_from_counts([10, 0], 10, names=("hook", "bag")).tolist() == [0, 10]
    assert "labels [0, 1] are cut to 1000" in caplog.text
    assert "labels ['bag'] count one positive, for no sample shows them" in caplog.text
    assert "labels ['hook'] are 0, for all samples show them" in caplog.text
    assert pos_weight_from_counts([0], 10).item() == 10


def test_weights_of_classes_are_median_over_count():
    """Median frequency balancing: of 10, 40 and 20 frames the median is 20."""
    assert class_weights_from_counts([10, 40, 20]).tolist() == [2, 0.5, 1]
    assert class_weights_from_counts([10, 30]).tolist() == pytest.approx([2, 2 / 3])
    assert class_weights_from_counts([7, 7, 7]).tolist() == [1, 1, 1]


def test_classes_that_are_not_there_do_not_move_the_median(caplog):
    with caplog.at_level(logging.WARNING, "fedmed.losses"):
        assert class_weights_from_counts([10, 0, 40, 20], names=["a", "b", "c", "d"]).tolist() == [2, 0, 0.5, 1]
        assert class_weights_from_counts([1, 5000, 5000], cap=100).tolist() == [100, 1, 1]
    assert "weights of classes ['b'] are 0, for no sample is of them" in caplog.text
    assert "weights of classes [0] are cut to 100" in caplog.text


@pytest.mark.parametrize(
    ("weights", "counts"),
    [(pos_weight_from_counts, ([-1], 10)), (pos_weight_from_counts, ([11], 10)), (pos_weight_from_counts, ([], 0)),
     (class_weights_from_counts, ([0, 0],)), (class_weights_from_counts, ([-1, 3],))],
)  # fmt: skip
def test_bad_counts(weights, counts):
    with pytest.raises(FedMedError, match="count them again"):
        weights(*counts)
