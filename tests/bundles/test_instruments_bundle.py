"""The bundle for parts of instruments: complete, groups hit what they name, trains and infers alone."""

import csv
import gc
import json
import re
import shutil
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from ignite.engine import Events
from instrument_nets.weights import load_model
from monai.data import MetaTensor
from PIL import Image

from fedmed.aggregation.sharing import SharingPolicy
from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import parsed
from fedmed.bundles.contract import Use, faults
from fedmed.errors import BundleError, SharingError
from fedmed.jobs.app_configs import role_differences
from fedmed.systems.fedst.method import FedST
from tests.bundles.one_bundle import OneBundle
from tests.bundles.without_fedmed import run_without_fedmed

NAME = "instrument_segmentation"
PLAIN = {"indicator": "random"}
HERE = OneBundle(NAME, **PLAIN)
BUNDLE, configs, parse = HERE.root, HERE.configs, HERE.parse
OVERLAYS = sorted(path.stem for path in (BUNDLE / "configs").glob("*.yaml"))
OVERLAYS = [name for name in OVERLAYS if name not in ("train", "federation", "inference")]
SMALL = {**PLAIN, "image_size": [48, 64], "epoch_length": 2, "max_epochs": 1}


@pytest.fixture(scope="module")
def networks():
    """Overlays -> the network of the demonstration with them, made once."""
    made = {}

    def once(*overlays):
        if overlays not in made:
            made[overlays] = parsed(parse("train", "demo", *overlays), "network")
        return made[overlays]

    return once


@pytest.mark.parametrize("overlay", [None, *OVERLAYS])
def test_every_overlay_makes_a_complete_bundle(overlay):
    bundle = Bundle(NAME, [overlay] if overlay else [])
    assert not faults(bundle, Use(role="supervised"), {"classes": "names"})
    assert overlay is None or f"`{overlay}`" in (BUNDLE / "docs/README.md").read_text(), "the README tells of it"


def test_attention_as_eq_4_is_printed_has_no_layer_norm(networks):
    ours, printed = networks(), networks("no_pre_norm")
    assert {name for name in ours.state_dict() if name.startswith("temporal.norm")}
    assert set(ours.state_dict()) - set(printed.state_dict()) == {"temporal.norm.weight", "temporal.norm.bias"}


@pytest.mark.parametrize(("overlays", "size", "level"), [((), None, 3), (("demo",), None, 1), ((), [96, 128], 1)])
def test_time_is_attended_to_where_a_map_has_places_enough(overlays, size, level):
    values = {"image_size": size} if size else {}
    for config in ("train", "inference"):
        assert parsed(parse(config, *overlays, **values), "network_def").level == level


def test_a_machine_that_is_no_site_needs_no_words():
    """The server builds the paper's network, whose indicator is made of words that each site alone has."""
    for provider in ("text", "file"):
        bundle = Bundle(NAME, ["demo"], {"indicator": provider})
        made = parsed(bundle.parser_without_site(device="cpu"), "network")
        assert not made.selection.indicator.any() and made.selection.indicator.shape == (16,)
        with pytest.raises(BundleError, match="procedure|does not exist"):
            parsed(bundle.parser(device="cpu"), "network")


def test_the_published_values():
    """Fang et al. 2025, Section 7 of their settings; what is ours and not named there is off."""
    parser = parse("train")
    values = {"max_epochs": 300, "epoch_length": 100, "batch_size": 2, "learning_rate": 6e-5, "dice_weight": 0.3,
              "frames": 4, "frame_interval": 0.2}  # fmt: skip
    assert {key: parser[key] for key in values} == values
    assert parser["optimizer"]["_target_"] == "torch.optim.AdamW" and parser["degrees"] and parser["zoom"]
    assert not any(parser[key] for key in ("flip_prob", "shift", "brightness", "contrast", "saturation", "hue"))


def test_the_server_rotates_and_scales_as_the_sites_do():
    views = parse("train", "serq").get_parsed_content("server#training#prepare_batch").views
    assert views.degrees == 15.0 and views.zoom == 0.1 and views.flips == (0.0, 0.0) and not views.colour.any()
    assert (
        not parse("train", "serq", server_degrees=0.0, server_zoom=0.0)
        .get_parsed_content("server#training#prepare_batch")
        .views.moves
    )


def test_the_published_values_of_the_servers_training():
    """Fang et al. 2025: 100 batches of two, Adam's 1e-4, and λ2 = λ3 = 0.3; μ of the average is ours."""
    parser = parse("train", "serq")
    values = {"steps": 100, "rate": 1e-4, "mu": 0.5, "lambda2": 0.3, "lambda3": 0.3, "separates": True, "pooled": False}
    engine = {key: parser.get_parsed_content(f"server::training::{key}") for key in values}
    assert engine == values and parser["server"]["training"]["_target_"].endswith(".RepresentationTraining")
    loader = {key: parser.get_parsed_content(f"server::loader::{key}") for key in ("steps", "batch_size")}
    assert loader == {"steps": 100, "batch_size": 2}
    assert FedST().server_training() == {
        "overlay": "serq", "settings": {"server_separates": True, "server_steps": 100},
    }  # fmt: skip


