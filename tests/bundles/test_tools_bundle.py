"""The bundle for tools in frames of video: complete, trains and scores alone, and infers frames without FedMed."""

import csv
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from monai.bundle import ConfigParser, ConfigWorkflow, verify_metadata, verify_net_in_out
from PIL import Image

from fedmed.bundles.network import parsed
from fedmed.data.synthetic import demo_site
from fedmed.errors import DataError
from fedmed.export.verify import SCHEMA

BUNDLE = Path(__file__).resolve().parents[2] / "bundles" / "surgical_tool_classification"
if str(BUNDLE) not in sys.path:
    sys.path.append(str(BUNDLE))
METADATA = BUNDLE / "configs" / "metadata.json"
SMALL = {"image_size": [24, 32], "batch_size": 16, "max_epochs": 1}


def configs(*names):
    return [str(BUNDLE / "configs" / f"{name}.yaml") for name in names]


@pytest.fixture(scope="module")
def facts(fedmed_home, tmp_path_factory):
    """Places of a tiny site, and a size at which a step takes little time."""
    out = tmp_path_factory.mktemp("out")
    root = demo_site("lap_tools_tiny", "lap_cho1", fedmed_home)
    places = {"ckpt_dir": str(out / "models"), "output_dir": str(out / "eval"), "cache_dir": str(out / "cache")}
    return {"bundle_root": str(BUNDLE), "dataset_dir": str(root), "device": "cpu", **places, **SMALL}


def parse(*names, **values):
    parser = ConfigParser()
    parser.read_config(configs(*names))
    parser.update({"bundle_root": str(BUNDLE), "device": "cpu", **values})
    return parser


def test_metadata():
    verify_metadata(meta_file=str(METADATA), filepath=str(SCHEMA))
    metadata, parser = json.loads(METADATA.read_text()), parse("train")
    assert metadata["version"] in metadata["changelog"] and metadata["pytorch_version"] in torch.__version__
    formats = metadata["network_data_format"]
    assert list(formats["outputs"]["pred"]["channel_def"].values()) == parser["classes"]
    assert formats["inputs"]["image"]["spatial_shape"] == parser["image_size"]
    pins = (BUNDLE.parents[1] / "requirements.txt").read_text()
    assert all(f"{name}=={version}" in pins for name, version in metadata["required_packages_version"].items())
    for name in ("LICENSE", "docs/README.md", "configs/logging.conf"):
        assert (BUNDLE / name).is_file()


@pytest.mark.parametrize("names", [("train", "demo"), ("train", "cpu"), ("inference",)])
def test_network_in_and_out(names):
    verify_net_in_out(net_id="network_def", meta_file=str(METADATA), config_file=configs(*names), device="cpu")


def test_training_and_inference_have_the_same_network():
    ours, theirs = parse("train"), parse("inference")
    keys = ("classes", "image_size", "encoder", "network_def", "groups", "encoder_layers", "encoder_widths")
    assert all(ours[key] == theirs[key] for key in keys)
    names = list(parsed(parse("train", "demo"), "network").state_dict())
    assert {name.split(".")[0] for name in names} == {"encoder", "classifier"}
    assert parse("train", "demo")["pooling"] == "mean_max" != parse("train")["pooling"]
    assert not any("running" in name for name in names), "GroupNorm keeps no statistics of a hospital"


def test_mean_and_largest_value_of_each_map():
    networks = importlib.import_module("surgical_tools.networks")
    maps = torch.tensor([[[[1.0, 2.0], [3.0, 6.0]], [[-1.0, -2.0], [-3.0, -6.0]]]])
    assert networks.MeanAndMax()(maps).tolist() == [[3.0, -3.0, 6.0, -1.0]]
    with pytest.raises(ValueError, match="'median'; use 'mean' or 'mean_max'"):
        networks.build_encoder(pooling="median")


def test_positive_weights_are_those_of_the_sites_own_frames(facts):
    parser = parse("train", "demo", **facts)
    videos = parsed(parser, "train#videos")
    shown = sum(labels[video.kept].sum(0) for video, labels in zip(videos.videos, videos.labels, strict=True))
    n = len(parsed(parser, "train#data"))
    assert n == sum(int(video.kept.sum()) for video in videos.videos)
    expected = ((n - shown.double()) / shown.clamp(min=1)).clamp(max=parser["weight_cap"])
    assert parsed(parser, "loss").pos_weight.tolist() == pytest.approx(expected.tolist())
    assert parsed(parse("train", "demo", **facts, weighted=False), "loss").pos_weight is None


def test_train_evaluate_and_infer(facts, tmp_path):
    """Stand-alone: an epoch with validation, the scores of the testing list, and frames in a process without FedMed."""
    made = ConfigWorkflow(
        configs("train", "demo"), meta_file=str(METADATA), workflow_type="train", logging_file=False, **facts
    )
    made.initialize()
    assert made.check_properties() == []
    made.run()
    model = Path(facts["ckpt_dir"]) / "model.pt"
    assert model.is_file()
    ConfigWorkflow(configs("train", "demo", "evaluate"), workflow_type="train", logging_file=False, **facts).run()
    with (Path(facts["output_dir"]) / "videos/cases.csv").open() as file:
        assert [0 <= float(row["f1"]) <= 1 for row in csv.DictReader(file)] == [True]
    (tmp_path / "in").mkdir()
    Image.new("RGB", (64, 48), (120, 40, 30)).save(tmp_path / "in/red.png")
    (tmp_path / "in/broken.png").write_bytes(b"no picture")
    alone = "import runpy, sys; sys.modules['fedmed'] = None; runpy.run_module('monai.bundle', run_name='__main__')"
    files = str(configs("inference", "demo")).replace(" ", "")
    line = ["run", "--config_file", files, "--bundle_root", str(BUNDLE), "--dataset_dir", str(tmp_path / "in")]
    line += ["--output_dir", str(tmp_path / "out"), "--model_path", str(model), "--image_size", "[24,32]"]
    subprocess.run([sys.executable, "-c", alone, *line], check=True, capture_output=True)
    broken, red = json.loads((tmp_path / "out/predictions.json").read_text())
    assert broken["predicted"] is None and "broken.png is damaged or no picture" in broken["error"]
    assert set(red["probabilities"]) == set(parse("train")["classes"])
    assert red["predicted"] == [name for name, p in red["probabilities"].items() if p >= 0.5]


def test_a_table_without_one_of_the_tools_is_one_clear_error(facts):
    parser = parse("train", "demo", **facts, classes=["grasper", "stapler"])
    with pytest.raises(DataError, match="the tool 'clipper' is unknown; use grasper, stapler"):
        parsed(parser, "train#videos")
