"""Kinds of task for videos, each with the smallest bundle: two hospitals train a round, are scored and reported."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from fedmed.federation.loop import run_job
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import read_job, write_job
from fedmed.privacy.disclosures import SiteDisclosures
from fedmed.reports.label_charts import confusions_of
from fedmed.reports.run import read_run
from fedmed.reports.run_page import page
from fedmed.reports.run_report import report_of
from fedmed.reports.segmentation_2d_report import read_frame
from fedmed.reports.timelines import read_phases
from fedmed.settings.site import load_file
from fedmed.training.label_counts import Confusion

HERE = Path(__file__).parent
SITES = ("lap_cho1", "lap_hei2")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a function: name of a bundle beside this file -> workspace and job of one round with it, made once."""
    folder, made = tmp_path_factory.mktemp("kinds"), {}
    sites = {}
    for site in SITES:
        values = {"site": site, "demo": "lap_tools_tiny", "device": "cpu", "threads": 1}
        (folder / f"{site}.yaml").write_text(yaml.safe_dump({**values, "cache_dir": str(folder / f"cache_{site}")}))
        sites[site] = load_file(folder / f"{site}.yaml")

    def once(bundle):
        if bundle not in made:
            method = {"path": "fedmed.methods.supervised_fedavg.SupervisedFedAvg"}
            study = {"name": bundle, "bundle": bundle, "method": method, "rounds": 1, "steps": 6}
            job = write_job(Job.of({**study, "sites": dict.fromkeys(SITES, "supervised")}), folder / bundle)
            run_job(job, folder / f"{bundle}_ws", sites)
            made[bundle] = folder / f"{bundle}_ws", job
        return *made[bundle], sites

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDMED_BUNDLES", str(HERE))
        yield once


def sent(workspace):
    result = json.loads((workspace / "server/simulate_job/fedmed/result.json").read_text())
    assert result["best_round"] in (-1, 0) and 0 <= result["best_score"] <= 1
    return result["test"]


def frames_of(workspace, site):
    """Folder of a site's evaluation, and the rows of its only test video."""
    (place,) = workspace.glob(f"{site}/**/evaluation")
    (frames,) = (place / "frames").iterdir()
    with frames.open() as file:
        return place, list(csv.DictReader(file))


@pytest.mark.parametrize("bundle", ["phases_bundle", "masks_bundle"])
def test_a_site_can_foresee_every_number_that_it_sends(run, bundle):
    workspace, job, sites = run(bundle)
    answers = SiteDisclosures(read_job(job), sites["lap_cho1"])
    foreseen = {name for sending in answers.closing() if sending.task == "evaluate" for name in sending.scalars}
    assert set(sent(workspace)["lap_cho1"]) <= foreseen


def test_phases_from_videos_to_the_report(run):
    workspace, _, _ = run("phases_bundle")
    tests = sent(workspace)
    phases, confusions = confusions_of(read_run(workspace))
    assert len(phases) == 6 and set(confusions) == set(SITES)
    for site, confusion in confusions.items():
        place, rows = frames_of(workspace, site)
        true = [phases.index(row["true_phase"]) for row in rows]
        pairs = true, [int(np.argmax([float(row[f"p_{name}"]) for name in phases])) for row in rows]
        assert np.array_equal(confusion.table, Confusion.of(*pairs, 6).table)
        assert tests[site]["n_frames"] == len(rows) and tests[site]["n_cases"] == 1
        assert tests[site]["f1_mean"] == tests[site]["pooled_f1"] == pytest.approx(confusion.scores()["f1"])
        shown = read_phases(place / "median.npz", "median")
        assert np.array_equal(shown.truth.argmax(1), pairs[0]) and np.array_equal(shown.called.argmax(1), pairs[1])
    text = page(read_run(workspace))
    assert text.count('class="videos') == len(SITES) and "F1 of each phase" in text and "all sites: F1" in text
    assert "Every test video (2)" in text and "recall" in text
    assert "How the model sees frames" not in text, "this bundle keeps no features"


def test_masks_from_videos_to_the_report(run):
    workspace, _, sites = run("masks_bundle")
    tests = sent(workspace)
    for site, numbers in tests.items():
        place, rows = frames_of(workspace, site)
        lists = json.loads(sites[site].datalist.read_text())
        masks = sorted((sites[site].data_root / lists["testing"][0]["masks"]).iterdir())
        assert [f"{1000 * float(row['second']):08.0f}" for row in rows] == [path.stem for path in masks]
        assert numbers["dice_mean"] == pytest.approx(np.mean([float(row["dice"]) for row in rows]), abs=1e-6)
        distances = [float(row["hd95_jaw"]) for row in rows if row["hd95_jaw"]]
        assert numbers["hd95_jaw"] == pytest.approx(np.mean(distances), abs=1e-5) and numbers["hd95_jaw"] <= 40
        shown = read_frame(place / "best.npz", "best")
        assert shown.image.shape == (24, 32, 3) and shown.image.std() > 0.02
        assert set(np.unique(shown.truth)) <= {0, 1, 2, 3}
    text = page(read_run(workspace))
    assert "HD95, pixels" in text and "data:image/png" in text


def test_the_report_of_the_server_alone_shows_no_video(run, tmp_path):
    for bundle, chart in (("phases_bundle", "confusion"), ("masks_bundle", "classes")):
        workspace, _, _ = run(bundle)
        shutil.copytree(workspace / "server", tmp_path / bundle / "server")
        alone = read_run(tmp_path / bundle)
        report, whole = report_of(alone), read_run(workspace)
        assert report.case_columns(whole, whole.sites[0].cases) == [whole.score.name], "as a control compares cases"
        assert chart in report.charts(alone) and not any(report.figure(alone, site) for site in alone.sites)
