"""FedCy through real client, engines and server: who sends what and what counts; FedMatch too: runs that go on."""

from types import SimpleNamespace

import pytest
import torch

from fedmed.errors import JobError
from fedmed.federation.loop import run_job
from fedmed.jobs.control_study import control_job
from fedmed.jobs.job_folder import read_job, write_job
from tests.federation.run_folder import kept_of, model_of, result_of, rounds_of, same

HARBOR = {"lap_harbor": "supervised"}
LAST = {"evaluate": False, "select": "last"}


@pytest.fixture(scope="module")
def whole(write_tiny_phases_job, tmp_path_factory):
    """A run of two rounds whose sites are scored: its last model, its workspace, what each was sent and answered."""
    folder, answers = tmp_path_factory.mktemp("whole"), []

    def answer(client, task):
        made = client.answer(task)
        if task.name == "train":
            answers.append((task, made))
        return made

    run_job(write_tiny_phases_job(folder, rounds=2, epochs=1, steps=None), folder / "ws", answer=answer)
    return SimpleNamespace(last=model_of(folder / "ws"), workspace=folder / "ws", answers=answers)


def test_two_rounds(whole):
    """Payload of each site, its weight, and whose the classifier is."""
    last, answers = whole.last, whole.answers
    features = {name for name in last if name.startswith("features.")}
    classifier = last.keys() - features
    assert classifier == {"classifier.weight", "classifier.bias"}
    for task, update in answers:
        assert task.tensors.keys() == last.keys(), "every site receives all"
        assert update.tensors.keys() == (last.keys() if update.site == "lap_harbor" else features)
        assert update.n_samples == update.n_steps * 16, "16 frames, or 2 clips of 8"
    for line in rounds_of(whole.workspace):
        frames = {site: local["n_samples"] for site, local in line["sites"].items()}
        shares = {site: n / sum(frames.values()) for site, n in frames.items()}
        assert line["coefficients"] == pytest.approx(shares) and len(shares) == 3
    sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in last.items()}
    up = 3 * sum(sizes[name] for name in features) + sum(sizes[name] for name in classifier)
    assert [line["bytes_up"] for line in rounds_of(whole.workspace)] == [up, up]
    ((task, update),) = [(t, u) for t, u in answers if u.site == "lap_harbor" and u.round == 1]
    for name in classifier:
        expected = task.tensors[name] + update.tensors[name]  # a mean of one may be rounded another way
        torch.testing.assert_close(last[name], expected, rtol=2e-7, atol=0)
        assert update.tensors[name].abs().max() > 0
    moved = [u.tensors["features.conv1.weight"].abs().max() for _, u in answers]
    assert all(value > 0 for value in moved)


def test_scalars_reach_the_record_and_a_site_without_labels_is_scored(whole):
    line, _ = rounds_of(whole.workspace)
    sites, both = line["sites"], {"train_loss", "train_feature_spread"}
    unlabelled = {"train_cycle_error", "train_min_variance", "train_cycle_back", "train_cycle_chance"}
    for site in ("lap_bay", "lap_cliff"):
        assert both | unlabelled <= sites[site].keys() and 0 <= sites[site]["train_cycle_back"] <= 1
    assert both | {"train_label_contrast", "val_f1"} <= sites["lap_harbor"].keys()
    tested = result_of(whole.workspace)["test"]
    assert all(0 <= tested[site]["f1_mean"] <= 1 for site in ("lap_harbor", "lap_bay", "lap_cliff", "lap_isle"))


def test_without_other_sites_it_is_guided_training(write_tiny_phases_job, tmp_path):
    """M = 0: the same bits as averaging of one site with that loss."""
    spec = {"sites": HARBOR, "rounds": 2, **LAST}
    local = run_job(write_tiny_phases_job(tmp_path, "own", **spec), tmp_path / "own")
    plain = {"path": "fedmed.methods.supervised_fedavg.SupervisedFedAvg"}
    guided = {"role_overlays": {"supervised": ["guided"]}, "method": plain}
    other = run_job(write_tiny_phases_job(tmp_path, "other", **spec, **guided), tmp_path / "other")
    assert same(local.tensors, other.tensors)


def test_the_control_leaves_sites_without_labels_out(write_tiny_phases_job, tmp_path):
    job = read_job(write_tiny_phases_job(tmp_path, rounds=1))
    control = control_job(job)
    assert set(control.study.sites.values()) == {"supervised", "evaluate"} and len(control.study.sites) == 4
    run_job(write_job(control, tmp_path / "control"), tmp_path / "ws")
    (line,) = rounds_of(tmp_path / "ws")
    assert line["coefficients"] == {"lap_harbor": 1.0}


