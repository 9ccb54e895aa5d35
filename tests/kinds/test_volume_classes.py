"""Classes of CT volumes: a bundle alone, of the kind that radiographs have; two hospitals of phantoms train a round."""

import csv
import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import yaml

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

HERE = Path(__file__).parent
BUNDLE, SITES = "volumes_bundle", ("north", "south")
COUNTS = {"training": 6, "validation": 4, "testing": 4}


def phantom(path, ill, rng):
    """A chest in HU, 3 x 3 x 5 mm, with or without a nodule."""
    places = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in (40, 36, 24)), indexing="ij"))
    body = (places[:2] ** 2).sum(0) < 0.8
    lung = ((np.abs(places[0]) - 0.4) / 0.3) ** 2 + (places[1] / 0.6) ** 2 < 1
    image = np.where(lung, -850, np.where(body, 40, -1000)) + rng.normal(0, 15, body.shape)
    if ill:
        image[((places - np.array([0.4, 0.1, 0]).reshape(3, 1, 1, 1)) ** 2).sum(0) < 0.03] = 30
    nib.save(nib.Nifti1Image(image.astype(np.int16), np.diag([3.0, 3.0, 5.0, 1])), path)


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    root, found = tmp_path_factory.mktemp("hospitals"), {}
    for number, site in enumerate(SITES):
        rng, lists = np.random.default_rng(number), {}
        (root / site / "images").mkdir(parents=True)
        for key, count in COUNTS.items():
            for place in range(count):
                name = f"images/{key}_{place}.nii.gz"
                phantom(root / site / name, place % 2, rng)
                entry = {"image": name, "label": ("clear", "nodule")[place % 2], "patient": f"{key}{place}"}
                lists.setdefault(key, []).append(entry)
        (root / site / "datalist.json").write_text(json.dumps(lists))
        values = {"site": site, "data_root": str(root / site), "device": "cpu", "threads": 1}
        values |= {"cache_dir": str(root / f"cache_{site}"), "privacy": {"min_cases": 1}}
        (root / f"{site}.yaml").write_text(yaml.safe_dump(values))
        found[site] = load_file(root / f"{site}.yaml")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDMED_BUNDLES", str(HERE))
        yield found


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