SELECTION = r"selection\."
GROUPS = {  # as Tables 5 and 6 name them -> all that they keep at the sites, and nothing else
    "encoder_q": r"encoder\..*\.attention\.query\.(weight|bias)",
    "decoder_q": r"temporal\.query\.(weight|bias)",
    "encoder_decoder_q": r"(temporal\.query|encoder\..*\.attention\.query)\.(weight|bias)",
    "norm": r"encoder\..*layer_norm(_\d)?\.(weight|bias)",
    "key": r"encoder\..*\.attention\.key\.(weight|bias)",
    "value": r"encoder\..*\.attention\.value\.(weight|bias)",
    "key_value": r"encoder\..*\.attention\.(key|value)\.(weight|bias)",
    "head": r"head\..*",
    "decoder": r"(decoder|head)\..*",
}


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_keeps_what_it_names_and_the_selection(group, networks):
    network = networks()
    names, groups = list(network.state_dict()), Bundle(NAME, ["demo"]).groups(network)
    private = set(SharingPolicy.from_groups(names, group, groups).private(names))
    expected = {name for name in names if re.fullmatch(GROUPS[group], name) or name.startswith("selection.")}
    assert private == expected and any(name.startswith("selection.") for name in private)
    assert len(private) > sum(name.startswith("selection.") for name in names)


def test_every_query_of_the_encoder_is_private_and_no_other(networks):
    """One for each block; that of the temporal attention is shared, and a name such as `sequence` hits nothing."""
    network = networks()
    names, groups = list(network.state_dict()), Bundle(NAME, ["demo"]).groups(network)
    private = SharingPolicy.from_groups(names, "encoder_q", groups).private(names)
    layers = [name for name, _ in network.encoder.named_modules() if name.endswith("attention.query")]
    result = {name.rsplit(".", 1)[0].removeprefix("encoder.") for name in private if not name.startswith("selection.")}
    assert result == set(layers) and layers
    for trap in (
        "encoder.sequence.weight",
        "encoder.0.quant.q.weight",
        "temporal.query.weight",
        "decoder.attention.query.w",
    ):
        assert not any(re.search(pattern, trap) for pattern in groups["encoder_q"])


def test_the_network_of_single_frames_has_no_selection_and_the_same_names(networks):
    whole, single = networks().state_dict(), networks("single_frame").state_dict()
    assert single.keys() == {name for name in whole if not name.startswith(("temporal.", "selection."))}
    groups = Bundle(NAME, ["demo", "single_frame"]).groups(networks("single_frame"))
    assert SharingPolicy.from_groups(single, "encoder_q", groups).private(single)
    with pytest.raises(SharingError, match="matches no tensor"):
        SharingPolicy.from_groups(single, "decoder_q", groups)


def test_the_history_of_training_is_that_of_the_paper(facts):
    """At ten frames a second two frames lie between; a mask moves with its frame."""
    parser = parse("train", "demo", **facts, frame_rate=10.0)
    data, rule = parsed(parser, "train#data"), parsed(parser, "frame_rule")
    assert (rule.size, rule.interval) == (4, 0.2) and len(data)
    for rows in data.rows.tolist():
        now = rows[-1]
        assert rows == [now - step if now >= step else now for step in (6, 4, 2, 0)]
    batch = next(iter(parsed(parser, "train#dataloader")))
    image, mask = parsed(parser, "train#prepare_batch")(batch, "cpu")
    assert image.shape == (2, 12, 48, 64) and mask.shape == (2, 48, 64) and mask.dtype == torch.int64


@pytest.mark.parametrize("crop", [True, False])
def test_black_borders_are_cut_off_frames_and_masks(facts, tmp_path, crop):
    """The middle half is lit, and its left half an instrument; without borders that is the left half of the frame."""
    frame, mask = np.zeros((54, 96, 3), np.uint8), np.zeros((54, 96), np.uint8)
    frame[:, 24:72], mask[:, 24:48] = 90, 1
    for folder in ("videos/a", "masks/a"):
        (tmp_path / folder).mkdir(parents=True)
    for number in range(4):
        Image.fromarray(frame).save(tmp_path / f"videos/a/{number}.png")
        Image.fromarray(mask).save(tmp_path / f"masks/a/{200 * number:08d}.png")
    rows = "".join(f"{number}.png,{number / 5}\n" for number in range(4))
    (tmp_path / "videos/a/frames.csv").write_text(f"file,second\n{rows}")
    (tmp_path / "datalist.json").write_text(json.dumps({"training": [{"video": "videos/a", "masks": "masks/a"}]}))
    parser = parse("train", "demo", **{**facts, "dataset_dir": str(tmp_path), "crop": crop})
    batch = next(iter(parsed(parser, "train#dataloader")))
    lit, marked = batch["image"][0, -1, 0].float().mean(dim=0) > 45, batch["labels"][0, 0].float().mean(dim=0) > 0.5
    assert lit.float().mean() == pytest.approx(1.0 if crop else 0.5, abs=0.05)
    assert torch.equal(marked.nonzero().flatten(), torch.arange(0, 32) if crop else torch.arange(16, 32))


