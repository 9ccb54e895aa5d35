import json
import re
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.bundle import ConfigWorkflow, verify_net_in_out
from monai.data import load_decathlon_datalist

from fedmed.data.datalist import load_datalist
from fedmed.errors import DataError
from fedmed_demo import demo_site

OVERLAYS = ("segresnet", "demo", "cpu", "lidc")
WITHOUT_SAVING = {"train#handlers": [], "validate#handlers": [], "evaluate#handlers": []}


def workflow(configs, names, kind, **values):
    made = ConfigWorkflow(configs(*names), workflow_type=kind, logging_file=False, **values)
    made.initialize()
    return made


# --- a complete bundle


@pytest.mark.parametrize(
    ("names", "site"),
    [(("train",), "ct_north"), (("train", "demo", "unlabelled", "consistency"), "ct_east")],
)
def test_training_properties(configs, site_facts, names, site):
    values = {**site_facts(site), "patch_size": [16, 16, 16]}
    assert workflow(configs, names, "train", **values).check_properties() == []


def test_inference_properties(configs, site_facts):
    facts = site_facts()
    facts["dataset_dir"] += "/images"
    made = workflow(configs, ["inference"], "inference", **facts)
    assert made.check_properties() == []
    assert made.channel_def == {"0": "background", "1": "covid_region"}


@pytest.mark.slow
def test_network_in_and_out(bundle, configs):
    """The paper's patch of 160 x 160 x 32 goes through AHNet."""
    meta = str(bundle / "configs" / "metadata.json")
    for name in ("train", "inference"):
        verify_net_in_out(net_id="network_def", meta_file=meta, config_file=configs(name), device="cpu")


def test_small_network_in_and_out(bundle, configs, tmp_path):
    metadata = json.loads((bundle / "configs" / "metadata.json").read_text())
    for side in ("inputs", "outputs"):
        for tensor in metadata["network_data_format"][side].values():
            tensor["spatial_shape"] = [64, 64, 16]
    (tmp_path / "metadata.json").write_text(json.dumps(metadata))
    verify_net_in_out(
        net_id="network_def",
        meta_file=str(tmp_path / "metadata.json"),
        config_file=configs("train", "demo"),
        device="cpu",
    )


def test_the_settings_of_the_paper(parser):
    config = parser("train")
    expected = {
        "pixdim": [0.8, 0.8, 5.0],
        "hu_range": [-1000, 0],
        "patch_size": [160, 160, 32],
        "batch_size": 4,
        "learning_rate": 1e-4,
        "epoch_length": 20,
        "window_size": [224, 224, 32],
        "threshold": 0.5,
    }
    assert {key: config[key] for key in expected} == expected
    assert config["network_def#_target_"] == "AHNet" and config["optimizer#_target_"] == "torch.optim.Adam"
    assert config["unsupervised_learning_rate"] == 5e-6
    assert parser("train", "unlabelled", "consistency").get_parsed_content("learning_rate") == 5e-6
    assert parser("train", "demo", "unlabelled", "consistency")["confidence"] == 0.9


# --- sharing groups


@pytest.mark.parametrize("names", [("train",), *(("train", overlay) for overlay in OVERLAYS)])
def test_sharing_groups_fit_the_real_names(parser, names):
    network = parser(*names).get_parsed_content("network_def")
    tensors = set(network.state_dict())
    groups = parser("federation")["sharing"][type(network).__name__]
    kept = {}
    for group, patterns in groups.items():
        kept[group] = {name for name in tensors if any(re.search(pattern, name) for pattern in patterns)}
        assert all(any(re.search(pattern, name) for name in tensors) for pattern in patterns)
    assert list(groups) == ["full", "final", "head", "block_10", "block_6"] and kept["full"] == set()
    assert kept["head"] == kept["final"]
    assert kept["final"] < kept["block_10"] < kept["block_6"] < tensors
    layers = ("layer1", "layer2", "layer3", "layer4")
    encoder = {"AHNet": ("conv1", "bn0", *layers), "SegResNet": ("convInit", "down_layers")}
    assert {name.split(".")[0] for name in tensors - kept["block_6"]} == set(encoder[type(network).__name__])
    last = {"AHNet": {"up3", "dense4"}, "SegResNet": {"up_samples.2", "up_layers.2"}}[type(network).__name__]
    depth = 2 if type(network).__name__ == "SegResNet" else 1
    assert {".".join(name.split(".")[:depth]) for name in kept["block_10"] - kept["final"]} == last
    if type(network).__name__ == "SegResNet":
        assert len(network.up_layers) == 3


