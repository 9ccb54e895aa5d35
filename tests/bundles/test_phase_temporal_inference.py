"""The bundle with temporal stages on its own: training from a model of single frames, and inference of whole videos."""

import csv
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from monai.bundle import ConfigParser, ConfigWorkflow
from PIL import Image

from fedmed.bundles.bundle_parser import parsed
from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.video_store import VideoStore
from fedmed_demo import demo_site

BUNDLE = Path(__file__).resolve().parents[2] / "bundles" / "surgical_phase_classification"
SMALL = {"image_size": [24, 32], "device": "cpu"}
OVERLAYS = ("demo", "temporal")


def files(*names):
    return [str(BUNDLE / "configs" / f"{name}.yaml") for name in names]


def parse(*names, **values):
    sys.path[:] = [*sys.path] if str(BUNDLE) in sys.path else [str(BUNDLE), *sys.path]
    parser = ConfigParser()
    parser.read_config(files(*names))
    parser.update({"bundle_root": str(BUNDLE), **SMALL, **values})
    return parser


def run(kind, *names, **values):
    metadata = str(BUNDLE / "configs/metadata.json")
    facts = {"bundle_root": str(BUNDLE), **SMALL, **values}
    workflow = ConfigWorkflow(files(*names), meta_file=metadata, logging_file=False, workflow_type=kind, **facts)
    workflow.initialize()
    workflow.run()
    workflow.finalize()


@pytest.fixture(scope="module")
def site(fedmed_home):
    return demo_site("lap_phases_tiny", "lap_harbor", fedmed_home)


