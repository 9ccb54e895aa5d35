"""Prototypes of classes and the way to them, with numbers worked out by hand."""

import pytest
import torch

from fedmed.errors import FedMedError
from fedmed.systems.fedas.engine import PrototypeSums, alignment_loss, features_by_place


def means(*batches):
    sums = PrototypeSums()
    for features, labels in batches:
        sums.add(*features_by_place(torch.tensor(features, dtype=torch.float64), torch.tensor(labels)))
    return {label: mean.tolist() for label, mean in sums.means().items()}


def test_means_by_class_over_batches():
    first = [[1.0, 2], [3, 4], [10, 0]], [0, 0, 2]
    assert means(first, ([[5.0, 0]], [0])) == {0: [3, 2], 2: [10, 0]}, "class 1 does not occur and has no prototype"


def test_each_place_of_a_map_has_the_class_of_the_pixel_at_its_middle():
    features = torch.arange(8.0).view(1, 2, 2, 2)
    labels = torch.zeros(1, 6, 6, dtype=torch.long)
    labels[0, 1, 4], labels[0, 4, 1] = 1, 2  # the middles of 3 × 3 pixels
    for shown in (labels, labels[:, None], labels.to(torch.uint8)):
        rows, classes = features_by_place(features, shown)
        assert rows.tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]] and classes.tolist() == [0, 1, 2, 0]
    labels[0, 1, 1] = -1
    assert features_by_place(features, labels)[1].tolist() == [1, 2, 0], "a place without a class"


def test_maps_of_the_labels_own_size_and_volumes():
    flat, labels = torch.arange(120.0).view(2, 3, 4, 5), torch.arange(40).view(2, 4, 5) % 3
    rows, classes = features_by_place(flat, labels)
    assert torch.equal(rows[7], flat[0, :, 1, 2]) and torch.equal(classes, labels.flatten())
    rows, classes = features_by_place(torch.zeros(1, 3, 2, 2, 2), torch.ones(1, 1, 8, 8, 8, dtype=torch.long))
    assert rows.shape == (8, 3) and classes.tolist() == [1] * 8


def test_the_distance_to_prototypes():
    """Class 0: mean of (1, 1, 4, 0) is 1.5; class 1: of (0, 9) is 4.5; class 2 has no prototype."""
    rows = torch.tensor([[1.0, 0], [2, 1], [0, 3], [7, 7]], requires_grad=True)
    prototypes = {0: torch.tensor([0.0, 1]).double(), 1: torch.tensor([0.0, 0]).double(), 3: torch.ones(2).double()}
    loss = alignment_loss(rows, torch.tensor([0, 0, 1, 2]), prototypes)
    assert loss.item() == pytest.approx(1.5 + 4.5)
    loss.backward()
    assert rows.grad.tolist() == [[0.5, -0.5], [1, 0], [0, 3], [0, 0]]


def test_without_any_prototype_nothing_moves():
    rows = torch.ones(2, 3, requires_grad=True)
    loss = alignment_loss(rows, torch.tensor([0, 1]), {})
    loss.backward()
    assert loss.item() == 0 and not rows.grad.any()


@pytest.mark.parametrize(
    "labels", [torch.ones(2, 3), torch.ones(2, 3).long(), torch.ones(3).long(), torch.ones(2)], ids=str
)
def test_labels_that_are_not_one_class_an_image(labels):
    with pytest.raises(FedMedError, match=r"features \(2, 4\) and labels .*one class, a whole number, for each image"):
        features_by_place(torch.ones(2, 4), labels)
