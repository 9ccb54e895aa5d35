"""The jobs that FedCy is compared with say what their names promise, and each runs a round on small frames."""

from types import MappingProxyType

import pytest
import torch
import yaml

from fedmed.export.bundle import export_bundle
from fedmed.federation.loop import run_job
from fedmed.jobs.job_folder import read_job, write_job
from fedmed.reports import plots
from fedmed.reports.run import read_run
from fedmed.reports.run_page import charts, write_report
from tests.federation.run_folder import result_of, rounds_of
from tests.shipped import CHECKOUT, shipped

OTHERS = ("lap_bay", "lap_cliff")
BEST = {"select": "best"}


def roles(labelled, others):
    return {"lap_harbor": labelled, "lap_isle": "evaluate", **dict.fromkeys(OTHERS, others)}


@pytest.fixture
def labels_everywhere(tiny_site_configs, tmp_path, monkeypatch):
    """The tiny hospitals, each with a table for every video."""
    folder = tmp_path / "labelled_sites"
    folder.mkdir()
    for path in tiny_site_configs.glob("lap_*.yaml"):
        values = yaml.safe_load(path.read_text()) | {"datalist": "datalist_labelled.json"}
        (folder / path.name).write_text(yaml.safe_dump(values))
    monkeypatch.setenv("FEDMED_SITE_CONFIGS", str(folder))


@pytest.fixture
def one_round(tiny_site_configs, tiny_phases, tmp_path):
    """Return a function: a round of a job on small frames, with further values of roles; server, record, result."""

    def run(name, roles=MappingProxyType({}), folder="ws", **changes):
        job = read_job(shipped(name))
        frames = {**tiny_phases["supervised"], "learning_rate": 1e-3}
        overrides = {role: {**frames, **roles.get(role, {})} for role in set(job.study.sites.values())}
        short = {"rounds": 1, "warm_start": {}, "role_overlays": {}} | ({} if job.study.select == "last" else BEST)
        changed = job.changed({**short, "overrides": overrides, **changes})
        server = run_job(write_job(changed, tmp_path / folder / "job"), tmp_path / folder)
        *_, line = rounds_of(tmp_path / folder)
        return server, line, result_of(tmp_path / folder)

    return run


def scored(result):
    return {site for site, numbers in result["test"].items() if 0 <= numbers.get("f1_mean", -1) <= 1}


@pytest.mark.parametrize(("name", "others"), [("phases_fullsup", "evaluate"), ("phases_fedavg", "supervised")])
def test_labels_at_one_hospital_and_at_all(name, others):
    job = read_job(shipped(name))
    assert job.study.sites == dict(sorted(roles("supervised", others).items())) and job.study.epochs == 1
    assert {tuple(job.overlays(role)) for role in job.study.sites.values()} == {("demo",)}, "cross-entropy alone"
    assert job.short_rule["args"]["weighting"] == "samples"


def test_a_round_with_labels_everywhere(labels_everywhere, one_round):
    server, line, result = one_round("phases_fedavg")
    frames = {site: local["n_samples"] for site, local in line["sites"].items()}
    assert line["coefficients"] == pytest.approx({site: n / sum(frames.values()) for site, n in frames.items()})
    assert line["coefficients"].keys() == {*OTHERS, "lap_harbor"} and not line["refused"]
    assert scored(result) == {*OTHERS, "lap_harbor", "lap_isle"}


PSEUDO = {"phases_fedfixmatch": "fixmatch", "phases_feduda": "uda", "phases_fedrgd": "fixmatch"}


@pytest.mark.parametrize(("name", "loss"), PSEUDO.items())
def test_pseudo_labels_at_hospitals_without_labels(name, loss):
    job, norm = read_job(shipped(name)), ["groupnorm"] if name == "phases_fedrgd" else []
    assert job.study.sites == dict(sorted(roles("supervised", "unsupervised").items()))
    assert job.overlays(job.role("lap_harbor")) == ["demo", *(norm or ["one_cycle"])]
    assert job.overlays(job.role("lap_bay")) == ["demo", *norm, "pseudo_labels", loss]
    assert job.short_rule["args"]["weighting"] == ("uniform" if norm else "samples") and job.study.epochs == 1


