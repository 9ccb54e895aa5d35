import pytest
import torch

from fedmed.data.cache import CaseCacheDataset
from fedmed.systems.agreement.labelled_sites import BINS, LabelConfidence, LabelShares
from fedmed.training.corrections.correction import RoundStart


def test_quantiles_worked_out_by_hand():
    """Right are 0.9, 0.8, 0.7 and 0.6 of class 1, and 0.95 and 0.75 of class 0."""
    p = torch.tensor([0.9, 0.8, 0.7, 0.6, 0.99, 0.05, 0.25, 0.3]).view(1, 1, 8)
    y = torch.tensor([1, 1, 1, 1, 0, 0, 0, 1]).view(1, 1, 8)
    counter = LabelConfidence()
    counter.count(p, y)
    assert counter.quantiles(0.5).tolist() == pytest.approx([0.75, 0.7], abs=1.5 / BINS)
    assert counter.quantiles(0.9).tolist() == pytest.approx([0.95, 0.9], abs=1.5 / BINS)
    assert counter.quantiles(0.1).tolist() == pytest.approx([0.75, 0.6], abs=1.5 / BINS)


def test_batches_add_up_and_a_class_that_was_never_right_lets_all_count():
    first, second = torch.tensor([[0.8, 0.1, 0.1]]), torch.tensor([[0.6, 0.3, 0.1]])
    counter = LabelConfidence()
    counter.count(first, torch.tensor([[0]]))
    counter.count(second, torch.tensor([[1]]))  # wrong
    assert counter.quantiles(0.5).tolist() == pytest.approx([0.8, 0, 0], abs=1.5 / BINS)


def test_logits():
    logits = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    counter = LabelConfidence()
    counter.count(logits, torch.tensor([[0], [1]]))
    expected = [logits.softmax(1)[0, 0].item(), logits.softmax(1)[1, 1].item()]
    assert counter.quantiles(1.0).tolist() == pytest.approx(expected, abs=1.5 / BINS)


def test_nothing_counted():
    assert LabelConfidence().quantiles(0.5) is None


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
    result = shares(CaseCacheDataset(masks, []), met(3)).extras()["label_shares"]
    assert result.tolist() == pytest.approx([0.7, 0.2, 0.1])


def test_of_classes_images_count():
    images = [{"image": torch.zeros(1, 2, 2), "label": label} for label in (0, 2, 2, 2)]
    result = shares(CaseCacheDataset(images, []), met(4)).extras()["label_shares"]
    assert result.tolist() == pytest.approx([0.25, 0, 0.75, 0])


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
