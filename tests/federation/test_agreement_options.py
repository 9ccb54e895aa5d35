"""Options of agreement in whole federations, and what is left of a run that was cut off with them."""

from functools import partial

import pytest
import torch

from fedmed.federation.loop import run_job
from fedmed.systems.agreement.method import Agreement
from tests.federation.run_folder import kept_of, model_of, rounds_of

SITES = {"ct_north": "supervised", "ct_south": "supervised", "ct_east": "unsupervised"}
PLAN = {"rounds": 3, "steps": 1, "warm_start": {"rounds": 1}, "evaluate": False}
PRIVATE = ("conv_final.", "up_samples.", "up_layers.")  # of group block_6
OPTIONS = {"align": {"args": {"align": True}}, "teacher": {"teacher": "ema"}, "private layers": {"sharing": "block_6"}}


@pytest.fixture
def run(tiny_job, lively, allow_extras, tmp_path):
    """Return a function: workspace and values of a study -> the workspace of a federation that trained."""
    allow_extras(*[value.name for value in Agreement(align=True).values()])  # no confidence: a gate is the fixed one

    def run(name, args=None, teacher="current", resume=False, **changes):
        method = {"path": "fedmed.systems.agreement.method.Agreement", "args": args or {}}
        overrides = {**lively, "unsupervised": {**lively["unsupervised"], "teacher": teacher}}
        study = {"sites": SITES, "method": method, "overrides": overrides, **PLAN, **changes}
        run_job(tmp_path / "jobs" / name if resume else tiny_job(name, **study), tmp_path / name, resume=resume)
        return tmp_path / name

    return run


def test_the_site_without_labels_gets_the_labelled_sites_shares_of_classes(run, seen):
    """With the task after the round in which they were told; they change what it learns."""
    aligned = run("aligned", args={"align": True})
    reported = {(site, task.round): answer.extras.get("label_shares") for site, task, answer in seen}
    for site in ("ct_north", "ct_south"):
        assert (
            reported[site, 0].sum().item() == pytest.approx(1) and reported[site, 0][0] > 0.5 > reported[site, 0][1] > 0
        )
    sent = {(site, task.round): task.extras.get("class_shares") for site, task, _ in seen}
    assert torch.allclose(sent["ct_east", 1], (reported["ct_north", 0] + reported["ct_south", 0]) / 2)
    assert sent["ct_north", 1] is None and reported["ct_east", 1] is None
    plain = run("plain")
    assert not torch.equal(model_of(aligned)["conv_final.2.conv.weight"], model_of(plain)["conv_final.2.conv.weight"])


def test_where_nothing_is_sure_enough_nothing_is_learned_and_it_is_said(run):
    """The CT bundle learns probabilities everywhere, but not with a gate; here no voxel reaches it."""
    *_, last = rounds_of(run("ws", args={"gate": True, "fixed_gate": 1.0}))
    assert last["sites"]["ct_east"]["train_loss"] == 0 and last["strength"] == 0
    assert "the models agree nowhere in its images" in str(last["warnings"])
    assert "what the models agree on counts from a fixed probability of 1 on" in str(last["warnings"])


def test_the_labelled_mean_has_no_private_layer(run, unscored, seen):
    run("ws", sharing="block_6")
    means = [task.extras["labelled_mean"] for *_, task, _ in seen if "labelled_mean" in task.extras]
    assert means and all(mean and not any(name.startswith(PRIVATE) for name in mean) for mean in means)
    last = {site: answer for site, task, answer in seen if task.round == 2}
    assert last.keys() == SITES.keys() and last["ct_east"].extras["agreed_share"] > 0
    assert not any(name.startswith(PRIVATE) for answer in last.values() for name in answer.tensors)


@pytest.mark.parametrize("option", OPTIONS)
def test_a_run_that_was_cut_off_ends_where_an_uninterrupted_one_does(option, run, killed_before, same, request):
    """It is cut off between the two rounds in which the site without labels trains."""
    if option != "align":  # shares of classes are told once a model was scored; the others need no score
        request.getfixturevalue("unscored")
    train = partial(run, **OPTIONS[option])
    whole = train("whole")
    with killed_before(2):
        train("cut")
    cut = train("cut", resume=True)
    assert same(model_of(whole), model_of(cut))
    assert all(same(kept_of(whole, site, 2), kept_of(cut, site, 2)) for site in SITES)
    noted = ("trust", "strength", "score", "score_with", "score_without", "coefficients", "extras")
    one, other = ([[line.get(key) for key in noted] for line in rounds_of(workspace)] for workspace in (whole, cut))
    assert one == other and (option != "align" or None not in one[-1]), "labelled sites have judged the mean"
    if option == "teacher":  # it starts as a copy of the model, and moves as each round begins and after each step
        assert kept_of(cut, "ct_east", 2)["engine"]["teacher"]["n_averaged"] == 4