def test_every_overridable_setting_exists_and_is_plain(parser):
    config = parser("train", "unlabelled", "consistency", "agreement")
    for key in parser("federation")["overridable"]:
        value = config.get_parsed_content(key)
        values = value if isinstance(value, list) else [value]
        assert all(isinstance(item, (int, float, bool, str)) for item in values), key
        assert not key.endswith(("_dir", "_root", "_path", "_checkpoint")) and key not in ("device", "datalist")


# --- preparation


def test_intensity_mapping(parser, site_facts):
    steps = parser("train", **site_facts()).get_parsed_content("prepare")
    scale = next(step for step in steps if type(step).__name__ == "ScaleIntensityRanged")
    values = scale({"image": torch.tensor([-1200.0, -1000, -600, -50, 0, 300])})["image"]
    assert values.tolist() == pytest.approx([0, 0, 0.4, 0.95, 1, 1])


def test_small_volumes_are_padded_with_air(parser, tmp_path):
    image, mask = np.full((10, 12, 6), -300, np.int16), np.ones((10, 12, 6), np.uint8)
    for name, array in (("image", image), ("mask", mask)):
        nib.save(nib.Nifti1Image(array, np.diag([0.8, 0.8, 5, 1])), tmp_path / f"{name}.nii.gz")
    entry = {"image": "image.nii.gz", "label": "mask.nii.gz"}
    (tmp_path / "datalist.json").write_text(json.dumps({"training": [entry]}))
    values = {"dataset_dir": str(tmp_path), "cache_dir": None, "patch_size": [16, 16, 8]}
    case = parser("train", **values).get_parsed_content("train#dataset").prepared(0)
    assert case["image"].shape == case["label"].shape == (1, 16, 16, 8)
    inside = case["label"] == 1
    assert int(inside.sum()) == 10 * 12 * 6
    assert torch.allclose(case["image"][inside], torch.tensor(0.7)) and not case["image"][~inside].any()


def test_resampling_and_orientation(parser, tmp_path):
    """2 x 2 x 2.5 mm in LPS becomes 4 x 4 x 5 mm in RAS."""
    image = np.zeros((20, 20, 16), np.int16)
    image[:10] = -1000  # the first voxels lie on the left of the patient
    nib.save(nib.Nifti1Image(image, np.diag([-2, -2, 2.5, 1])), tmp_path / "image.nii.gz")
    (tmp_path / "datalist.json").write_text(json.dumps({"unlabeled": [{"image": "image.nii.gz"}]}))
    values = {"dataset_dir": str(tmp_path), "cache_dir": None, "patch_size": [4, 4, 4], "pixdim": [4.0, 4.0, 5.0]}
    dataset = parser("train", "unlabelled", "consistency", **values).get_parsed_content("train#dataset")
    case = dataset.prepared(0)["image"]
    assert case.shape[1] in (10, 11) and case.shape[3] in (8, 9)
    assert case[0, 0].mean() > 0.9 and case[0, -1].mean() < 0.1


def test_rotation_stays_in_the_axial_plane(parser):
    values = {"rotation_prob": 1.0, "flip_prob": 0.0, "intensity_shift_prob": 0.0, "patch_size": [16, 16, 4]}
    rotate = next(s for s in parser("train", **values).get_parsed_content("augment") if "Rotate" in type(s).__name__)
    volume = torch.zeros(1, 16, 16, 4)
    volume[0, 2:14, 5:9, 1] = 1
    turned = rotate.set_random_state(1)({"image": volume, "label": volume.clone()})
    assert turned["image"][..., 1].sum() > 30 and not turned["image"][..., [0, 2, 3]].any()
    assert set(torch.unique(turned["label"]).tolist()) <= {0.0, 1.0} and not torch.equal(turned["label"], volume)


# --- training, evaluation, inference


def test_both_loaders_of_a_site_with_both_kinds(parser, site_facts, tmp_path):
    facts = site_facts()
    labelled = load_decathlon_datalist(f"{facts['dataset_dir']}/datalist.json", data_list_key="training")
    root = facts["dataset_dir"]
    entries = [{key: str(Path(case[key]).relative_to(root)) for key in ("image", "label")} for case in labelled]
    (tmp_path / "both.json").write_text(json.dumps({"training": entries[:1], "unlabeled": entries[1:]}))
    both = parser("train", "demo", "unlabelled", "consistency", **facts, datalist=str(tmp_path / "both.json"))
    assert set(next(iter(both.get_parsed_content("labeled#dataloader")))) == {"image", "label"}
    assert set(next(iter(both.get_parsed_content("train#dataloader")))) == {"image"}
    trainer = both.get_parsed_content("train#trainer")
    assert trainer.labeled_loader is not None


