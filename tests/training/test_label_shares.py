import pytest
import torch

from fedmed.data.cache import CaseCacheDataset
from fedmed.systems.agreement.labelled_sites import LabelConfidence, LabelShares
from fedmed.training.corrections.correction import RoundStart


def met(classes):
    confidence = LabelConfidence()
    confidence.count(torch.full((1, classes, 2), 1 / classes), torch.zeros(1, 1, 2))
    return confidence


def shares(dataset, confidence):
    item = LabelShares(dataset, confidence)
    item.begin(RoundStart({}))
    return item


def test_of_masks_voxels_count():
    masks = [{"label": torch.tensor([[0, 0, 1, 2]])}, {"label": torch.tensor([[0, 0, 0, 0, 0, 1]])}]
    found = shares(CaseCacheDataset(masks, []), met(3)).extras()["label_shares"]
    assert found.tolist() == pytest.approx([0.7, 0.2, 0.1])


def test_of_classes_images_count():
    images = [{"image": torch.zeros(1, 2, 2), "label": label} for label in (0, 2, 2, 2)]
    found = shares(CaseCacheDataset(images, []), met(4)).extras()["label_shares"]
    assert found.tolist() == pytest.approx([0.25, 0, 0.75, 0])


def test_they_are_counted_once_and_kept():
    dataset = CaseCacheDataset([{"label": torch.tensor([[0, 1]])}], [])
    first = shares(dataset, met(2))
    again = LabelShares(CaseCacheDataset([], []), met(2))
    again.load_state_dict(first.state_dict())
    again.begin(RoundStart({}))
    assert again.extras()["label_shares"].tolist() == [0.5, 0.5]


def test_before_a_prediction_nothing_is_sent():
    item = shares(CaseCacheDataset([{"label": torch.tensor([[0, 1]])}], []), LabelConfidence())
    assert item.extras() == {} and item.state_dict() == {}
