"""Learning of frames without labels from the classes that the model sees in them."""

from functools import partial

import pytest
import torch
from torch.nn import functional as F

from fedmed.data.augment import ScaleShift
from fedmed.systems.fixmatch.engine import PseudoClassEngine
from fedmed.systems.fixmatch.loss import fixmatch_loss, uda_loss
from fedmed.training.video_frames import FrameBatches

from ..conftest import assert_close, bits
from .conftest import build, labelled_batches, outputs_of


@pytest.fixture
def frames():
    """Batches as a loader gives them, without labels."""
    return [{"image": batch["image"]} for batch in labelled_batches()]


def engine_of(network, batches, confidence, lr=1e-2, loss=fixmatch_loss, **changes):
    optimizer = torch.optim.Adam(network.parameters(), lr=lr, weight_decay=changes.pop("weight_decay", 0.0))
    options = {"augment": ScaleShift(seed=3), "prepare_batch": FrameBatches(), **changes}
    options |= {"class_loss": partial(loss, threshold=confidence), "confidence": confidence}
    return PseudoClassEngine("cpu", 1, batches, network, optimizer, **options)


def test_fixmatch_equals_plain_pytorch(frames):
    """Target in eval mode of the frame as it is, cross-entropy of the changed frame over the whole batch."""
    network, twin = build(), build()
    engine_of(network, frames, 0.3724, unlabelled_weight=0.5).run()
    optimizer, augment = torch.optim.Adam(twin.parameters(), lr=1e-2), ScaleShift(seed=3)
    counted = 0
    for batch in frames:
        images = batch["image"][:, 0].float() / 255
        twin.eval()
        with torch.no_grad():
            sure, classes = twin(images).softmax(dim=1).max(dim=1)
        twin.train()
        optimizer.zero_grad()
        losses = F.cross_entropy(twin(augment(images)), classes, reduction="none") * (sure >= 0.3724)
        (0.5 * losses.sum() / len(images)).backward()
        if (sure >= 0.3724).any():
            optimizer.step()
        counted += int((sure >= 0.3724).sum())
    assert 0 < counted < 18, "some frames count and some do not"
    assert_close(network, twin)


@pytest.mark.parametrize("loss", [fixmatch_loss, uda_loss])
def test_it_moves_where_something_counts_and_says_how_much(frames, loss):
    network = build()
    before = bits(network)
    result = outputs_of(engine_of(network, frames, 0.0, loss=loss))
    assert len(result) == 3 and all(output["sure_fraction"] == 1 and output["loss"] > 0 for output in result)
    assert all(1 / 3 <= output["commonest_fraction"] <= 1 for output in result)
    assert not torch.equal(network.features[0].weight, before["features.0.weight"])
    assert not torch.equal(network.classifier.weight, before["classifier.weight"]), "it trains the classifier too"


def test_nothing_counts(frames):
    """No step: Adam would make one of weight decay alone."""
    network = build()
    before = bits(network)
    result = outputs_of(engine_of(network, frames, 1.0, weight_decay=0.1))
    assert all(output["sure_fraction"] == 0 and output["loss"] == 0 for output in result)
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, before[name]), name


def test_with_labels_beside_it_a_step_is_always_made(frames):
    network = build()
    before = bits(network)
    engine_of(network, frames, 1.0, labeled_loader=labelled_batches(), supervised_loss=F.cross_entropy).run()
    assert not torch.equal(network.classifier.weight, before["classifier.weight"])


def test_one_class_everywhere_shows(frames):
    network = build()
    with torch.no_grad():
        network.classifier.weight.zero_()
        network.classifier.bias.copy_(torch.tensor([0.0, 5.0, 0.0]))
    result = outputs_of(engine_of(network, frames, 0.9, lr=0.0))
    assert all(output["commonest_fraction"] == 1 and output["sure_fraction"] == 1 for output in result)