def test_an_unlabelled_site_has_no_labelled_loader(parser, site_facts):
    alone = parser("train", "demo", "unlabelled", "consistency", **site_facts("ct_east"), **WITHOUT_SAVING)
    before = [p.clone() for p in alone.get_parsed_content("network").parameters()]
    trainer = alone.get_parsed_content("train#trainer")
    assert trainer.labeled_loader is None
    trainer.run()
    after = list(trainer.network.parameters())
    assert [p.shape for p in before] == [p.shape for p in after] and all(torch.isfinite(p).all() for p in after)


def test_a_supervised_site_without_masks_is_refused(parser, site_facts):
    config = parser("train", "demo", **site_facts("ct_east"))
    with pytest.raises(RuntimeError) as caught:
        config.get_parsed_content("train#trainer")
    causes = [caught.value]
    while causes[-1].__cause__:
        causes.append(causes[-1].__cause__)
    assert isinstance(causes[-1], DataError) and "the list 'training' is missing" in str(causes[-1])


def test_train_evaluate_infer(configs, site_facts, tmp_path, bundle):
    """The three ways to run the bundle, without FedMed's federation, on the same weights."""
    facts = {**site_facts(), "ckpt_dir": str(tmp_path / "models"), "output_dir": str(tmp_path / "eval")}
    training = workflow(configs, ["train", "demo"], "train", **facts)
    assert training.check_properties() == []
    training.run()
    weights = tmp_path / "models" / "model.pt"
    assert set(torch.load(weights, weights_only=True)) == set(training.network_def.state_dict())

    evaluation = workflow(configs, ["train", "demo", "evaluate"], "train", **{**facts, "weights#path": str(weights)})
    evaluation.run()
    assert (tmp_path / "eval" / "metrics.csv").is_file()
    score = evaluation.parser.get_parsed_content("evaluate#evaluator").state.metrics["test_dice"]
    assert 0 <= score <= 1

    case = load_datalist(facts["dataset_dir"], f"{facts['dataset_dir']}/datalist.json", "testing")[0]["image"]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / Path(case).name).write_bytes(Path(case).read_bytes())
    values = {**facts, "dataset_dir": str(tmp_path / "in"), "model_path": str(weights)}
    # 0.3: after four steps few voxels are above one half, and an empty mask would prove little.
    inference = workflow(
        configs, ["inference", "demo"], "inference", **{**values, **tiny_inference(), "threshold": 0.3}
    )
    inference.run()
    saved = [nib.load(path) for path in (tmp_path / "eval").glob("*_covid.nii.gz")]
    source = nib.load(case)
    assert len(saved) == 1 and saved[0].shape == source.shape and np.allclose(saved[0].affine, source.affine)
    assert saved[0].get_data_dtype() == np.uint8 and set(np.unique(saved[0].dataobj)) <= {0, 1}


def tiny_inference():
    return {"pixdim": [6.0, 6.0, 16.0], "window_size": [48, 48, 16], "device": "cpu"}


def test_inference_without_weights_says_so(configs, site_facts, tmp_path):
    facts = {**site_facts(), "model_path": str(tmp_path / "model.pt")}
    facts["dataset_dir"] += "/images"
    made = workflow(configs, ["inference", "demo"], "inference", **facts)
    with pytest.raises(RuntimeError) as caught:
        made.run()
    assert "model.pt does not exist; train the bundle first" in str(caught.value.__cause__)


@pytest.mark.slow
def test_command_line_from_the_bundle_and_from_elsewhere(bundle, tmp_path, fedmed_home):
    site = demo_site("chest_ct_tiny", "ct_north", fedmed_home)
    values = ["--dataset_dir", str(site), "--ckpt_dir", str(tmp_path), "--epoch_length", "1", "--max_epochs", "1"]
    values += ["--val_interval", "1", "--patch_size", "[16,16,16]", "--window_size", "[48,48,16]", "--device", "cpu"]
    values += ["--pixdim", "[6.0,6.0,16.0]"]
    for folder, root in ((bundle, "."), (bundle.parents[1], "bundles/covid_ct_segmentation")):
        names = f"['{root}/configs/train.yaml','{root}/configs/demo.yaml']"
        command = [sys.executable, "-m", "monai.bundle", "run", "--config_file", names, "--bundle_root", root, *values]
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr[-2000:]
        (tmp_path / "model.pt").unlink()
