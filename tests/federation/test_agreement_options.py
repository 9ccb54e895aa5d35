"""Options of agreement in whole federations, and what is left of a run that was cut off with them."""

from types import SimpleNamespace

import pytest
import torch

from fedmed.federation.loop import run_job
from fedmed.systems.agreement.method import Agreement
from tests.federation.run_folder import kept_of, model_of, rounds_of
from tests.jobs.demo_sites import note_messages

SITES = {"ct_north": "supervised", "ct_south": "supervised", "ct_east": "unsupervised"}
PLAN = {"rounds": 3, "steps": 1, "warm_start": {"rounds": 1}, "evaluate": False}
PRIVATE = ("conv_final.", "up_samples.", "up_layers.")  # of group block_6


@pytest.fixture(scope="module", autouse=True)
def allowing(write_allowing_sites, tmp_path_factory):
    """Sites that let all values leave but confidences, so that a gate is the fixed one."""
    names = [value.name for value in Agreement(align=True).values()]
    folder = write_allowing_sites(tmp_path_factory.mktemp("sites") / "allowing_sites", *names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDMED_SITE_CONFIGS", str(folder))
        yield


@pytest.fixture(scope="module")
def job(write_tiny_job, lively, tmp_path_factory):
    """Return a function: arguments of the method, teacher and values of a study -> a job."""
    folder = tmp_path_factory.mktemp("jobs")

    def job(name, args=None, teacher="current", **changes):
        method = {"path": "fedmed.systems.agreement.method.Agreement", "args": args or {}}
        overrides = {**lively, "unsupervised": {**lively["unsupervised"], "teacher": teacher}}
        study = {"sites": SITES, "method": method, "overrides": overrides, **PLAN, **changes}
        return write_tiny_job(folder, name, **study)

    return job


@pytest.fixture(scope="module")
def whole(job, tmp_path_factory):
    """A run with shares of classes, a mean teacher and private layers at once: job, workspace and what was sent."""
    folder, seen = tmp_path_factory.mktemp("whole"), []
    made = job("whole", args={"align": True}, teacher="ema", sharing="block_6")
    with pytest.MonkeyPatch.context() as patch:
        note_messages(patch, seen, "train")
        run_job(made, folder)
    return SimpleNamespace(job=made, workspace=folder, seen=seen)


def test_the_site_without_labels_gets_the_labelled_sites_shares_of_classes(whole, job, seen, tmp_path):
    """With the task after the round in which they were told; they change what it learns."""
    run_job(job("plain", teacher="ema", sharing="block_6", rounds=2), tmp_path)
    told, plain = whole.seen[:5], seen
    reported = {(site, task.round): answer.extras.get("label_shares") for site, task, answer in told}
    for site in ("ct_north", "ct_south"):
        assert (
            reported[site, 0].sum().item() == pytest.approx(1) and reported[site, 0][0] > 0.5 > reported[site, 0][1] > 0
        )
    sent = {(site, task.round): task.extras.get("class_shares") for site, task, _ in told}
    assert torch.allclose(sent["ct_east", 1], (reported["ct_north", 0] + reported["ct_south", 0]) / 2)
    assert sent["ct_north", 1] is None and reported["ct_east", 1] is None
    learnt = [{site: answer.tensors for site, task, answer in run if task.round == 1} for run in (told, plain)]
    name = "convInit.conv.weight"
    assert torch.equal(*(updates["ct_north"][name] for updates in learnt)), "the two runs are otherwise the same"
    assert not torch.equal(*(updates["ct_east"][name] for updates in learnt))


def test_where_nothing_is_sure_enough_nothing_is_learned_and_it_is_said(job, tmp_path):
    """The CT bundle learns probabilities everywhere, but not with a gate; here no voxel reaches it."""
    run_job(job("gated", args={"gate": True, "fixed_gate": 1.0}, rounds=2), tmp_path)
    *_, last = rounds_of(tmp_path)
    assert last["sites"]["ct_east"]["train_loss"] == 0 and last["strength"] == 0
    assert "the models agree nowhere in its images" in str(last["warnings"])
    assert "what the models agree on counts from a fixed probability of 1 on" in str(last["warnings"])


def test_the_labelled_mean_has_no_private_layer(whole):
    means = [task.extras["labelled_mean"] for *_, task, _ in whole.seen if "labelled_mean" in task.extras]
    assert means and all(mean and not any(name.startswith(PRIVATE) for name in mean) for mean in means)
    last = {site: answer for site, task, answer in whole.seen if task.round == 2}
    assert last.keys() == SITES.keys() and last["ct_east"].extras["agreed_share"] > 0
    assert not any(name.startswith(PRIVATE) for answer in last.values() for name in answer.tensors)


def test_a_run_that_was_cut_off_ends_where_an_uninterrupted_one_does(whole, killed_before, same, tmp_path):
    """It is cut off between the two rounds in which the site without labels trains."""
    with killed_before(2):
        run_job(whole.job, tmp_path)
    run_job(whole.job, tmp_path, resume=True)
    assert same(model_of(whole.workspace), model_of(tmp_path))
    assert all(same(kept_of(whole.workspace, site, 2), kept_of(tmp_path, site, 2)) for site in SITES)
    noted = ("trust", "strength", "score", "score_with", "score_without", "coefficients", "extras")
    one, other = (
        [[line.get(key) for key in noted] for line in rounds_of(place)] for place in (whole.workspace, tmp_path)
    )
    assert one == other and None not in one[-1], "labelled sites have judged the mean"
    # The teacher starts as a copy of the model, and moves as each round begins and after each step.
    assert kept_of(tmp_path, "ct_east", 2)["engine"]["teacher"]["n_averaged"] == 4
    assert "class_shares" in {name for *_, task, _ in whole.seen for name in task.extras}
