"""Bundles with weights that nobody trained, and hospitals' images."""

import json
import shutil
from functools import cache

import numpy as np
import pytest
import torch
from monai.bundle import ConfigParser
from PIL import Image

from fedmed.bundles.bundle_parser import merged
from fedmed.bundles.digests import write_digests
from fedmed.bundles.find import SHIPPED_BUNDLES
from fedmed.export.configs import to_yaml
from fedmed.export.folder import copy_parts

SMALL = {
    "covid_ct_segmentation": (["demo"], {"window_overlap": [0.0, 0.0, 0.0]}),
    "cxr_classification": (["small"], {"image_size": 32}),
    "surgical_phase_classification": (["demo"], {"image_size": [24, 32]}),
}


@pytest.fixture(autouse=True)
def few_figures(request, monkeypatch):
    """Leave figures out of pages, most of whose time they take, but where a test asks for ``charts``."""
    if "charts" not in request.fixturenames:
        monkeypatch.setattr("fedmed.adapting.page._figures", lambda adapted, references: [])


@pytest.fixture(scope="session")
def made_bundles(tmp_path_factory):
    """Return a function: name of an installed bundle -> a folder as an export makes it. Do not write to it."""

    @cache
    def made(name):
        root, (overlays, values) = tmp_path_factory.mktemp("made") / name, SMALL[name]
        copy_parts(SHIPPED_BUNDLES / name, root)
        files = [SHIPPED_BUNDLES / name / "configs" / f"{overlay}.yaml" for overlay in overlays]
        config = merged(SHIPPED_BUNDLES / name / "configs" / "inference.yaml", files, values)
        (root / "configs" / "inference.yaml").write_text(to_yaml(config, "Made for a test."))
        torch.manual_seed(0)
        parser = ConfigParser(dict(config, bundle_root=str(SHIPPED_BUNDLES / name)))
        parser.get_parsed_content("initialize")
        (root / "models").mkdir()
        torch.save(parser.get_parsed_content("network_def").state_dict(), root / "models" / "model.pt")
        return root

    return made


@pytest.fixture
def bundle(tmp_path, made_bundles):
    """Return a function: name of an installed bundle, references that it carries -> a folder as an export makes it."""

    def bundle(name="cxr_classification", references=None):
        root = shutil.copytree(made_bundles(name), tmp_path / "given" / name)
        path = root / "configs" / "metadata.json"
        metadata = json.loads(path.read_text())
        metadata["federation"] = {"references": references} if references else {}
        path.write_text(json.dumps(metadata))
        write_digests(root, {"bundle": name, "overlays": SMALL[name][0]})
        return root

    return bundle


@pytest.fixture
def images(tmp_path):
    """Return a function: how many, how bright -> a folder of pictures, grey or in one tint."""

    def images(count=24, low=40, high=200, tint=(1, 1, 1), name="own"):
        folder = tmp_path / name
        folder.mkdir()
        random = np.random.default_rng(0)
        for number in range(count):
            coarse = random.uniform(low, high, (6, 6)).astype(np.uint8)
            grey = np.asarray(Image.fromarray(coarse).resize((40, 40), Image.Resampling.BILINEAR), dtype=float)
            coloured = np.stack([grey * factor for factor in tint], axis=-1).clip(0, 255).astype(np.uint8)
            Image.fromarray(coloured if tint != (1, 1, 1) else coloured[..., 0]).save(folder / f"{number:03d}.png")
        return folder

    return images
