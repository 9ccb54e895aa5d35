"""A run whose result is the mean of its last rounds, in its report and as a bundle."""

import json
from types import SimpleNamespace

import pytest
import torch

from fedmed.durable_files import load_tensors
from fedmed.export.bundle import export_bundle
from fedmed.federation.client import Client
from fedmed.federation.loop import run_job
from fedmed.federation.server import Server
from fedmed.reports.run import read_run
from fedmed.reports.run_report import report_of

TWO = {"ct_north": "supervised", "ct_east": "unsupervised"}


@pytest.fixture(scope="module")
def averaged(tmp_path_factory, write_tiny_job, two_levels):
    """Workspace of a run of three rounds, what each left, and the sums of the models that sites tested."""
    folder, left, tested = tmp_path_factory.mktemp("averaged"), {}, {}

    def evaluate(self, task):
        tested[task.model, self.site.site] = {name: tensor.clone() for name, tensor in task.tensors.items()}
        return {"dice_mean": 0.5, "dice_std": 0.1, "n_cases": 3}

    finish = Server.finish_round

    def finish_round(self):
        finish(self)
        left[self.round.number] = self.tensors

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "_score", lambda self, task, model: {"val_dice": 0.1 * (task.round + 1)})
        patch.setattr(Client, "evaluate", evaluate)
        patch.setattr(Server, "finish_round", finish_round)
        settings = {"select": "mean", "mean_rounds": 2, "evaluate_last": True, "overlays": two_levels}
        job = write_tiny_job(folder, "averaged", sites=TWO, rounds=3, steps=1, **settings)
        run_job(job, folder / "workspace")
    return SimpleNamespace(folder=folder / "workspace", left=left, tested=tested)


def test_every_site_tests_the_mean_of_the_last_rounds(averaged):
    one, two = averaged.left[1], averaged.left[2]
    mean = {name: ((one[name].double() + two[name].double()) / 2).float() for name in one}
    for site in TWO:
        tested = averaged.tested["selected", site]
        assert all(torch.equal(tested[name], mean[name]) for name in mean)
        assert all(torch.equal(averaged.tested["last", site][name], two[name]) for name in two)
    assert any(not torch.equal(mean[name], two[name]) for name in mean)


def test_the_report_says_of_which_rounds_it_is(averaged):
    run = read_run(averaged.folder)
    assert dict(report_of(run).figures(run))["selected"] == "2 and 3, mean"
    assert "the mean of rounds 2 and 3" in report_of(run).note(run)


@pytest.mark.parametrize("which", ["selected", "last"])
@pytest.mark.usefixtures("no_torchscript")
def test_a_bundle_has_the_model_that_is_asked_for_and_says_which(averaged, tmp_path, which):
    made = export_bundle(averaged.folder, tmp_path / "mean_segmentation", model=which)
    weights = load_tensors(made.out / "models" / "model.pt")
    expected = averaged.tested[which, "ct_north"]
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    fed = json.loads((made.out / "configs" / "metadata.json").read_text())["federation"]
    card = (made.out / "docs" / "README.md").read_text()
    if which == "selected":
        assert fed["mean_of"] == [2, 3] and fed["validation_dice"] == pytest.approx(0.3)
        assert "This is the mean of several models, those after rounds 2 and 3." in card
    else:
        assert "mean_of" not in fed and fed["validation_dice"] is None
        assert "This is the model after round 3, the last one." in card
