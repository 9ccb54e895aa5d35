"""Studies and small bundles of each kind that tests serve in MONAI Label."""

import json
import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import torch
import yaml
from monai.bundle import ConfigParser
from monai.networks.blocks import Convolution
from monai.networks.nets import resnet10
from PIL import Image

from fedmed.bundles.digests import read_digests, write_digests

TOOLS, INBODY, CT = "endoscopic_tool_segmentation", "endoscopic_inbody_classification", "covid_ct_segmentation"
STUDIES = {"oblique.nii.gz", "frame.png", "photo.jpg", "corrupt.nii.gz", "empty.nii"}
LOADING = [{"_target_": "LoadImaged", "keys": "image"}, {"_target_": "EnsureChannelFirstd", "keys": "image"}]


def affine(angle: float = 0.3) -> np.ndarray:
    """Towards left and posterior, turned about two axes, voxels of 3.1 x 3.6 x 7.5 mm."""
    c, s = np.cos(angle), np.sin(angle)
    turn = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]) @ np.array([[1, 0, 0], [0, c, -s], [0, s, c]])
    matrix = np.eye(4)
    matrix[:3, :3] = turn @ np.diag([-3.1, -3.6, 7.5])
    matrix[:3, 3] = [61.5, -17.25, 12.0]
    return matrix


def write_studies(folder: Path) -> Path:
    """Write one oblique scan, pictures with a red tool in one corner, and files other than images."""
    rng = np.random.default_rng(7)
    nib.save(nib.Nifti1Image(rng.normal(-600, 250, (52, 45, 13)).astype(np.int16), affine()), folder / "oblique.nii.gz")
    picture = rng.integers(0, 60, (48, 90, 3), dtype=np.uint8)
    picture[4:16, 50:84, 0] = 250
    Image.fromarray(picture).save(folder / "frame.png")
    Image.fromarray(picture).save(folder / "photo.jpg", quality=95)
    (folder / "corrupt.nii.gz").write_bytes(b"this was a scan once")
    (folder / "empty.nii").write_bytes(b"")
    return folder


def ct_bundle(exported: Path, studies: Path, root: Path) -> Path:
    """An exported bundle with a threshold that splits the scan, and files beside its weights that must not be used."""
    shutil.copytree(exported, root)
    config = root / "configs" / "inference.yaml"
    parser = ConfigParser(yaml.safe_load(config.read_text()))
    parser["bundle_root"] = str(root)
    network = parser.get_parsed_content("network_def")
    weights = torch.load(root / "models" / "model.pt", weights_only=True)
    network.load_state_dict(weights)
    image = parser.get_parsed_content("preprocessing")({"image": str(studies / "oblique.nii.gz")})["image"]
    with torch.no_grad():
        probability = parser.get_parsed_content("inferer")(image[None], network.eval())[0, 1]
    values = yaml.safe_load(config.read_text())
    config.write_text(yaml.safe_dump({**values, "threshold": float(probability.median())}, sort_keys=False))
    torch.save({name: torch.zeros_like(value) for name, value in weights.items()}, root / "models" / "other.pt")
    torch.jit.script(torch.nn.Identity()).save(root / "models" / "model.ts")
    write_digests(root, read_digests(root)["made_of"])
    return root


def picture_bundle(root: Path, network: torch.nn.Module, classes: list[str], **parts) -> Path:
    """Write a small 2D bundle, as those of MONAI's model zoo are made."""
    (root / "configs").mkdir(parents=True)
    (root / "models").mkdir()
    shape = {"spatial_shape": [64, 32], "num_channels": 3}
    output = {"spatial_shape": [64, 32], "channel_def": {str(i): name for i, name in enumerate(classes)}}
    data = {"inputs": {"image": shape}, "outputs": {"pred": output}}
    (root / "configs" / "metadata.json").write_text(json.dumps({"version": "0.1.0", "network_data_format": data}))
    steps = {key: {"_target_": "Compose", "transforms": parts.pop(key)} for key in ("preprocessing", "postprocessing")}
    device = "$torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')"
    config = {"bundle_root": ".", "device": device, "inferer": {"_target_": "SimpleInferer"}, **parts, **steps}
    (root / "configs" / "inference.json").write_text(json.dumps(config))
    torch.save(network.state_dict(), root / "models" / "model.pt")
    return root


def tool_bundle(root: Path) -> Path:
    """Marks what is red; resizes before and back after, as endoscopic_tool_segmentation does."""
    settings = {"spatial_dims": 2, "in_channels": 3, "out_channels": 2, "kernel_size": 1, "conv_only": True}
    network = Convolution(**settings)
    with torch.no_grad():
        network.conv.weight.zero_()
        network.conv.weight[1, 0] = 1.0
        network.conv.bias.copy_(torch.tensor([0.5, 0.0]))
    before = [
        *LOADING,
        {"_target_": "Resized", "keys": "image", "spatial_size": [128, 64]},
        {"_target_": "ScaleIntensityd", "keys": "image"},
    ]
    back = {"keys": "pred", "transform": "@preprocessing", "orig_keys": "image", "nearest_interp": False}
    after = [
        {"_target_": "Invertd", **back},
        {"_target_": "AsDiscreted", "keys": "pred", "argmax": True, "to_onehot": 2},
        {"_target_": "Lambdad", "keys": "pred", "func": "$lambda x: x[1:]"},
        {"_target_": "SaveImaged", "keys": "pred", "output_dir": "/nowhere"},
    ]
    parts = {"network_def": {"_target_": "monai.networks.blocks.Convolution", **settings}}
    return picture_bundle(root, network, ["background", "tools"], preprocessing=before, postprocessing=after, **parts)


def class_bundle(root: Path) -> Path:
    """Says whether a picture shows the inside of a body: a ResNet with random weights."""
    torch.manual_seed(3)
    settings = {"spatial_dims": 2, "n_input_channels": 3, "num_classes": 2, "widen_factor": 0.125, "feed_forward": True}
    before = [
        *LOADING,
        {"_target_": "Resized", "keys": "image", "spatial_size": [64, 32]},
        {"_target_": "NormalizeIntensityd", "keys": "image", "channel_wise": True},
        {"_target_": "EnsureTyped", "keys": "image"},
    ]
    after = [{"_target_": "Activationsd", "keys": "pred", "softmax": True}]
    parts = {"network_def": {"_target_": "monai.networks.nets.resnet10", **settings}}
    network = resnet10(**settings)
    return picture_bundle(root, network, ["In body", "background"], preprocessing=before, postprocessing=after, **parts)
