"""Small CT-like files for the tests of the data pipeline."""

import json

import nibabel as nib
import numpy as np
import pytest
from PIL import Image

SPACING = np.diag([-2.0, -2.0, 5.0, 1.0])  # as a scanner writes it: x and y point right and back


@pytest.fixture
def save_nifti(tmp_path):
    """Return a function that saves an array below the test's folder and gives the path."""

    def save(name, array, affine=SPACING):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        nib.save(nib.Nifti1Image(array, affine), path)
        return path

    return save


@pytest.fixture
def scan():
    """Return a function that makes an image in HU and its mask; ``lesion=False`` leaves the mask empty."""

    def make(seed=0, size=(24, 20, 10), lesion=True):
        rng = np.random.default_rng(seed)
        image = rng.normal(-800, 40, size).astype(np.int16)
        mask = np.zeros(size, np.uint8)
        if lesion:
            mask[6:12, 6:12, 3:7] = 1
            image[mask > 0] += 500
        return image, mask

    return make


@pytest.fixture
def site(tmp_path, save_nifti, scan):
    """Return a function that makes a site with a datalist and gives (data_root, datalist)."""

    def make(cases=3, lesion=True):
        entries = []
        for number in range(cases):
            image, mask = scan(seed=number, lesion=lesion)
            save_nifti(f"images/c{number}.nii.gz", image)
            save_nifti(f"labels/c{number}.nii.gz", mask)
            entries.append({"image": f"images/c{number}.nii.gz", "label": f"labels/c{number}.nii.gz", "patient": "p"})
        lists = {"training": entries, "validation": entries[:1], "unlabeled": entries}
        (tmp_path / "datalist.json").write_text(json.dumps(lists))
        return tmp_path, tmp_path / "datalist.json"

    return make


@pytest.fixture
def classified(tmp_path):
    """Return a function that makes a site of labelled pictures and gives (data_root, datalist); lists by keyword."""

    def make(**lists):
        content = {}
        for key, labels in lists.items():
            content[key] = []
            for number, label in enumerate(labels):
                name = f"images/{key}{number}.png"
                (tmp_path / "images").mkdir(exist_ok=True)
                Image.fromarray(np.full((6, 4), len(name) + number, np.uint8)).save(tmp_path / name)
                content[key].append({"image": name} | ({} if label is None else {"label": label}))
        (tmp_path / "datalist.json").write_text(json.dumps(content))
        return tmp_path, tmp_path / "datalist.json"

    return make
