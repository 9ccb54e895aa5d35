"""Hospitals with CT volumes of a class each: phantoms with and without a nodule."""

import json

import nibabel as nib
import numpy as np
import yaml

COUNTS = {"training": 6, "validation": 4, "testing": 4}


def phantom(path, ill, rng):
    """A chest in HU, 3 x 3 x 5 mm, with or without a nodule."""
    places = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in (40, 36, 24)), indexing="ij"))
    body = (places[:2] ** 2).sum(0) < 0.8
    lung = ((np.abs(places[0]) - 0.4) / 0.3) ** 2 + (places[1] / 0.6) ** 2 < 1
    image = np.where(lung, -850, np.where(body, 40, -1000)) + rng.normal(0, 15, body.shape)
    if ill:
        image[((places - np.array([0.4, 0.1, 0]).reshape(3, 1, 1, 1)) ** 2).sum(0) < 0.03] = 30
    nib.save(nib.Nifti1Image(image.astype(np.int16), np.diag([3.0, 3.0, 5.0, 1])), path)


def hospital(folder, seed):
    """A site's YAML, beside a folder with its images and their list."""
    rng, lists = np.random.default_rng(seed), {}
    (folder / "images").mkdir(parents=True)
    for key, count in COUNTS.items():
        for place in range(count):
            name = f"images/{key}_{place}.nii.gz"
            phantom(folder / name, place % 2, rng)
            entry = {"image": name, "label": ("clear", "nodule")[place % 2], "patient": f"{key}{place}"}
            lists.setdefault(key, []).append(entry)
    (folder / "datalist.json").write_text(json.dumps(lists))
    values = {"site": folder.name, "data_root": str(folder), "device": "cpu", "threads": 1}
    values |= {"cache_dir": str(folder.with_name(f"cache_{folder.name}")), "privacy": {"min_cases": 1}}
    path = folder.with_suffix(".yaml")
    path.write_text(yaml.safe_dump(values))
    return path
