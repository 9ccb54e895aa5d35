"""The COVID CT bundle on the tiny demo sites."""

import os
import sys
from pathlib import Path

import pytest
from monai.bundle import ConfigParser

from fedmed_demo import demo_site

BUNDLE = Path(__file__).resolve().parents[2] / "bundles" / "covid_ct_segmentation"
TINY = {"patch_size": [16, 16, 16], "window_size": [48, 48, 16], "batch_size": 2, "epoch_length": 2, "max_epochs": 1}
# Sizes for the tiny sites, whose voxels are 5 to 6 mm wide.
TINY |= {"pixdim": [6.0, 6.0, 16.0], "val_interval": 1, "device": "cpu"}


@pytest.fixture(scope="session")
def bundle():
    """The bundle's folder; its package is importable."""
    sys.path.insert(0, str(BUNDLE))
    yield BUNDLE
    sys.path.remove(str(BUNDLE))


@pytest.fixture(scope="session")
def configs(bundle):
    """Return a function: names of configs -> their paths."""
    return lambda *names: [str(bundle / "configs" / f"{name}.yaml") for name in names]


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