@pytest.mark.parametrize("name", ["phases_feduda", "phases_fedrgd"])
def test_a_round_with_pseudo_labels(one_round, name):
    """From a threshold that an untrained network passes on, all send the whole model."""
    server, line, result = one_round(name, {"unsupervised": {"confidence": 0.1}})
    assert not line["refused"] and scored(result) == {*OTHERS, "lap_harbor", "lap_isle"}
    for site in OTHERS:
        local = line["sites"][site]
        assert local["train_sure_fraction"] > 0 and 1 / 6 <= local["train_commonest_fraction"] <= 1
        assert local["train_loss"] > 0 and local["n_samples"] > 16
    if name == "phases_fedrgd":
        assert set(line["coefficients"].values()) == {1 / 3} and not any("running" in name for name in server.tensors)
    else:
        assert line["coefficients"]["lap_bay"] == pytest.approx(
            line["sites"]["lap_bay"]["n_samples"] / sum(local["n_samples"] for local in line["sites"].values())
        )


def test_features_first_and_labels_after():
    first, second = (read_job(shipped(name)) for name in ("phases_fedtcc", "phases_fedtcc_labels"))
    assert first.study.sites == dict.fromkeys(sorted((*OTHERS, "lap_harbor")), "unsupervised")
    assert {tuple(first.overlays(role)) for role in first.study.sites.values()} == {("demo", "cycle")}
    assert first.short_rule["args"]["weighting"] == "samples"
    assert first.method.role("unsupervised").sends == "head"
    assert (first.study.rounds, first.study.epochs, first.study.select, first.study.evaluate) == (30, 1, "last", False)
    plain = read_job(shipped("phases_fullsup")).study.model_dump()
    said = second.study.model_dump()
    different = {key for key, value in said.items() if value != plain[key]}
    assert different == {"name", "method", "checkpoint", "checkpoint_tensors"}, "otherwise as full supervision"


@pytest.mark.usefixtures("no_svg")
def test_a_round_of_features_and_one_with_labels_from_them(one_round, tmp_path, monkeypatch):
    server, line, _ = one_round("phases_fedtcc", {"unsupervised": {"batch_size": 2, "clip_size": 8}})
    assert line["coefficients"].keys() == {*OTHERS, "lap_harbor"} and not line["refused"]
    trained = dict(server.tensors)
    for name in ("classifier.weight", "classifier.bias"):
        assert torch.equal(trained[name], server.store.initial[name]), "nobody trained it"
    html, pngs = write_report(tmp_path / "ws", tmp_path / "report")
    assert "<code>from_features</code> trains the whole network with labels" in html.read_text()
    assert {"aggregation", "curves"} <= {path.stem for path in pngs}
    monkeypatch.setenv("FEDMED_MODELS", str(tmp_path / "ws/server/simulate_job/app_server"))
    server, line, result = one_round("phases_fedtcc_labels", folder="labels", seed=5)
    for name, value in server.store.initial.items():
        assert torch.equal(value, trained[name]) == name.startswith("features."), name
    assert line["coefficients"] == {"lap_harbor": 1.0} and len(scored(result)) == 4


def test_weights_in_two_parts():
    job = read_job(shipped("phases_fedmatch"))
    assert job.overlays(job.role("lap_harbor")) == ["demo", "one_cycle", "fedmatch", "fedmatch_labelled"]
    assert job.overlays(job.role("lap_bay")) == ["demo", "pseudo_labels", "fedmatch", "fedmatch_unlabelled"]
    assert job.overlays(job.role("lap_isle")) == ["demo", "fedmatch"]
    assert {site: job.method.role(role).sends for site, role in job.study.sites.items()} == {
        "lap_harbor": "sigma",
        "lap_bay": "psi",
        "lap_cliff": "psi",
        "lap_isle": None,
    }
    for site in ("lap_bay", "lap_cliff"):
        values = yaml.safe_load((CHECKOUT / f"site_configs/demo/{site}.yaml").read_text())
        assert values["privacy"]["allowed_extras"] == ["noise_answer"]


