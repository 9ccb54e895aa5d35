"""Make the chest CTs of a synthetic hospital.

Everything is drawn from one seed per patient, so that a scan does not depend on which others were made.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import nibabel as nib
import numpy as np

from fedmed.data.geometry import nifti
from fedmed.seeds import derive_seed
from fedmed_demo import bones, lungs, tissue
from fedmed_demo.anatomy import build_chest
from fedmed_demo.build import Patient, draw_patient
from fedmed_demo.grid import Grid, occupancy
from fedmed_demo.hospitals import SiteProfile
from fedmed_demo.lesions import add_lesions
from fedmed_demo.scanner import Scanner, annotate, scan

VERSION = 5  # grows with every change of the voxels: the folder's name holds it
COARSE_VERSION = f"{VERSION}.1"  # the second number grows with every change of the coarse profiles
DEMO_VERSION = f"{VERSION}.1"  # and here of the lists of the demo
FIELD_OF_VIEW = (344.0, 274.0)  # mm, width and depth, for a patient of average size


@dataclass(frozen=True)
class Scan:
    """One synthetic scan; all arrays but the affine have the image's shape (X, Y, Z)."""

    image: np.ndarray  # int16, HU
    mask: np.ndarray  # uint8, 0 or 1: the site's annotation
    lungs: np.ndarray  # bool, with their lesions; not saved
    affine: np.ndarray  # 4x4, voxel to RAS+ mm


def make_scan(profile: SiteProfile, patient_id: str, seed: int = 0, diseased: bool = True) -> Scan:
    """Make one patient's scan at one site; seed, site and patient are the only source of randomness."""
    rng = np.random.default_rng(derive_seed(seed, "chest_ct", profile.name, patient_id))
    patient = draw_patient(rng, profile.shallow)
    grid = _grid(rng, profile.scanner, patient)
    chest = build_chest(rng, grid, patient)
    image = tissue.paint_wall(rng, grid, patient, chest)
    tissue.paint_abdomen(image, rng, grid, patient, chest)
    tissue.paint_heart(image, rng, grid, patient, chest)
    ends = int(np.clip(1200 / profile.scanner.pixel, 60, 540))  # coarse grids cannot show fine vessels
    lung, blood = lungs.paint_lungs(image, rng, grid, patient, chest, ends)
    disease = np.zeros(grid.shape, dtype=np.float32)
    if diseased:
        disease = add_lesions(image, rng, grid, chest, lung, profile.lesions)
    lungs.paint_vessels(image, patient, lung, blood)
    lungs.paint_airways(image, grid, patient)
    bones.paint_bones(image, rng, grid, patient, chest)
    tissue.paint_table(image, grid, patient, chest)
    scanned = scan(image, rng, grid, profile.scanner, patient.height)
    readers = profile.annotation
    style = readers if isinstance(readers, str) else str(rng.choice(readers))
    mask = annotate(disease, scanned.astype(np.float32), lung, grid, style)
    on_the_table = grid.affine(rng.uniform([-12, -25, -900], [12, 25, -300]))
    return Scan(scanned, mask, occupancy(chest.lungs, 1.0) > 0.5, on_the_table)


def _grid(rng: np.random.Generator, scanner: Scanner, patient: Patient) -> Grid:
    """The technologist fits the field of view to the patient and scans from below the domes to over the apex."""
    pixel = round(scanner.pixel * patient.scale * float(rng.uniform(0.99, 1.03)), 4)
    width, depth = (int(round(size / scanner.pixel)) for size in FIELD_OF_VIEW)
    below, above = rng.uniform(2, 16), rng.uniform(3, 9)
    count = int(np.ceil((patient.height + below + above) / scanner.slices))
    shape, spacing = (width, depth, count), (pixel, pixel, scanner.slices)
    half = [(n - 1) / 2 * size for n, size in zip(shape, spacing, strict=True)]
    centre = (0.0, -9.0, (patient.height + above - below) / 2)
    x, y, z = (float(c - s * h) for c, s, h in zip(centre, scanner.signs, half, strict=True))
    return Grid(shape, spacing, (x, y, z), scanner.signs)


def fill(profile: SiteProfile, folder: Path, seed: int, threads: int) -> None:
    """Write all patients of a hospital into an empty folder and, last, the datalist."""
    patients = patients_of(profile)[: sum(profile.counts.values())] + more_tested(profile)
    with ThreadPoolExecutor(threads) as pool:  # an error cancels those that have not begun
        entries = list(pool.map(lambda patient: write_patient(profile, folder, seed, *patient), patients))
    datalist: dict[str, list[dict[str, str]]] = {name: [] for name in profile.counts}
    for (name, _), entry in zip(patients, entries, strict=True):
        datalist[name].append(entry)
    (folder / "datalist.json").write_text(json.dumps(datalist, indent=2) + "\n")


def patients_of(profile: SiteProfile) -> list[tuple[str, str]]:
    """List and identifier of every patient of a hospital, then of those beyond its own lists, numbered on."""
    lists = [name for counts in (profile.counts, profile.further) for name, n in counts.items() for _ in range(n)]
    return [(name, f"{profile.prefix}-{number:04d}") for number, name in enumerate(lists, start=1)]


def more_tested(profile: SiteProfile) -> list[tuple[str, str]]:
    """List and identifier of the demo's further test patients, numbered on after all of :func:`patients_of`."""
    first = len(patients_of(profile)) + 1
    return [("testing", f"{profile.prefix}-{number:04d}") for number in range(first, first + profile.tested)]


def write_patient(
    profile: SiteProfile, folder: Path, seed: int, list_name: str, patient_id: str, masked: bool = False
) -> dict[str, str]:
    """Make one patient, write the files below ``folder`` and return the datalist entry.

    ``masked``: with the mask of a scan that the list ``list_name`` has none of.
    """
    odds = np.random.default_rng(derive_seed(seed, "chest_ct", profile.name, patient_id, "diseased")).random()
    labelled = list_name != "unlabeled"
    made = make_scan(profile, patient_id, seed, diseased=labelled or bool(odds < profile.prevalence))
    entry = {"image": f"images/{patient_id}_ct.nii.gz", "patient": patient_id}
    arrays = {"image": made.image}
    if labelled or masked:
        entry["label"] = f"labels/{patient_id}_seg.nii.gz"
        arrays["label"] = made.mask
    for name, array in arrays.items():
        (folder / entry[name]).parent.mkdir(parents=True, exist_ok=True)
        nib.save(nifti(array, made.affine), folder / entry[name])
    return entry
