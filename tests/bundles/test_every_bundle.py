"""Properties of each bundle: its metadata and files, its network, and the settings that inference repeats."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
import torch
from monai.bundle import verify_metadata, verify_net_in_out

from fedmed.export.verify import SCHEMA
from tests.bundles.one_bundle import BUNDLES, OneBundle

CT, XRAY, INSTRUMENTS = "covid_ct_segmentation", "cxr_classification", "instrument_segmentation"
PHASES, TOOLS = "surgical_phase_classification", "surgical_tool_classification"
PLAIN = {INSTRUMENTS: {"indicator": "random"}}
NETWORKS = {
    XRAY: ["train", "train demo", "train small", "inference"],
    INSTRUMENTS: ["train demo", "train demo single_frame"],
    PHASES: ["train", "train demo groupnorm", "train cpu", "inference demo"],
    TOOLS: ["train demo_large", "train resnet", "train cpu", "inference"],
}
SAME = {  # settings that inference repeats, because it stands alone -> overlays of both
    CT: ("pixdim hu_range window_size window_overlap window_batch threshold network_def inferer", [""]),
    XRAY: ("classes image_size encoder_layers encoder_widths stem_kernel stem_stride stem_pool encoder network_def "
           "heat_map_layer", [""]),
    INSTRUMENTS: ("classes image_size frames frame_interval indicator indicator_width network_def",
                  ["", "demo", "demo single_frame", "no_selection", "prompt_only", "no_pre_norm"]),
    PHASES: ("classes image_size frame_rate groups network_def", ["", "demo", "groupnorm", "demo groupnorm", "cpu"]),
    TOOLS: ("classes image_size network_def", ["", "demo", "demo_large", "resnet", "resnet_gn", "vgg13"]),
}  # fmt: skip
OWN_PACKAGES = {CT: "covid_ct", XRAY: "cxr_classifier"}


@pytest.mark.parametrize("name", sorted(path.name for path in BUNDLES.iterdir() if path.is_dir()))
def test_metadata_and_files(name):
    bundle = OneBundle(name)
    verify_metadata(meta_file=str(bundle.metadata), filepath=str(SCHEMA))
    metadata, parser = json.loads(bundle.metadata.read_text()), bundle.parse("train")
    assert metadata["version"] in metadata["changelog"] and metadata["pytorch_version"] in torch.__version__
    pins = (BUNDLES.parent / "requirements.txt").read_text()
    assert all(f"{package}=={pin}" in pins for package, pin in metadata["required_packages_version"].items())
    for file in ("LICENSE", "docs/README.md", "configs/logging.conf", "configs/inference.yaml"):
        assert (bundle.root / file).is_file()
    formats = metadata["network_data_format"]
    channels, image = list(formats["outputs"]["pred"]["channel_def"].values()), formats["inputs"]["image"]
    if name == CT:
        assert channels == ["background", "covid_region"]
        return
    assert channels == ["background"] * (name == INSTRUMENTS) + parser["classes"]
    size = parser["image_size"]
    assert image["spatial_shape"] == (size if isinstance(size, list) else [size, size])
    assert name != INSTRUMENTS or image["num_channels"] == 3 * parser["frames"]


def test_the_schema_finds_what_is_missing():
    metadata = json.loads(OneBundle(CT).metadata.read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({key: metadata[key] for key in metadata if key != "network_data_format"},
                            json.loads(SCHEMA.read_text()))  # fmt: skip


@pytest.mark.parametrize(("name", "configs"), [(name, configs) for name, all in NETWORKS.items() for configs in all])
def test_network_in_and_out(name, configs, tmp_path):
    bundle, meta, size = OneBundle(name), tmp_path / "metadata.json", {}
    content = json.loads(bundle.metadata.read_text())
    if name == INSTRUMENTS:  # its size takes two seconds, and no layer is made for it
        size = {"image_size": [96, 128]}
        for side in ("inputs", "outputs"):
            for tensor in content["network_data_format"][side].values():
                tensor["spatial_shape"] = size["image_size"]
    meta.write_text(json.dumps(content))
    verify_net_in_out(
        net_id="network_def", meta_file=str(meta), config_file=bundle.configs(*configs.split()),
        device="cpu", bundle_root=str(bundle.root), **PLAIN.get(name, {}), **size,
    )  # fmt: skip


@pytest.mark.parametrize(("name", "overlays"), [(name, one) for name, (_, all) in SAME.items() for one in all])
def test_inference_repeats_the_settings_of_training(name, overlays):
    bundle = OneBundle(name, **PLAIN.get(name, {}))
    training, inference = (bundle.parse(config, *overlays.split()) for config in ("train", "inference"))
    assert [key for key in SAME[name][0].split() if training[key] != inference[key]] == []


@pytest.mark.parametrize("name", OWN_PACKAGES)
def test_inference_names_nothing_of_fedmed(name):
    bundle = OneBundle(name)
    texts = [Path(bundle.configs("inference")[0]), *sorted((bundle.root / OWN_PACKAGES[name]).glob("*.py"))]
    assert not [path for path in texts if re.search(r"import fedmed|from fedmed|: fedmed", path.read_text())]
