"""A bundle adapted to a hospital's images says of them what a federation that adapts has scored there."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import yaml

from fedmed.adapting.bundle import adapt_bundle
from fedmed.bundles.infer import run_inference
from fedmed.data.synthetic import demo_site
from fedmed.export.bundle import export_bundle
from fedmed.federation.loop import run_job
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import write_job

SITES = {"cxr_metro": "supervised", "cxr_children": "evaluate"}
SMALL = {"batch_size": 4, "image_size": 48}
STUDY = {
    "name": "hospital_study",
    "bundle": "cxr_classification",
    "overlays": ["demo"],
    "method": {"path": "fedmed.methods.supervised_fedavg.SupervisedFedAvg"},
    "sites": SITES,
    "rounds": 1,
    "steps": 4,
    "overrides": dict.fromkeys(SITES.values(), SMALL),
    "adaptation": {"name": "statistics", "args": {"dead_zone": 0}},
}


def said(bundle, folder, place):
    """File -> its probabilities, of the bundle's own inference."""
    values = {"bundle_root": str(bundle), "dataset_dir": str(folder), "output_dir": str(place), "device": "cpu"}
    run_inference(bundle, [bundle / "configs" / "inference.yaml"], values)
    rows = json.loads((place / "predictions.json").read_text())
    return {row["image"]: list(row["probabilities"].values()) for row in rows}


def test_probabilities_are_those_that_the_site_scored(fedmed_home, monkeypatch, tmp_path):
    (tmp_path / "sites").mkdir()
    for site in SITES:
        values = {"demo": "chest_xray_tiny", "device": "cpu", "threads": 1}
        (tmp_path / "sites" / f"{site}.yaml").write_text(yaml.safe_dump(values))
    monkeypatch.setenv("FEDMED_SITE_CONFIGS", str(tmp_path / "sites"))
    run_job(write_job(Job.of(STUDY), tmp_path / "job"), tmp_path / "ws")
    bundle = export_bundle(tmp_path / "ws", tmp_path / "xray_classification").out
    root, own = demo_site("chest_xray_tiny", "cxr_children", fedmed_home), tmp_path / "own"
    own.mkdir()
    tested = [root / entry["image"] for entry in json.loads((root / "datalist.json").read_text())["testing"]]
    for place, image in enumerate(tested):  # in the order of the list, by which images are normalised together
        shutil.copy(image, own / f"{place:03d}{image.suffix}")
    out = tmp_path / "own_classification"
    adapt_bundle(bundle, own, out, asked=["statistics"], few=True, device="cpu")
    (scored,) = Path(tmp_path / "ws" / "cxr_children").glob("**/evaluation/cases.csv")
    rows = list(csv.DictReader(scored.open()))
    expected = np.array([[float(value) for name, value in row.items() if name.startswith("p_")] for row in rows])
    adapted, before = (np.array(list(said(root, own, tmp_path / root.name).values())) for root in (out, bundle))
    assert len(expected) == len(tested) and np.allclose(adapted, expected, atol=2e-6)
    assert not np.allclose(before, expected, atol=1e-2)
