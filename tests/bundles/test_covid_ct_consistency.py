"""The options of training without masks, as a job sets them (Yang et al. 2021, Table 2, blocks 1 and 2)."""

import pytest
import torch

from fedmed.bundles.bundle import Bundle
from fedmed.data.augment import Augment, Compose, Cutout, FixMatch, GaussianNoise, ScaleShift
from fedmed.durable_files import load_tensors
from fedmed.errors import OverrideError
from fedmed.federation.client import Client
from fedmed.jobs.job_folder import read_job
from fedmed.messages.task import Task
from fedmed.recovery.model_store import ModelStore
from fedmed.settings.site import load_site
from fedmed.systems.covid_fssl.loss import KINDS, SCOPES

BUNDLE = "covid_ct_segmentation"


@pytest.fixture
def trainer(site_facts):
    """Return a function: overrides of a job -> the trainer of an unlabelled site."""

    def make(**overrides):
        job = Bundle(BUNDLE, ["demo", "unlabelled", "consistency"], overrides)
        facts = {key: value for key, value in site_facts("ct_east").items() if key not in overrides}
        parser = job.parser()
        parser.update({**facts, "train#handlers": []})
        return parser.get_parsed_content("train#trainer")

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_every_loss_and_scope_is_reachable(trainer, kind):
    for scope in SCOPES:
        loss = trainer(consistency_loss=kind, consistency_scope=scope, confidence=0.8).consistency_loss
        assert (loss.kind, loss.scope, loss.threshold) == (kind, scope, 0.8)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("identity", Augment),
        ("scale_shift", ScaleShift),
        ("gauss_0.01", GaussianNoise),
        ("cutout_1", Cutout),
        ("cutout_2", Cutout),
        ("fix_0.25", FixMatch),
        (["scale_shift", "cutout_1"], Compose),
    ],
)
def test_every_augmentation_is_reachable(trainer, name, expected):
    assert type(trainer(augmentation=name).augment) is expected


def test_settings_of_augmentations(trainer):
    assert trainer(shift_level=0.3).augment.level == 0.3
    assert trainer(augmentation="cutout_2", cutout_size=[4, 4, 1]).augment.size == (4, 4, 1)


def test_a_job_cannot_set_the_seed_of_augmentations():
    with pytest.raises(OverrideError, match="may not set"):
        Bundle(BUNDLE, ["demo", "unlabelled", "consistency"], {"augment_seed": 1})


def test_training_with_weak_and_strong_views(trainer):
    made = trainer(augmentation=["fix_0.1", "cutout_2"], cutout_size=[4, 4, 2])
    made.run()
    assert made.state.output["loss"].isfinite()


def test_options_beyond_the_paper_are_off(trainer):
    made = trainer()
    assert made.teacher is None and made.ramp_up_steps == 0


def test_the_teacher_is_kept_between_rounds_and_stays_at_the_site(tiny_job, tmp_path):
    small = read_job(tiny_job("o")).overrides("unsupervised")
    overrides = {**small, "teacher": "ema", "ema_decay": 0.5, "ramp_up_steps": 3, "confidence": 0.5}
    overrides |= {"unsupervised_learning_rate": 1.0e-3}
    job = tiny_job(overrides={"supervised": small, "unsupervised": overrides, "evaluate": small})
    client = Client(read_job(job), load_site("ct_east"), tmp_path / "site")
    received = ModelStore(read_job(job), job).initial
    first = client.train(Task("train", 0, 2, received, steps=2))
    kept = [load_tensors(tmp_path / "site/state/round_0.pt")["engine"]]
    client.train(Task("train", 1, 2, received, steps=2, private_round=0))
    kept.append(load_tensors(tmp_path / "site/state/round_1.pt")["engine"])

    assert set(first.tensors) == set(received)  # nothing more than the model's own names leaves
    assert [state["steps_done"] for state in kept] == [2, 4]
    assert [int(state["teacher"]["n_averaged"]) for state in kept] == [3, 6]  # the received models count
    name = "conv_final.2.conv.weight"
    student, teacher = received[name] + first.tensors[name], kept[0]["teacher"][f"module.{name}"]
    assert first.tensors[name].any() and not torch.equal(student, teacher)