@pytest.mark.usefixtures("no_torchscript")
def test_rounds_of_two_parts_with_helpers(allow_extras, one_round, answers, tmp_path):
    """After the first round two hospitals get what the other one has trained, and no one else does."""
    allow_extras("noise_answer")
    server, line, result = one_round("phases_fedmatch", {"unsupervised": {"confidence": 0.1}}, rounds=2, select="last")
    assert not line["refused"] and scored(result) == {*OTHERS, "lap_harbor", "lap_isle"}
    first = {update.site: (task, update) for task, update in answers if update.round == 0}
    second = {update.site: (task, update) for task, update in answers if update.round == 1}
    for site, (task, update) in first.items():
        prefix = "sigma." if site == "lap_harbor" else "psi."
        assert update.tensors.keys() == {name for name in task.tensors if name.startswith(prefix)}
        assert any(value.abs().max() > 0 for value in update.tensors.values()) and not task.extras
        assert ("noise_answer" in update.extras) == (site != "lap_harbor")
    assert not second["lap_harbor"][0].extras
    for site, other in (OTHERS, OTHERS[::-1]):
        (psi,) = second[site][0].extras["helpers"]
        task, update = first[other]
        for name, change in update.tensors.items():  # the server's sum may be rounded another way
            torch.testing.assert_close(psi[name], task.tensors[name] + change, rtol=2e-7, atol=0)
    for name, value in second["lap_bay"][0].tensors.items():
        given = first["lap_bay"][0].tensors[name]
        sent = [update.tensors[name] for _, update in first.values() if name in update.tensors]
        if value.is_floating_point():
            assert torch.allclose(value, given + torch.stack(sent).mean(dim=0), atol=1e-6), name
    for local in (line["sites"][site] for site in OTHERS):
        assert local["train_helper_divergence"] > 0 and 0 < local["train_psi_share"] <= 1
    assert server.applied.values == {}, "helpers stay until others come"
    run = read_run(tmp_path / "ws")
    drawn = plots.svg(charts(run)["curves"].draw(run), "curves")
    assert "Entries of ψ that are not 0" in drawn, "though no tensor is of all sites"
    exported = export_bundle(tmp_path / "ws", tmp_path / "surgical_phase_classification")
    weights = torch.load(exported.out / "models/model.pt", weights_only=True)
    first = server.tensors["sigma.classifier.weight"] + server.tensors["psi.classifier.weight"]
    assert torch.allclose(weights["classifier.weight"], first, atol=1e-4)
    assert "fedmed" not in (exported.out / "configs/inference.yaml").read_text()


def test_without_leave_nothing_of_one_hospital_reaches_another(one_round, answers, caplog):
    short = {"rounds": 2, "epochs": None, "steps": 1, "select": "last", "evaluate": False}
    server, line, _ = one_round("phases_fedmatch", **short)
    assert server.applied.values == {} and not any(task.extras for task, _ in answers)
    assert "lap_bay, lap_cliff': does not send 'noise_answer'" in caplog.text and not line["refused"]


def test_the_synthetic_hospitals_with_all_labels_are_the_same_ones():
    configs = CHECKOUT / "site_configs"
    paths = sorted((configs / "demo_labelled").glob("*.yaml"))
    assert [path.stem for path in paths] == ["lap_bay", "lap_cliff", "lap_dune", "lap_fjord"], "those without labels"
    for path in paths:
        plain, labelled = (yaml.safe_load((configs / k / path.name).read_text()) for k in ("demo", "demo_labelled"))
        assert labelled == {**plain, "datalist": "datalist_labelled.json"}
