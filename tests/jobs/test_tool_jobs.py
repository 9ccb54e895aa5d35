"""The job for tools says what its name promises, and five hospitals with videos learn in one process."""

import csv
import importlib
import json
import shutil

import pytest
import torch

from fedmed.bundles.bundle import Bundle
from fedmed.export.bundle import export_bundle
from fedmed.federation.loop import run_job
from fedmed.jobs.job_folder import read_job, write_job
from fedmed.jobs.study_text import changed_text
from fedmed.reports.label_charts import counts_of, total
from fedmed.reports.run import read_run
from fedmed.reports.run_page import write_report
from fedmed.training.label_counts import LabelCounts
from tests.commands import fedmed
from tests.federation.run_folder import result_of, rounds_of
from tests.jobs.demo_sites import demo_site, foreseen_scores
from tests.shipped import shipped

JOB = shipped("tools_fedavg")
RATE = 1e-2  # of the server, in the demonstration
SITES = ["lap_cho1", "lap_cho2", "lap_cho3", "lap_hei1", "lap_hei2"]


@pytest.mark.parametrize(
    ("name", "weighting", "step"),
    [
        ("tools_fedavg", "samples", {"by": "adamw", "rate": RATE}),
        ("tools_fedavg_classic", "uniform", {"by": "sgd", "momentum": 0.5}),
        ("tools_fedavg_uniform", "uniform", {"by": "adamw", "rate": RATE}),
        ("tools_paper", "samples", "adamw"),
    ],
)
def test_five_hospitals_with_labels_are_averaged(name, weighting, step):
    job = read_job(shipped(name))
    assert job.study.sites == dict.fromkeys(SITES, "supervised")
    assert job.short_rule["args"]["weighting"] == weighting
    assert job.study.epochs == (None if name == "tools_fedavg_classic" else 1)
    assert job.study.bundle == "surgical_tool_classification"
    assert job.study.server_step == step and job.overlays(job.role("lap_cho1"))[-1] == "one_cycle"


def test_the_published_job():
    study = read_job(shipped("tools_paper")).study
    assert (study.rounds, study.overlays, study.select) == (50, ["one_cycle"], "last")
    assert study.encoder == "alexnet-owt-7be5be79.pth" and not study.overrides


@pytest.mark.parametrize("name", ["tools_fedavg_classic", "tools_paper"])
def test_a_round_of_the_other_jobs(name, sites, tmp_path, monkeypatch, fedmed_home):
    """With two hospitals and small frames; AlexNet with fewer features, from a file that has such ones."""
    job = read_job(shipped(name))
    values = {"image_size": [63, 64] if job.study.encoder else [24, 32], "batch_size": 8}
    Bundle(job.study.bundle)  # from now on its package can be imported
    networks = importlib.import_module("surgical_tools.plain_networks")
    monkeypatch.setattr(networks, "WIDTH", 16)
    if job.study.encoder:
        network = networks.AlexNet(1000)
        (fedmed_home / "models").mkdir(exist_ok=True)
        torch.save(network.state_dict(), fedmed_home / "models" / "narrow.pth")
        job = job.changed({"encoder": "narrow.pth"})
    two = dict.fromkeys(("lap_hei1", "lap_hei2"), "supervised")
    short = {"rounds": 1, "steps": 2, "epochs": None}
    small = job.changed({"sites": two, **short, "overrides": {"supervised": values}})
    server = run_job(write_job(small, tmp_path / "job"), tmp_path / "ws", {site: sites[site] for site in two})
    (line,) = rounds_of(tmp_path / "ws")
    assert sorted(line["accepted"]) == list(two)
    if job.study.encoder:
        start = network.state_dict()
        moved = (server.tensors["features.0.weight"] - start["features.0.weight"]).abs().max()
        assert 0 < moved < 2e-3, "one step of the server's optimizer from ImageNet's weights"


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sites")
    return {site: demo_site(folder, site, "lap_tools_tiny") for site in SITES}


@pytest.fixture(scope="module")
def workspace(sites, tmp_path_factory):
    """One round of the job on the tiny sites."""
    folder = tmp_path_factory.mktemp("tools")
    job = write_job(read_job(JOB), folder / "tools_fedavg")
    small = {"rounds": 1, "overrides": {"supervised": {"image_size": [24, 32], "batch_size": 8}}}
    for path in job.glob("app_*/config/study.yaml"):
        path.write_text(changed_text(path.read_text(), small))
    run_job(job, folder / "ws", sites)
    return folder / "ws"


