"""Chest CTs of five made-up hospitals: their profiles, and the function that makes one scan.

Everything is drawn from one seed per patient, so that a scan does not depend on which others were made.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

import nibabel as nib
import numpy as np

from fedmed.data.synthetic import bones, lungs, tissue, vessels
from fedmed.data.synthetic.anatomy import Patient, build_chest, draw_patient
from fedmed.data.synthetic.annotation import annotate
from fedmed.data.synthetic.grid import Grid, occupancy
from fedmed.data.synthetic.lesions import LesionMix, add_lesions
from fedmed.data.synthetic.scanner import Scanner, scan
from fedmed.seeds import derive_seed

VERSION = 5  # grows with every change of the voxels: the folder's name holds it
FIELD_OF_VIEW = (344.0, 274.0)  # mm, width and depth, for a patient of average size


@dataclass(frozen=True)
class SiteProfile:
    """One hospital.

    Args:
        name: the site's name in jobs.
        prefix: start of its patients' identifiers.
        scanner: its scanner.
        lesions: what its patients have.
        prevalence: share of the unlabelled patients who have it (those in labelled lists all do).
        shallow: HU added to its patients' lungs, which they do not fill by a deep breath.
        annotation: how its readers draw ("tight", "generous", "loose" or "threshold"); with several, each patient is
            drawn by one of them.
        counts: number of patients in each list of the datalist.
    """

    name: str
    prefix: str
    scanner: Scanner
    lesions: LesionMix = field(default_factory=LesionMix)
    prevalence: float = 1.0
    shallow: float = 0.0
    annotation: str | tuple[str, ...] = "tight"
    counts: dict[str, int] = field(default_factory=dict)


SITES: dict[str, SiteProfile] = {
    site.name: site
    for site in (
        SiteProfile(
            "ct_north", "CTN", Scanner(2.3, 5.0, "soft", 13.0), LesionMix(1.0, 0.25, burden=(0.015, 0.16)),
            annotation="tight", counts={"training": 10, "validation": 2, "testing": 4},
        ),
        SiteProfile(
            "ct_south", "CTS", Scanner(2.5, 4.0, "sharp", 20.0, offset=-8.0, signs=(-1, -1, -1)),
            LesionMix(0.7, 0.6, nodule=0.2, burden=(0.01, 0.12), density=25.0),
            annotation="generous", counts={"training": 6, "validation": 2, "testing": 4},
        ),
        SiteProfile(
            "ct_east", "CTE", Scanner(2.15, 6.0, "sharp", 58.0, offset=60.0),
            LesionMix(1.0, 0.35, nodule=0.1, burden=(0.006, 0.10), density=-55.0), prevalence=0.85, shallow=80.0,
            annotation="tight", counts={"unlabeled": 14, "testing": 5},
        ),
        SiteProfile(
            "ct_west", "CTW", Scanner(2.6, 3.0, "soft", 24.0, offset=15.0, signs=(1, 1, 1)),
            LesionMix(0.5, 0.6, nodule=0.6, burden=(0.008, 0.14)),
            annotation="threshold", counts={"testing": 5},
        ),
        SiteProfile(
            "ct_control", "CTC", Scanner(2.4, 5.0, "soft", 18.0, offset=5.0), prevalence=0.0, counts={"unlabeled": 6},
        ),
    )
}  # fmt: skip


def tiny(profile: SiteProfile) -> SiteProfile:
    """The same hospital with three patients a list on a grid of about 64 x 56 x 16: for tests."""
    scanner = profile.scanner
    small = replace(scanner, pixel=scanner.pixel * 2.5, slices=scanner.slices * 3.2)
    return replace(profile, scanner=small, counts=dict.fromkeys(profile.counts, 3))


@dataclass(frozen=True)
class Scan:
    """One made-up scan.

    Args:
        image: int16 HU, shape (X, Y, Z).
        mask: uint8, 0 or 1, the image's shape: the site's annotation.
        lungs: bool, the image's shape: lungs with their lesions (not saved).
        affine: 4x4, voxel to RAS+ mm.
    """

    image: np.ndarray
    mask: np.ndarray
    lungs: np.ndarray
    affine: np.ndarray


def make_scan(profile: SiteProfile, patient_id: str, seed: int = 0, diseased: bool = True) -> Scan:
    """Make one patient's scan at one site.

    Args:
        profile: the site.
        patient_id: with ``seed`` and the site's name, the only source of randomness.
        seed: of the federation.
        diseased: whether the patient has lesions.
    """
    rng = np.random.default_rng(derive_seed(seed, "chest_ct", profile.name, patient_id))
    patient = draw_patient(rng, profile.shallow)
    grid = _grid(rng, profile.scanner, patient)
    great = vessels.great_vessels(patient)
    chest = build_chest(rng, grid, patient, great)
    image = tissue.paint_wall(rng, grid, patient, chest)
    tissue.paint_abdomen(image, rng, grid, patient, chest)
    tissue.paint_heart(image, rng, grid, patient, chest)
    # Coarse grids cannot show fine vessels.
    ends = int(np.clip(1200 / profile.scanner.pixel, 60, 540))
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
    shift = tuple(float(v) for v in rng.uniform([-12, -25, -900], [12, 25, -300]))
    return Scan(scanned, mask, occupancy(chest.lungs, 1.0) > 0.5, grid.affine(shift))


def _grid(rng: np.random.Generator, scanner: Scanner, patient: Patient) -> Grid:
    """The technologist fits the field of view to the patient and scans from below the domes to over the apex."""
    pixel = round(scanner.pixel * patient.scale * float(rng.uniform(0.99, 1.03)), 4)
    shape = tuple(int(round(size / scanner.pixel)) for size in FIELD_OF_VIEW)
    below, above = rng.uniform(2, 16), rng.uniform(3, 9)
    count = int(np.ceil((patient.height + below + above) / scanner.slices))
    half = [(n - 1) / 2 * pixel for n in shape] + [(count - 1) / 2 * scanner.slices]
    centre = (0.0, -9.0, (patient.height + above - below) / 2)
    first = tuple(float(c - s * h) for c, s, h in zip(centre, scanner.signs, half, strict=True))
    return Grid((*shape, count), (pixel, pixel, scanner.slices), first, scanner.signs)


def write_patient(profile: SiteProfile, list_name: str, patient_id: str, folder: Path, seed: int) -> dict[str, str]:
    """Make one patient, write the files below ``folder`` and return the datalist entry."""
    odds = np.random.default_rng(derive_seed(seed, "chest_ct", profile.name, patient_id, "diseased")).random()
    labelled = list_name != "unlabeled"
    made = make_scan(profile, patient_id, seed, diseased=labelled or bool(odds < profile.prevalence))
    entry = {"image": f"images/{patient_id}_ct.nii.gz", "patient": patient_id}
    _save(made.image, made.affine, folder / entry["image"])
    if labelled:
        entry["label"] = f"labels/{patient_id}_seg.nii.gz"
        _save(made.mask, made.affine, folder / entry["label"])
    return entry


def _save(array: np.ndarray, affine: np.ndarray, path: Path) -> None:
    image = nib.Nifti1Image(array, affine, dtype=array.dtype)
    image.header.set_xyzt_units("mm")
    image.set_qform(affine, code=1)
    image.set_sform(affine, code=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(image, path)