@pytest.mark.parametrize("norm", [["demo"], ["demo", "groupnorm"]], ids=["batch", "group"])
def test_silent_sites_send_zeros(write_tiny_phases_job, tiny_phases, answers, tmp_path, norm):
    """Learning rate 0 and BatchNorm's statistics left alone, as the method says; and λ_t = 0 without decay, too."""
    job = read_job(write_tiny_phases_job(tmp_path, "roles"))
    silent = dict(job.method.roles()["unsupervised"].silent)
    no_loss = {"cycle_weight": 0.0, "weight_decay": 0.0, "statistics_momentum": 0.0}
    for name, said in {"silent": silent, "no_loss": no_loss}.items():
        overrides = {**tiny_phases, "unsupervised": {**tiny_phases["unsupervised"], **said}}
        sites = {**HARBOR, "lap_bay": "unsupervised"}
        spec = {"sites": sites, "overrides": {role: overrides[role] for role in ("supervised", "unsupervised")}}
        run_job(write_tiny_phases_job(tmp_path, name, overlays=norm, **spec, **LAST), tmp_path / "ws" / name)
    sent = [update.tensors for _, update in answers if update.site == "lap_bay"]
    assert len(sent) == 2
    for tensors in sent:
        moved = {name for name, value in tensors.items() if value.abs().max() > 0}
        assert all(name.endswith("num_batches_tracked") for name in moved)


@pytest.mark.parametrize("algorithm", ["feddyn", "scaffold", "feddg"])  # FedDyn pulls as FedProx does, and more
def test_algorithms_go_with_it(write_tiny_phases_job, allow_extras, answers, tmp_path, algorithm):
    allow_extras("amplitude", "control_difference")
    sites = {**HARBOR, "lap_bay": "unsupervised"}
    job = write_tiny_phases_job(tmp_path, sites=sites, rounds=2, steps=1, algorithm=algorithm, **LAST)
    server = run_job(job, tmp_path / "ws")
    assert all(bool(torch.isfinite(value).all()) for value in server.tensors.values())
    for _, update in answers:
        local = {name for name in update.tensors if name.startswith("classifier.")}
        assert bool(local) == (update.site == "lap_harbor") and update.n_steps == 1
        assert not any("classifier" in name for name in update.extras.get("control_difference", ())) or local


@pytest.mark.parametrize("algorithm", ["fedrep", "fedbn"])
def test_two_that_say_what_is_sent_are_refused(write_tiny_phases_job, tmp_path, algorithm):
    with pytest.raises(JobError, match="and FedCy both say what stays at the sites"):
        write_tiny_phases_job(tmp_path, algorithm=algorithm)


@pytest.mark.parametrize(("method", "killed"), [("FedCy", [2]), ("FedMatch", [1, 2])])
def test_it_goes_on_after_any_round_as_if_nothing_had_happened(
    method, killed, write_tiny_phases_job, tiny_phases, allow_extras, killed_before, tmp_path
):
    """The model, and what each site keeps: optimizers, and the guard's memory at the server.

    Of FedMatch helpers are chosen in the first and the third round: the task of the second brings them.
    """
    job = write_tiny_phases_job(tmp_path, rounds=3, steps=1, **LAST)
    if method == "FedMatch":
        allow_extras("noise_answer")
        frames = {**tiny_phases["supervised"], "learning_rate": 1e-3}
        overrides = {"supervised": frames, "unsupervised": {**frames, "confidence": 0.1, "distance_weight": 0.0}}
        spec = {"path": "fedmed.systems.fixmatch.method.FedMatch", "args": {"every": 2}}
        sites = {**HARBOR, "lap_bay": "unsupervised", "lap_cliff": "unsupervised"}
        matched = {"method": spec, "sites": sites, "overrides": overrides, **LAST}
        job = write_tiny_phases_job(tmp_path, "matched", rounds=3, steps=1, **matched)
    whole = outcome(run_job(job, tmp_path / "whole"), tmp_path / "whole")
    assert method == "FedCy" or all(len(kept["engine"]["helpers"]) == 1 for kept in whole[3:])
    for round in killed:
        with killed_before(round):
            run_job(job, tmp_path / "killed", resume=round > killed[0])
    assert same(outcome(run_job(job, tmp_path / "killed", resume=True), tmp_path / "killed"), whole)


def outcome(server, workspace):
    kept = [kept_of(workspace, site, 2) for site in ("lap_harbor", "lap_bay", "lap_cliff")]
    return [dict(server.tensors), server.guard.state() if server.guard else {}, *kept]
