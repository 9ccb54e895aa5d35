"""Classifiers of frames of operations in MONAI Label: several tools at once, one phase of six; PNG and JPEG."""

import json
import urllib.error
import urllib.request

import numpy as np
import pytest
import torch
import yaml
from monai.bundle import run as bundle_run
from PIL import Image

from fedmed.export.bundle import export_bundle
from fedmed.federation.loop import run_job
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import write_job
from fedmed.labelling.views import predictive_uncertainty
from fedmed.settings.site import load_file

TOOLS, PHASES = "surgical_tool_classification", "surgical_phase_classification"
FRAMES = ("red", "bright", "dark", "noise")
ASK = """
def ask(model, image, **params):
    file, answer = client.infer(model, image, params)
    return file, json.loads(answer) if isinstance(answer, bytes) else answer

result = [[ask(model, image) for image in given["images"]] for model in given["models"]]
result.append([ask(model, "noise", heat_map=True) for model in given["models"]])
"""


@pytest.fixture(scope="module")
def bundles(fedmed_home, tmp_path_factory):
    """Name -> the export of a run of a few steps at one tiny hospital; the threshold for tools is changed in it."""
    folder, made = tmp_path_factory.mktemp("runs"), {}
    sites = {TOOLS: ("lap_hei2", "lap_tools_tiny", [24, 32]), PHASES: ("lap_harbor", "lap_phases_tiny", [32, 32])}
    for name, (site, demo, size) in sites.items():
        path = folder / f"{site}.yaml"
        path.write_text(yaml.safe_dump({"site": site, "demo": demo, "device": "cpu", "threads": 1}))
        job = {"name": f"few_steps_{site}", "bundle": name, "overlays": ["demo"], "sites": {site: "supervised"}}
        job |= {"method": {"path": "fedmed.methods.supervised_fedavg.SupervisedFedAvg"}, "rounds": 1, "steps": 3}
        job["overrides"] = {"supervised": {"image_size": size, "batch_size": 8}}
        run_job(write_job(Job.of(job), folder / site / "job"), folder / site / "ws", {site: load_file(path)})
        made[name] = export_bundle(folder / site / "ws", folder / "exported" / name).out
    inference = made[TOOLS] / "configs" / "inference.yaml"
    config = yaml.safe_load(inference.read_text())
    assert config["threshold"] == 0.5
    inference.write_text(yaml.safe_dump({**config, "threshold": 0.4}, sort_keys=False))
    (made[TOOLS] / "digests.json").unlink()  # as who changes a setting does
    return made


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    """Frames of two operations, in folders, and one that is damaged."""
    root, rng = tmp_path_factory.mktemp("frames"), np.random.default_rng(3)
    made = {"red": (150, 40, 30), "bright": (250, 240, 200), "dark": (12, 4, 3)}
    pictures = {name: Image.new("RGB", (96, 54), colour) for name, colour in made.items()}
    pictures["noise"] = Image.fromarray(rng.integers(0, 256, (54, 96, 3), dtype=np.uint8))
    for name, picture in pictures.items():
        place = root / ("monday" if name in ("red", "dark") else "tuesday")
        place.mkdir(exist_ok=True)
        picture.save(place / (f"{name}.jpg" if name == "bright" else f"{name}.png"))
    (root / "damaged.png").write_bytes(b"not a picture")
    return root


@pytest.fixture(scope="module")
def expected(bundles, studies, tmp_path_factory):
    """Model -> frame -> (class -> probability, what is called), as `python -m monai.bundle run` writes them."""
    outcome = {}
    for name, bundle in bundles.items():
        out = tmp_path_factory.mktemp("out")
        facts = {"bundle_root": str(bundle), "dataset_dir": str(studies), "output_dir": str(out), "device": "cpu"}
        bundle_run(config_file=str(bundle / "configs" / "inference.yaml"), **facts)
        rows = [row for row in json.loads((out / "predictions.json").read_text()) if not row["error"]]
        stems = [row["image"].split("/")[-1].split(".")[0] for row in rows]
        outcome[name] = {stem: (row["probabilities"], row["predicted"]) for stem, row in zip(stems, rows, strict=True)}
    return outcome


def post(url, body=None):
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"} if body else {}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=1800) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.slow
def test_classifiers_of_frames_are_served(label_server, label_client, studies, bundles, expected, tmp_path):
    models = list(bundles)
    with label_server(studies, *bundles.values(), options=("--work", str(tmp_path / "work"))) as server:
        *answers, heats = label_client(server.url, ASK, images=FRAMES, models=models)
        requested = {name: json.dumps({"model": name, "reserved": 0}).encode() for name in models}
        chosen = {name: post(f"{server.url}/activelearning/uncertainty", body) for name, body in requested.items()}
        refused = {name: post(f"{server.url}/infer/{name}?image=damaged") for name in models}
    for name, outcome in zip(models, answers, strict=True):
        for frame, (file, answer) in zip(FRAMES, outcome, strict=True):
            assert file is None
            probabilities, predicted = expected[name][frame]
            assert [entry["label"] for entry in answer["prediction"]] == list(probabilities)
            scores = [entry["score"] for entry in answer["prediction"]]
            assert scores == pytest.approx(list(probabilities.values()), abs=1e-5)
            called = [entry["label"] for entry in answer["prediction"] if entry["called"]]
            assert called == (predicted if name == TOOLS else [predicted])
        unsure = {frame: predictive_uncertainty(torch.tensor(list(expected[name][frame][0].values())), name == TOOLS)
                  for frame in FRAMES}  # fmt: skip
        best = max(unsure, key=unsure.get)
        status, words = chosen[name]
        assert status == 200 and json.loads(words)["id"] == best, words
        assert json.loads(words)["score"] == pytest.approx(unsure[best], abs=1e-4)
        status, words = refused[name]
        assert status == 422 and "cannot read it" in words and str(studies) not in words, words
    shown = {len(predicted) for _, predicted in expected[TOOLS].values()}
    assert max(shown) > 1, "several tools are called in a frame, or the threshold is of no account"
    for picture, answer in heats:
        assert answer["prediction"] and picture
        with Image.open(picture) as heat:
            assert heat.mode == "RGB" and max(heat.size) >= 512
