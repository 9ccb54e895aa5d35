"""Classes of CT volumes: a bundle alone, of the kind that radiographs have; two hospitals of phantoms train a round."""

import csv
import json
from pathlib import Path

import pytest

from fedmed.bundles.bundle import Bundle
from fedmed.checks.site_check import Options, check_site
from fedmed.federation.loop import run_job
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import write_job
from fedmed.kinds.classification import Classification
from fedmed.kinds.find_kind import kind_of
from fedmed.reports.classification_report import read_classified
from fedmed.reports.run import read_run
from fedmed.reports.run_page import page
from fedmed.settings.site import load_file
from tests.kinds.volume_hospital import COUNTS, hospital

HERE = Path(__file__).parent
BUNDLE, SITES = "volumes_bundle", ("north", "south")


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    root = tmp_path_factory.mktemp("hospitals")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDMED_BUNDLES", str(HERE))
        yield {site: load_file(hospital(root / site, number)) for number, site in enumerate(SITES)}


@pytest.fixture(scope="module")
def job(sites, tmp_path_factory):
    study = {"name": "volumes", "bundle": BUNDLE, "rounds": 1, "steps": 3, "sites": dict.fromkeys(SITES, "supervised")}
    study["method"] = {"path": "fedmed.methods.supervised_fedavg.SupervisedFedAvg"}
    return write_job(Job.of(study), tmp_path_factory.mktemp("job") / "volumes")


def test_the_kind_is_that_of_radiographs_with_other_images(sites):
    kind = kind_of(Bundle(BUNDLE))
    assert kind == Classification(images="volume") and kind.inspects.endswith(".ClassifiedCTInspection")


def test_a_site_checks_its_volumes_and_their_classes(sites, job):
    checked = check_site(str(sites["north"].source), Options(job=str(job), skip={"training", "device"}))
    texts = [finding.text for finding in checked.findings]
    assert not [text for text in texts if "mask" in text or "foreground" in text], texts
    rows = checked.inspection.rows(checked.entries, list(checked.cases.values()))
    assert rows[1][0] == "training" and rows[1][-1] == "clear 3, nodule 3"


def test_from_volumes_to_the_report(sites, job, tmp_path):
    run_job(job, tmp_path / "ws", sites)
    result = json.loads((tmp_path / "ws/server/simulate_job/fedmed/result.json").read_text())["test"]
    for site in SITES:
        (place,) = (tmp_path / "ws").glob(f"{site}/**/evaluation")
        with (place / "cases.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == COUNTS["testing"] and 0 <= result[site]["auroc"] <= 1
        assert all(float(row["p_clear"]) + float(row["p_nodule"]) == pytest.approx(1, abs=1e-5) for row in rows)
        shown = read_classified(next(place.glob("*.npz")), "best")
        assert shown.image.shape == shown.heat.shape == (24, 24) and shown.image.std() > 0.05
    text = page(read_run(tmp_path / "ws"))
    assert "AUROC" in text and "data:image/png" in text