def test_one_round_with_videos(workspace, sites):
    (line,) = rounds_of(workspace)
    assert sorted(line["accepted"]) == SITES and not line["refused"]
    tests = result_of(workspace)["test"]
    tools = [one.name for one in Bundle("surgical_tool_classification", ["demo"]).classes]
    for site in SITES:
        result = tests[site]
        assert 0 <= result["f1_mean"] <= 1 and result["n_cases"] == 1 and "f1_std" not in result
        counts = LabelCounts.from_numbers(result, tools)
        assert counts is not None and counts.f1().mean() == pytest.approx(result["pooled_f1_zero"])
        (place,) = workspace.glob(f"{site}/**/evaluation")
        (frames,) = (place / "frames").iterdir()
        with frames.open() as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == result["n_frames"]
        seen = [sum(int(row[f"true_{tool}"]) for row in rows) for tool in tools]
        assert seen == (counts.tp + counts.fn).tolist()
        assert all((place / f"{name}.npz").is_file() for name in ("best", "median", "worst"))


def test_a_site_can_foresee_every_number_that_it_sends(workspace, sites):
    sent = result_of(workspace)["test"]["lap_cho2"]
    assert set(sent) <= foreseen_scores(read_job(JOB), sites["lap_cho2"])


def test_the_ledger_tells_what_left_and_names_no_video(workspace, sites, tmp_path, capsys):
    ledger, page = fedmed("site", "ledger"), tmp_path / "page.html"
    assert ledger([str(workspace / "lap_cho2"), "--out", str(page)]) == 0
    sent = result_of(workspace)["test"]["lap_cho2"]
    for text in (" ".join(capsys.readouterr().out.split()), page.read_text()):
        assert "lap_cho2 sent 1 update with 38 tensors" in text
        assert all(name in text for name in sent) and "LCB-" not in text and ".mp4" not in text
    assert "more, see Numbers" in text
    assert ledger(["--dry-run", str(sites["lap_cho2"].source), "--job", str(JOB), "--out", str(page)]) == 0
    for text in (" ".join(capsys.readouterr().out.split()), page.read_text()):
        assert "would send 60 updates" in text and "they tell how often each was there" in text


@pytest.mark.usefixtures("no_png")
def test_the_report_shows_tools_by_site_and_videos_along_time(workspace, tmp_path):
    html, pngs = write_report(workspace, tmp_path)
    names = {path.stem for path in pngs}
    assert {"labels", "bars", "test_scores", "slices_lap_cho1"} <= names
    text = html.read_text()
    assert "F1 of each tool" in text and "Videos along time" in text and "suction_irrigation" in text
    labels, counts = counts_of(read_run(workspace))
    sent = result_of(workspace)["test"]
    assert labels[0] == "grasper" and total(counts, labels).tp[0] == sum(site["tp_grasper"] for site in sent.values())


@pytest.mark.usefixtures("no_svg")
def test_the_report_of_the_server_alone_has_counts_and_no_videos(workspace, tmp_path):
    shutil.copytree(workspace / "server", tmp_path / "run" / "server")
    html, pngs = write_report(tmp_path / "run")
    assert "Single videos never leave a site" in html.read_text()
    assert {"labels", "bars"} <= {path.stem for path in pngs}


def test_the_run_becomes_a_bundle(workspace, tmp_path):
    """Inference on a generated frame gives the same before and after, the second without FedMed."""
    made = export_bundle(workspace, tmp_path / "tools_classification", verify=True, onnx=True)
    assert (made.out / "models/model.onnx").is_file()
    card = (made.out / "docs/README.md").read_text()
    assert "equal probabilities" in card and "on a generated frame of an operation" in card and "{{" not in card
    assert "a probability each, which do not sum to 1: grasper, clipper" in card and "None" not in card
    meta = json.loads((made.out / "configs/metadata.json").read_text())
    assert meta["network_data_format"]["inputs"]["image"]["spatial_shape"] == [24, 32]
    assert "in MONAI Label:  scripts/label.sh" in made.next_steps[0] and "scripts/label.sh /data/frames" in card