def test_a_job_says_for_all_roles_whether_borders_are_cut_off():
    roles = {role: Bundle(NAME, overrides={"crop": role == "supervised"}) for role in ("supervised", "evaluate")}
    (reported,) = role_differences(roles)
    assert reported.startswith("'crop' is True for the role 'supervised' and False for 'evaluate'")
    assert list(role_differences({role: Bundle(NAME, overrides={"crop": True}) for role in roles})) == []


@pytest.fixture(scope="module")
def model(facts):
    """Weights of a stand-alone training of two steps with validation."""
    return HERE.train(**facts)


def test_train_and_evaluate_alone(model, facts):
    (score,) = HERE.test_scores("dice", **facts)
    assert 0 <= score <= 1


def test_inference_writes_masks_of_frames_and_videos_without_fedmed(model, facts, tmp_path):
    inputs, out = tmp_path / "in", tmp_path / "out"
    (inputs / "frames").mkdir(parents=True)
    Image.new("RGB", (90, 70), (120, 40, 30)).save(inputs / "frames/red.png")
    (inputs / "broken.png").write_bytes(b"no picture")
    datalist = json.loads((Path(facts["dataset_dir"]) / "datalist.json").read_text())
    shutil.copy(Path(facts["dataset_dir"]) / datalist["testing"][0]["video"], inputs / "operation.mp4")
    files = str(configs("inference", "demo")).replace(" ", "")
    line = ["--config_file", files, "--bundle_root", BUNDLE, "--dataset_dir", inputs, "--output_dir", out]
    line += ["--model_path", model, "--image_size", "[48,64]", "--indicator", "random"]
    run_without_fedmed(tmp_path, *line)
    with (out / "predictions.csv").open() as file:
        broken, red, *video = csv.DictReader(file)
    assert "broken.png is damaged or no picture" in broken["error"] and not broken["mask"]
    mask = np.asarray(Image.open(out / red["mask"]))
    assert mask.shape == (70, 90) and set(np.unique(mask)) <= {0, 1, 2, 3}
    assert len(video) > 5 and [float(row["second"]) for row in video[:2]] == [0, 0.2]
    assert all((out / row["mask"]).is_file() for row in video) and (out / "overlays/frames/red.jpg").is_file()


def write_film(path, frames):
    """Five frames a second."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=5)
        stream.width, stream.height = 64, 48
        for number in range(frames):
            grey = np.full((48, 64, 3), 5 * number, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(grey)))
        container.mux(stream.encode())
    return path


def held():
    """Bytes of all tensors, and how many pictures there are."""
    gc.collect()
    things = gc.get_objects()
    size = sum(one.numel() * one.element_size() for one in things if type(one) in (torch.Tensor, MetaTensor))
    return size, sum(isinstance(one, Image.Image) for one in things)


def test_inference_holds_no_more_of_a_long_video_than_of_a_short_one(networks, tmp_path):
    """Looked at while the last frames are marked."""
    torch.save(networks().state_dict(), tmp_path / "model.pt")
    result = []
    for frames in (8, 24):
        places = {"dataset_dir": write_film(tmp_path / f"{frames}.mp4", frames), "output_dir": tmp_path / str(frames)}
        places |= {"model_path": tmp_path / "model.pt", "image_size": [48, 64]}
        parser = parse("inference", "demo", **{key: str(v) if isinstance(v, Path) else v for key, v in places.items()})
        parsed(parser, "weights")
        evaluator, seen = parsed(parser, "evaluator"), []
        evaluator.add_event_handler(
            Events.ITERATION_COMPLETED(once=frames // 2), lambda _, seen=seen: seen.append(held())
        )
        evaluator.run()
        assert len(list((tmp_path / f"{frames}/masks").rglob("*.png"))) == frames
        result += seen
        del parser, evaluator
    assert len(result) == 2 and result[0] == result[1]


def test_a_model_of_another_network_is_one_clear_error(model):
    with pytest.raises(ValueError, match="use the overlays"):
        load_model(parsed(parse("train", "demo", "single_frame"), "network"), model)
