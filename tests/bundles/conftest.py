"""The bundles for COVID CT and for phases of operations on the tiny demo sites."""

import os
import sys
from pathlib import Path

import pytest
from monai.bundle import ConfigParser

from fedmed.bundles.bundle import Bundle
from fedmed_demo import demo_site

BUNDLE = Path(__file__).resolve().parents[2] / "bundles" / "covid_ct_segmentation"
sys.path += [str(folder) for folder in sorted(BUNDLE.parent.iterdir())]  # whose packages tests import
TINY = {"patch_size": [16, 16, 16], "window_size": [48, 48, 16], "batch_size": 2, "epoch_length": 2, "max_epochs": 1}
# Sizes for the tiny sites, whose voxels are 5 to 6 mm wide.
TINY |= {"pixdim": [6.0, 6.0, 16.0], "val_interval": 1, "device": "cpu"}


@pytest.fixture(scope="session")
def bundle():
    """The bundle's folder."""
    return BUNDLE


@pytest.fixture(scope="session")
def configs(bundle):
    """Return a function: names of configs -> their paths."""
    return lambda *names: [str(bundle / "configs" / f"{name}.yaml") for name in names]


@pytest.fixture(scope="module")
def facts(request, fedmed_home, tmp_path_factory):
    """Places of a tiny site with videos of tools, and the module's ``SMALL``, with which a step takes little time."""
    out, root = tmp_path_factory.mktemp("out"), demo_site("lap_tools_tiny", "lap_cho1", fedmed_home)
    places = {"ckpt_dir": str(out / "models"), "output_dir": str(out / "eval"), "cache_dir": str(out / "cache")}
    data = {"bundle_root": str(request.module.BUNDLE), "dataset_dir": str(root), "device": "cpu"}
    return {**data, **places, **request.module.SMALL}


@pytest.fixture(scope="session")
def site_facts(bundle, fedmed_home):
    """Return a function: tiny demo site -> its data settings."""

    def facts(site="ct_north"):
        root = demo_site("chest_ct_tiny", site, fedmed_home)
        cache = os.path.join(fedmed_home, "cache")
        return {"bundle_root": str(bundle), "dataset_dir": str(root), "cache_dir": cache, **TINY}

    return facts


@pytest.fixture
def parser(configs):
    """Return a function that reads configs and sets values."""

    def parse(*names, **values):
        result = ConfigParser()
        result.read_config(configs(*names))
        result.update(values)
        return result

    return parse


@pytest.fixture
def build_phases(fedmed_home, tmp_path):
    """Return a function: configuration for phases, with some overlays, at a tiny hospital."""

    def build(*overlays, site="lap_bay", **values):
        root = demo_site("lap_phases_tiny", site, fedmed_home)
        facts = {"dataset_dir": str(root), "cache_dir": str(tmp_path / "cache"), "device": "cpu", "max_epochs": 1}
        parser = Bundle("surgical_phase_classification", ["demo", *overlays]).parser()
        for name, value in {**facts, "image_size": [24, 32], "frame_rate": 2.0, **values}.items():
            parser[name] = value
        return parser

    return build
