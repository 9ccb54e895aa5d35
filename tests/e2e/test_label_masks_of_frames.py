"""Masks of frames of operations in MONAI Label: parts of instruments, as PNG of the frame's own size."""

import json

import numpy as np
import pytest
import yaml
from monai.bundle import run as bundle_run
from PIL import Image

from fedmed.export.bundle import export_bundle
from fedmed.federation.loop import run_job
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import write_job
from fedmed.labelling.corrections import use_labels
from fedmed.labelling.studies import read_site, read_work
from fedmed.settings.site import load_file

NAME, SITE, FRAMES = "instrument_segmentation", "inst_hyst", ("red", "noise")
ASK = """
result = [client.infer(given["model"], image, {})[0] for image in given["images"]]
"""
CORRECT = """
result = []
for mask in given["masks"]:
    try:
        client.save_label(given["image"], mask)
        result.append("saved")
    except Exception as error:
        result.append(str(error))
"""


@pytest.fixture(scope="module")
def bundle(fedmed_home, tmp_path_factory):
    """The export of a run of a few steps at one tiny hospital."""
    folder = tmp_path_factory.mktemp("runs")
    path = folder / f"{SITE}.yaml"
    path.write_text(yaml.safe_dump({"site": SITE, "demo": "lap_instruments_tiny", "device": "cpu", "threads": 1}))
    job = {"name": "few_steps", "bundle": NAME, "overlays": ["demo"], "sites": {SITE: "supervised"}}
    job |= {"method": {"path": "fedmed.methods.supervised_fedavg.SupervisedFedAvg"}, "rounds": 1, "steps": 3}
    job["overrides"] = {"supervised": {"image_size": [32, 40]}}
    run_job(write_job(Job.of(job), folder / "job"), folder / "ws", {SITE: load_file(path)})
    return export_bundle(folder / "ws", folder / "exported" / NAME).out


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    """Two frames, wider than high."""
    root, rng = tmp_path_factory.mktemp("frames"), np.random.default_rng(3)
    Image.new("RGB", (96, 54), (150, 40, 30)).save(root / "red.png")
    Image.fromarray(rng.integers(0, 256, (54, 96, 3), dtype=np.uint8)).save(root / "noise.png")
    return root


@pytest.mark.slow
def test_masks_of_frames_are_served(label_server, label_client, studies, bundle, tmp_path):
    facts = {"bundle_root": str(bundle), "dataset_dir": str(studies), "output_dir": str(tmp_path / "out")}
    bundle_run(config_file=str(bundle / "configs" / "inference.yaml"), **facts, device="cpu")
    with label_server(studies, bundle, options=("--work", str(tmp_path / "work"))) as server:
        outcome = label_client(server.url, ASK, images=FRAMES, model=NAME)
    for frame, file in zip(FRAMES, outcome, strict=True):
        served, expected = (np.asarray(Image.open(path)) for path in (file, tmp_path / f"out/masks/{frame}.png"))
        assert served.shape == expected.shape == (54, 96)
        assert (served == expected).mean() > 0.98, "pixels at edges may be nearest to another one"


@pytest.mark.slow
def test_a_corrected_mask_becomes_training_data(label_server, label_client, bundle, tmp_path):
    root = tmp_path / "theatre"
    for video in "ab":
        (root / video).mkdir(parents=True)
        Image.new("RGB", (96, 54), (150, 40, 30)).save(root / video / f"{video}.png")
        (root / video / "frames.csv").write_text(f"file,second\n{video}.png,12\n")
    (root / "datalist.json").write_text(json.dumps({"unlabeled": [{"video": "a"}, {"video": "b"}]}))
    site = tmp_path / "theatre.yaml"
    site.write_text(yaml.safe_dump({"site": "theatre", "data_root": str(root)}))
    masks = [str(tmp_path / name) for name in ("turned.png", "good.png")]
    Image.new("L", (54, 96), 1).save(masks[0])
    Image.new("L", (96, 54), 2).save(masks[1])
    with label_server(site, bundle, options=("--work", str(tmp_path / "work"))) as server:
        turned, good = label_client(server.url, CORRECT, image="a", masks=masks)
    assert "the mask has shape (96, 54), its picture (54, 96)" in turned and good == "saved"
    result = use_labels(read_site(site), read_work(tmp_path / "work"))
    assert [(one.case, one.done, one.foreground) for one in result.outcomes] == [("a", "new", 100)]
    trained = json.loads((root / "datalist.json").read_text())["training"]
    assert trained == [{"video": "a", "masks": "corrected_labels/a"}]
    assert np.asarray(Image.open(root / "corrected_labels/a/00012000.png")).max() == 2
