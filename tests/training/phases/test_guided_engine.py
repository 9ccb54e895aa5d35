import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedmed.errors import FedMedError
from fedmed.systems.fedcy.engine import GuidedEngine
from fedmed.systems.fedcy.loss import nt_xent
from fedmed.training.trainer import SupervisedEngine
from fedmed.training.video_frames import FrameBatches

from ..conftest import assert_close
from .conftest import build, labelled_batches, outputs_of


def engine(network, batches, kind=GuidedEngine, rate=0.01, **said):
    optimizer = said.pop("by", torch.optim.Adam)(network.parameters(), lr=rate)
    settings = {"prepare_batch": FrameBatches(), "optimizer": optimizer, **said}
    return kind("cpu", 1, batches, network, **settings)


def test_it_is_the_plain_loop():
    """CE + λ_c L_con of one forward pass: BatchNorm sees each frame once."""
    network, twin = build(), build()
    result = outputs_of(engine(network, labelled_batches(), contrast_weight=10.0, by=torch.optim.SGD))
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.01)
    for batch, output in zip(labelled_batches(), result, strict=True):
        optimizer.zero_grad()
        features = twin.features(batch["image"][:, 0].float() / 255)
        contrast = nt_xent(features, batch["labels"][:, 0], 0.1)
        loss = F.cross_entropy(twin.classifier(features), batch["labels"][:, 0]) + 10.0 * contrast
        loss.backward()
        optimizer.step()
        assert float(output["loss"]) == pytest.approx(float(loss.detach()), rel=1e-5)
        assert float(output["label_contrast"]) == pytest.approx(float(contrast.detach()), rel=1e-4)
        assert set(output) == {"loss", "label_contrast", "feature_spread"} and not output["loss"].requires_grad
    assert_close(network, twin, atol=1e-5)
    assert int(network.features[1].num_batches_tracked) == 3


def test_without_contrast_it_is_supervised_training():
    network, twin = build(), build()
    engine(network, labelled_batches(), contrast_weight=0.0).run()
    engine(twin, labelled_batches(), SupervisedEngine, loss_function=nn.CrossEntropyLoss()).run()
    assert_close(network, twin)


def test_one_phase_alone_is_learnt_without_contrast():
    batches = labelled_batches()
    for batch in batches:
        batch["labels"] = torch.ones_like(batch["labels"])
    result = outputs_of(engine(build(), batches))
    assert all(float(output["label_contrast"]) == 0 for output in result)
    assert float(result[-1]["loss"]) < float(result[0]["loss"])


def test_it_counts_frames_and_learns():
    network = build()
    trainer = engine(network, labelled_batches(batches=40), contrast_weight=1.0)
    before = copy.deepcopy(network.state_dict())
    result = outputs_of(trainer)
    assert trainer.samples == 40 * 6
    trainer.run()
    assert trainer.samples == 240, "of the last run alone"
    assert float(result[-1]["loss"]) < float(result[0]["loss"])
    assert not torch.equal(before["classifier.weight"], network.state_dict()["classifier.weight"])


def test_gradients_are_clipped(monkeypatch):
    norms = []
    plain = nn.utils.clip_grad_norm_
    monkeypatch.setattr(nn.utils, "clip_grad_norm_", lambda p, n: norms.append(n) or plain(p, n))
    engine(build(), labelled_batches(), max_grad_norm=0.5).run()
    assert norms == [0.5] * 3


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"contrast_weight": -1.0}, "contrast_weight is -1"),
        ({"contrast_temperature": 0.0}, "contrast_temperature 0"),
        ({"max_grad_norm": -1.0}, "max_grad_norm is -1"),
    ],
)
def test_what_cannot_be_meant(said, message):
    with pytest.raises(FedMedError, match=message):
        engine(build(), labelled_batches(), **said)
