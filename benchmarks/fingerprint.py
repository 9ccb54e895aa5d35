#!/usr/bin/env python3
"""Faults that fingerprints find before training, and false alarms, among hospitals with real images.

    python benchmarks/fingerprint.py ../shared/data

CT: crops round lung nodules of LIDC in four sites by slice spacing. X-rays: Hannover, Guangzhou and the NIH, one site
each. Each fault is made at each site in turn, in copies of the images that a fingerprint looks at; the others stay as
they are. Printed are the sites at which it is found, and the findings that are there without any fault.
"""

import argparse
import csv
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import nibabel as nib
import numpy as np
from PIL import Image

from fedmed.bundles.bundle import Bundle
from fedmed.federation.compared_sites import compare
from fedmed.federation.fingerprint import expected
from fedmed.federation.site_fingerprint import SAMPLES, site_fingerprint
from fedmed.kinds.find_kind import kind_of
from fedmed.settings.site import load_file

SPACINGS = {"up to 1.05 mm": 1.05, "to 1.55 mm": 1.55, "to 2.15 mm": 2.15, "thicker": np.inf}  # of slices
XRAYS = {"Hannover": "cxr_hannover", "Guangzhou": "cxr_kermany", "NIH": "cxr_nih"}
Entry = dict[str, Path]


class Fault(NamedTuple):
    """A fault of a site: a change of an image and one of its mask, or of a picture."""

    image: Callable[[Any], Any] | None = None
    mask: Callable[[Any], Any] | None = None


def values(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[nib.Nifti1Image], nib.Nifti1Image]:
    """Change a volume's values, and neither its place nor its spacing."""
    return lambda volume: nib.Nifti1Image(change(np.asarray(volume.dataobj, np.float32)), volume.affine)


def scaled(*factors: float) -> Callable[[nib.Nifti1Image], nib.Nifti1Image]:
    """Change the spacing that a volume's header states."""
    return lambda volume: nib.Nifti1Image(volume.dataobj, volume.affine @ np.diag([*factors, 1]))


CT_FAULTS = {
    "values without the offset of 1024": Fault(values(lambda hu: hu + 1024)),
    "pictures of 0 to 255": Fault(values(lambda hu: np.clip((hu + 1000) / 1400, 0, 1) * 255)),
    "slices twice as thick in the header": Fault(scaled(1, 1, 2), scaled(1, 1, 2)),
    "centimetres in the header": Fault(scaled(0.1, 0.1, 0.1), scaled(0.1, 0.1, 0.1)),
    "left and right exchanged": Fault(values(lambda hu: hu[::-1]), values(lambda mask: mask[::-1])),
    "masks of 255": Fault(mask=values(lambda mask: mask * 255)),
    "empty masks": Fault(mask=values(lambda mask: mask * 0)),
}
XRAY_FAULTS = {
    "inverted": Fault(lambda picture: Image.fromarray(255 - np.asarray(picture.convert("L")))),
    "upside down": Fault(lambda picture: picture.transpose(Image.Transpose.FLIP_TOP_BOTTOM)),
    "turned by 90°": Fault(lambda picture: picture.transpose(Image.Transpose.ROTATE_90)),
    "mirrored": Fault(lambda picture: picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)),
    "a quarter of the size": Fault(lambda picture: picture.resize([max(1, side // 4) for side in picture.size])),
    "dark: half the brightness": Fault(lambda picture: Image.fromarray(np.asarray(picture.convert("L")) // 2)),
}


def ct_sites(data: Path) -> dict[str, list[Entry]]:
    """Site -> as many of its volumes as a fingerprint looks at."""
    sites: dict[str, list[Entry]] = {name: [] for name in SPACINGS}
    for image in sorted((data / "ct_lidc_nodules" / "image").iterdir()):
        thick = float(nib.load(image).header.get_zooms()[2])
        name = next(name for name, most in SPACINGS.items() if thick <= most)
        sites[name].append({"image": image, "label": image.parents[1] / "mask" / image.name})
    return {name: random.Random(0).sample(entries, SAMPLES["volume"]) for name, entries in sites.items()}


def xray_sites(data: Path) -> dict[str, list[Entry]]:
    """Site -> as many of its pictures as a fingerprint looks at."""
    sites = {}
    for name, folder in XRAYS.items():
        with (data / folder / "labels.csv").open() as table:
            rows = sorted(row["file"] for row in csv.DictReader(table))
        sites[name] = [{"image": data / folder / row} for row in random.Random(0).sample(rows, SAMPLES["picture"])]
    return sites


def written(entries: Sequence[Entry], fault: Fault, folder: Path) -> Iterator[dict[str, str]]:
    """Copies of a site's files with a fault in them, by their names below the folder."""
    for number, entry in enumerate(entries):
        made = {}
        for name, path in entry.items():
            change = fault.mask if name == "label" else fault.image
            made[name] = f"{number}_{name}{'.nii.gz' if path.name.endswith('.nii.gz') else '.png'}"
            if change is None:
                shutil.copy(path, folder / made[name])
            elif made[name].endswith(".png"):
                change(Image.open(path)).save(folder / made[name])
            else:
                nib.save(change(nib.load(path)), folder / made[name])
        yield made


def fingerprint_of(entries: Sequence[Entry], fault: Fault, bundle: Bundle) -> dict[str, Any]:
    """Fingerprint of a site with a fault."""
    labelled = "label" in entries[0]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        content = {"training": [], "unlabeled": []}
        content["training" if labelled else "unlabeled"] = list(written(entries, fault, folder))
        (folder / "datalist.json").write_text(json.dumps(content))
        (folder / "site.yaml").write_text(json.dumps({"data_root": scratch, "device": "cpu"}))
        site = load_file(folder / "site.yaml")
        return site_fingerprint(site, kind_of(bundle), bundle, "supervised" if labelled else "unsupervised", 0)


def judged(sites: Mapping[str, list[Entry]], faults: Mapping[str, Fault], bundle: Bundle) -> None:
    """Print at which sites each fault is found, and what is said without any."""
    whole = {name: fingerprint_of(entries, Fault(), bundle) for name, entries in sites.items()}
    before = compare(whole, expected(bundle))
    print(f"without a fault: {len(before)} findings at {len(sites)} sites")
    for site, text in before:
        print(f"    {site}: {text}")
    for fault, made in faults.items():
        detected, elsewhere = [], 0
        for name, entries in sites.items():
            after = compare({**whole, name: fingerprint_of(entries, made, bundle)}, expected(bundle))
            new = [site for site, text in after if (site, text) not in before]
            detected += [name] if name in new else []
            elsewhere += len({site for site in new if site != name and site not in dict(before)})
        print(f"{fault}: found at {len(detected)} of {len(sites)} sites; named in its place: {elsewhere}")


def main() -> None:
    """Read the folder and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with ct_lidc_nodules, cxr_hannover, cxr_kermany, cxr_nih")
    data = parser.parse_args().data.resolve()
    print("CT, LIDC by slice spacing")
    judged(ct_sites(data), CT_FAULTS, Bundle("covid_ct_segmentation"))
    print("X-rays")
    judged(xray_sites(data), XRAY_FAULTS, Bundle("cxr_classification"))


if __name__ == "__main__":
    main()
