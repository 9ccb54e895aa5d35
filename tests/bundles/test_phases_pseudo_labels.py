"""The overlays of the bundle for phases with which sites learn from pseudo-labels of frames."""

import pytest
import torch

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import parsed
from fedmed.bundles.contract import Use, faults
from fedmed.systems.fixmatch.engine import PseudoClassEngine
from fedmed.systems.fixmatch.loss import AnnealedLoss

NAME = "surgical_phase_classification"
WEAK, STRONG = torch.tensor([[2.0, 1, 0]]), torch.tensor([[1.0, 1, 0]])


@pytest.mark.parametrize("loss", ["fixmatch", "uda"])
def test_they_define_what_a_federation_needs(loss):
    assert faults(Bundle(NAME, ["demo", "pseudo_labels", loss]), Use("unsupervised")) == []
    assert faults(Bundle(NAME, ["demo", "annealed"]), Use("supervised")) == []


def test_published_values():
    values = {loss: Bundle(NAME, ["pseudo_labels", loss]).parser() for loss in ("fixmatch", "uda")}
    assert (values["fixmatch"]["confidence"], values["uda"]["confidence"], values["uda"]["sharpening"]) == (
        0.95,
        0.8,
        0.4,
    )
    for parser in values.values():
        assert (parser["unlabelled_weight"], parser["operations"], parser["magnitude"]) == (1.0, 2, 10)
        assert parser["batch_size"] == 64


@pytest.mark.parametrize(("loss", "expected"), [("fixmatch", 0.8619948041), ("uda", 0.5636725467)])
def test_a_hospital_without_labels(build_phases, loss, expected):
    """Losses worked out by hand for one frame; every frame about once."""
    parser = build_phases("pseudo_labels", loss, confidence=0.25, unlabelled_weight=0.5, operations=1, magnitude=5)
    trainer = parsed(parser, "train#trainer")
    assert type(trainer) is PseudoClassEngine and trainer.unlabelled_weight == 0.5
    assert (trainer.augment.operations, trainer.augment.magnitude) == (1, 5)
    assert trainer.class_loss(WEAK, STRONG).item() == pytest.approx(expected, abs=1e-6)
    batch = next(iter(parsed(parser, "train#dataloader")))
    assert batch["image"].shape == (16, 1, 3, 24, 32) and "labels" not in batch
    trainer.run()
    frames = len(parsed(parser, "train#data"))
    assert trainer.state.iteration == -(-frames // 16) and torch.isfinite(trainer.state.output["loss"])


def test_a_hospital_with_labels_that_leaves_out_what_is_known(build_phases):
    parser = build_phases("annealed", site="lap_harbor", annealing="log", steps_before=3)
    trainer = parsed(parser, "train#trainer")
    loss = trainer.loss_function
    assert type(loss) is AnnealedLoss and (loss.classes, loss.schedule, loss.done) == (6, "log", 3)
    trainer.run()
    assert loss.done == 3 + trainer.state.iteration and loss.total == trainer.state.iteration
