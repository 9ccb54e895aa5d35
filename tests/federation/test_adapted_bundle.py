"""A bundle adapted to a hospital's images says of them what a federation that adapts has scored there."""

import csv
import json
import shutil

import numpy as np
import pytest

from fedmed.adapting.bundle import adapt_bundle
from fedmed.bundles.infer import run_inference
from fedmed.data.synthetic import demo_site
from fedmed.export.bundle import export_bundle
from fedmed.federation.loop import run_job

PLAN = {"rounds": 1, "epochs": 0.5, "steps": None, "warm_start": {"rounds": 1}, "select": "last"}
SITES = {"lap_harbor": "supervised", "lap_isle": "evaluate"}


def test_probabilities_of_each_frame_are_those_that_the_site_scored(write_tiny_phases_job, fedmed_home, tmp_path):
    adaptation = {"name": "statistics", "args": {"dead_zone": 0}}
    small = {"image_size": [24, 32], "frame_rate": 2.0, "batch_size": 16}
    run_job(
        write_tiny_phases_job(tmp_path, **PLAN, sites=SITES, overrides=small, adaptation=adaptation), tmp_path / "ws"
    )
    bundle = export_bundle(tmp_path / "ws", tmp_path / "phases_classification").out
    root = demo_site("lap_phases_tiny", "lap_isle", fedmed_home)
    (tmp_path / "videos").mkdir()
    tested = [root / entry["video"] for entry in json.loads((root / "datalist.json").read_text())["testing"]]
    for video in tested:
        shutil.copy(video, tmp_path / "videos")
    out = tmp_path / "own_classification"
    adapt_bundle(bundle, tmp_path / "videos", out, asked=["statistics"], few=True, device="cpu")
    values = {"dataset_dir": str(tmp_path / "videos"), "output_dir": str(tmp_path / "said"), "device": "cpu"}
    run_inference(out, [out / "configs" / "inference.yaml"], {"bundle_root": str(out), **values})
    said = {}
    for row in json.loads((tmp_path / "said" / "predictions.json").read_text()):
        said.setdefault(row["image"], []).append(list(row["probabilities"].values()))
    scored = sorted((tmp_path / "ws").glob("lap_isle/**/evaluation/frames/*.csv"))
    assert len(scored) == len(tested) == len(said)
    for path, video in zip(scored, tested, strict=True):
        rows = list(csv.DictReader(path.open()))
        expected = [[float(value) for name, value in row.items() if name.startswith("p_")] for row in rows]
        assert np.allclose(said[video.name], expected, atol=2e-4), video.name
    assert said and pytest.approx(1, abs=1e-4) == sum(next(iter(said.values()))[0])