@pytest.fixture(scope="module")
def video(site):
    entry = json.loads((site / "datalist.json").read_text())["testing"][0]
    return site / entry["video"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """File of a network with random weights."""
    torch.manual_seed(3)
    network = parsed(parse("inference", *OVERLAYS), "network")
    path = tmp_path_factory.mktemp("model") / "model.pt"
    torch.save(network.state_dict(), path)
    return path


def infer(model, folder, out, *overlays, **values):
    run("inference", "inference", *OVERLAYS, *overlays, dataset_dir=str(folder), output_dir=str(out),
        model_path=str(model), **values)  # fmt: skip
    with (out / "predictions.csv").open() as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("overlays", [("temporal",), OVERLAYS, ("groupnorm", "temporal")])
def test_training_and_inference_have_the_same_network(overlays):
    ours, theirs = parse("train", *overlays), parse("inference", *overlays)
    assert all(ours[key] == theirs[key] for key in ("classes", "network_def", "image_size"))


def test_the_published_values():
    """Czempiel et al. 2020, and the authors' code."""
    parser = parse("train", "temporal", "tecno")
    values = {"learning_rate": 7e-5, "batch_size": 1, "max_epochs": 12, "weight_decay": 0.0}
    assert {key: parser[key] for key in values} == values
    assert parser["network_def#temporal"] == {"stages": 2, "layers": 8, "maps": 32, "dropout": 0.5}
    parser = parse("train", *OVERLAYS, "tecno")
    network, (group,) = parsed(parser, "network"), parsed(parser, "optimizer").param_groups
    assert type(parsed(parser, "optimizer")) is torch.optim.Adam and group["lr"] == 7e-5
    assert {id(p) for p in group["params"]} == {id(p) for p in network.stages.parameters()}


def test_a_video_is_inferred_as_a_whole_whatever_the_batches(model, video, tmp_path):
    rows = infer(model, video, tmp_path / "by_4", feature_batch=4)
    network = parsed(parse("inference", *OVERLAYS), "network")
    network.load_state_dict(torch.load(model, weights_only=True))
    stored = VideoStore(tmp_path / "cache", FrameSettings((24, 32), 1)).get(video)
    frames = torch.from_numpy(stored.frames.copy()).permute(0, 3, 1, 2) / 255
    with torch.no_grad():
        expected = torch.softmax(network.eval()(frames), dim=1)
    names = parse("inference", *OVERLAYS)["classes"]
    result = torch.tensor([[float(row[f"p_{name}"]) for name in names] for row in rows])
    assert len(rows) == len(stored) and [float(row["second"]) for row in rows] == stored.times.tolist()
    assert torch.allclose(result, expected, atol=0.02), "training scales frames by FFmpeg, inference by Pillow"
    assert [row["phase"] for row in rows] == [names[p] for p in result.argmax(1)]
    assert (tmp_path / "by_4/ribbons").is_dir() and list((tmp_path / "by_4/ribbons").iterdir())
    again = infer(model, video, tmp_path / "by_64")
    values = [[[float(row[f"p_{name}"]) for name in names] for row in some] for some in (rows, again)]
    assert torch.allclose(torch.tensor(values[0]), torch.tensor(values[1]), atol=1e-5)


def test_each_video_begins_anew_and_a_frame_that_cannot_be_read_is_left_out(model, video, tmp_path):
    alone = infer(model, video, tmp_path / "alone")
    both = tmp_path / "both"
    both.mkdir()
    for name in ("a.mp4", "b.mp4"):
        shutil.copy(video, both / name)
    (both / "c.mp4").write_bytes(b"not a video")
    rows = infer(model, both, tmp_path / "out", feature_batch=7)
    by_name = {name: [row for row in rows if row["image"] == name] for name in ("a.mp4", "b.mp4", "c.mp4")}
    (broken,) = by_name["c.mp4"]
    assert broken["error"] and not broken["phase"] and not broken["p_preparation"]
    for name in ("a.mp4", "b.mp4"):
        pairs = zip(by_name[name], alone, strict=True)
        assert all(abs(float(x["p_preparation"]) - float(y["p_preparation"])) < 1e-5 for x, y in pairs)


def test_of_a_folder_of_pictures_the_one_that_cannot_be_read_is_left_out(model, tmp_path):
    """The others are one operation, as if it were not there."""
    pixels = np.random.default_rng(0).integers(0, 256, (5, 24, 32, 3), np.uint8)
    for folder, broken in (("whole", False), ("with_one_more", True)):
        (tmp_path / folder).mkdir()
        for number, picture in enumerate(pixels):
            Image.fromarray(picture).save(tmp_path / folder / f"{10 * number:03d}.png")
        if broken:
            (tmp_path / folder / "015.png").write_bytes(b"not a picture")
    whole, other = (infer(model, tmp_path / name, tmp_path / f"out_{name}") for name in ("whole", "with_one_more"))
    (failed,) = [row for row in other if row["error"]]
    assert failed["image"] == "015.png" and not failed["phase"] and len(other) == 6
    assert [row for row in other if not row["error"]] == whole


def test_it_trains_alone_from_a_model_of_single_frames_and_is_scored(site, tmp_path, capsys):
    places = {"ckpt_dir": str(tmp_path / "models"), "output_dir": str(tmp_path), "cache_dir": str(tmp_path / "cache")}
    (tmp_path / "models").mkdir()
    torch.manual_seed(4)
    frames = parsed(parse("train", "demo"), "network").state_dict()
    torch.save(frames, tmp_path / "models/frame_model.pt")
    run("train", "train", *OVERLAYS, "tecno", dataset_dir=str(site), max_epochs=2, **places)
    (saved,) = [path for path in (tmp_path / "models").iterdir() if path.name != "frame_model.pt"]
    tensors = torch.load(saved, weights_only=True)
    assert all(torch.equal(tensor, frames[name]) for name, tensor in tensors.items() if name.startswith("features."))
    rows = infer(saved, site / "videos", tmp_path / "inferred")
    assert rows and not any(row["error"] for row in rows)
    saved.rename(tmp_path / "models/model.pt")
    run("eval", "train", *OVERLAYS, "tecno", "evaluate", dataset_dir=str(site), **places)
    assert "f1_mean: 0." in capsys.readouterr().out and list((tmp_path / "videos/frames").iterdir())


def test_without_a_model_of_single_frames_it_says_what_to_do(site, tmp_path):
    places = {"ckpt_dir": str(tmp_path), "output_dir": str(tmp_path), "cache_dir": str(tmp_path / "cache")}
    with pytest.raises(RuntimeError) as caught:
        run("train", "train", *OVERLAYS, "tecno", dataset_dir=str(site), **places)
    error = caught.value
    while error.__cause__ is not None:
        error = error.__cause__
    assert "frame_model.pt does not exist" in str(error)
