"""A small site of NIfTI files, and readers that save labels as MONAI Label does."""

import json
from pathlib import Path

import pytest
import yaml

from tests.labelling.scans import AFFINE, entry, ones, save_nifti


@pytest.fixture
def make_site(tmp_path):
    """Return a function that writes a site and gives its YAML; by default three unlabelled scans and a testing one."""

    def make(root: Path = tmp_path / "site", **lists):
        lists = lists or {"testing": [entry("t", label=True)], "unlabeled": [entry(name) for name in "abc"]}
        for name in {Path(e[key]) for entries in lists.values() for e in entries or [] for key in e if key == "image"}:
            save_nifti(root / name)
        for label in {e["label"] for entries in lists.values() for e in entries or [] if "label" in e}:
            save_nifti(root / label, ones())
        (root / "datalist.json").write_text(json.dumps(lists))
        path = root.parent / "hospital_b.yaml"
        path.write_text(yaml.safe_dump({"site": "hospital_b", "data_root": str(root), "device": "cuda", "amp": True}))
        return path

    return make


@pytest.fixture
def submit():
    """Return a function that saves a final label in a work folder."""

    def save(folder: Path, name: str, values=None, affine=AFFINE, ending=".nii.gz") -> Path:
        return save_nifti(folder / "labels" / "final" / f"{name}{ending}", ones() if values is None else values, affine)

    return save


@pytest.fixture
def lists_of():
    """Return a function: site's YAML -> list -> image names; the same name in two lists shows."""

    def read(path: Path):
        root = Path(yaml.safe_load(path.read_text())["data_root"])
        content = json.loads((root / "datalist.json").read_text())
        return {key: "".join(Path(e["image"]).name[0] for e in entries) for key, entries in content.items()}

    return read
