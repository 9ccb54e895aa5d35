"""A bundle adapted to a hospital's images says of them what a federation that adapts has scored there."""

import csv
import json
import shutil

import numpy as np
import pytest
import torch
import yaml

from fedmed.adapting.bundle import adapt_bundle
from fedmed.bundles.infer import run_inference
from fedmed.data.augment.intensities import INTENSITIES
from fedmed.export.bundle import export_bundle
from fedmed.federation.loop import run_job
from fedmed.federation.workflow import Closing
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import write_job
from fedmed.messages.answers import Extras
from fedmed_demo import demo_site
from tests.federation.run_folder import result_of

SITES = {"cxr_metro": "supervised", "cxr_rural": "supervised", "cxr_children": "evaluate"}
SMALL = {"batch_size": 4, "image_size": 48}
STUDY = {
    "name": "hospital_study",
    "bundle": "cxr_classification",
    "overlays": ["demo"],
    "method": {"path": "fedmed.methods.supervised_fedavg.SupervisedFedAvg"},
    "sites": SITES,
    "rounds": 1,
    "steps": 4,
    "select": "last",
    "overrides": dict.fromkeys(SITES.values(), SMALL),
    "adaptation": ["intensity", {"name": "statistics", "args": {"dead_zone": 0, "judged": False}}],
}


def said(bundle, folder, place):
    """File -> its probabilities, of the bundle's own inference."""
    values = {"bundle_root": str(bundle), "dataset_dir": str(folder), "output_dir": str(place), "device": "cpu"}
    run_inference(bundle, [bundle / "configs" / "inference.yaml"], values)
    rows = json.loads((place / "predictions.json").read_text())
    return {row["image"]: list(row["probabilities"].values()) for row in rows}


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Workspace of a run that was stopped before its scores, and resumed."""
    (tmp_path / "sites").mkdir()
    for site in SITES:
        values = {"demo": "chest_xray_tiny", "device": "cpu", "threads": 1}
        values["privacy"] = {"allowed_extras": [INTENSITIES], "extras_min_images": 4}
        (tmp_path / "sites" / f"{site}.yaml").write_text(yaml.safe_dump(values))
    for place in ("fedmed.training.corrections.gamma", "fedmed.adapting.decisions"):  # the sites are alike
        monkeypatch.setattr(f"{place}.matching_gamma", lambda local, wanted: 2 + float((local - wanted / 2)[:50].sum()))
    monkeypatch.setenv("FEDMED_SITE_CONFIGS", str(tmp_path / "sites"))
    job = write_job(Job.of(STUDY), tmp_path / "job")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Closing, "validation_tasks", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        run_job(job, tmp_path / "ws")
    with monkeypatch.context() as patch:  # asked again, since sites are scored that keep nothing
        patch.setattr("fedmed.federation.exchange.mean_values", lambda values: {"sites": "made anew"})
        run_job(job, tmp_path / "ws", None, True)
    return tmp_path / "ws"


def test_the_bundle_carries_the_mean_and_says_what_the_site_scored(run, fedmed_home, monkeypatch, tmp_path):
    kept = result_of(run)["references"]
    assert kept["sites"] == 2 and sum(kept[INTENSITIES]) == pytest.approx(1, abs=1e-3)
    bundle = export_bundle(run, tmp_path / "xray_classification").out
    federation = json.loads((bundle / "configs" / "metadata.json").read_text())["federation"]
    assert federation["references"] == kept and not any(site in json.dumps(federation) for site in SITES)
    root, local = demo_site("chest_xray_tiny", "cxr_children", fedmed_home), tmp_path / "own"
    local.mkdir()
    tested = [root / entry["image"] for entry in json.loads((root / "datalist.json").read_text())["testing"]]
    for place, image in enumerate(tested):  # in the order of the list, by which images are normalised together
        shutil.copy(image, local / f"{place:03d}{image.suffix}")
    monkeypatch.setattr("fedmed.adapting.decisions.DEAD_ZONE", 0.0)
    monkeypatch.setattr("fedmed.adapting.decisions.objection", lambda before, after: "")
    out = tmp_path / "own_classification"
    adapted = adapt_bundle(bundle, local, out, few=True, device="cpu").adapted
    assert adapted.made == ["intensity", "statistics"]
    (scored,) = run.glob("cxr_children/**/evaluation/cases.csv")
    rows = list(csv.DictReader(scored.open()))
    expected = np.array([[float(value) for name, value in row.items() if name.startswith("p_")] for row in rows])
    after, before = (np.array(list(said(one, local, tmp_path / one.name).values())) for one in (out, bundle))
    assert len(expected) == len(tested) and np.allclose(after, expected, atol=2e-5)
    assert not np.allclose(before, expected, atol=1e-2)


@pytest.mark.parametrize(("reported", "kept"), [("abc", 3), ("ab", 0), ("a", 0)])
def test_a_mean_is_kept_only_where_each_site_told(exchange_of, reported, kept):
    said = {"names": (INTENSITIES,), "once": True, "given_to": ("unsupervised",)}
    exchange = exchange_of(dict.fromkeys("abc", "supervised") | {"d": "unsupervised"}, **said)
    assert exchange.once
    exchange.take({site: Extras(site, 0, {INTENSITIES: torch.ones(100) / 100}) for site in reported}, 0, list("abc"))
    assert exchange.references.get("sites", 0) == kept
