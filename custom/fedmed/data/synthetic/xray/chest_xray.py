"""Chest X-rays of three made-up institutions: their profiles, and the function that makes one person's images.

Everything is drawn from one seed per person, so that an image does not depend on which others were made.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fedmed.data.synthetic.xray import findings, lungs, overlay
from fedmed.data.synthetic.xray.body import VOXEL, Sitter, Thorax, build_thorax, draw_sitter, project
from fedmed.data.synthetic.xray.bones import bones
from fedmed.data.synthetic.xray.detector import Detector, expose
from fedmed.data.synthetic.xray.findings import Severity
from fedmed.data.synthetic.xray.view import View
from fedmed.seeds import derive_seed

VERSION = 6  # grows with every change of the pixels: the folder's name holds it


@dataclass(frozen=True)
class Institution:
    """One institution.

    Args:
        name: the site's name in jobs.
        prefix: start of its patients' identifiers.
        files: how it keeps images; each patient's are of one of these kinds (see ``xray.files``).
        detector: exposure and processing.
        severity: how visible the findings are.
        shapes: rows and columns of its images; each patient's have one of these shapes.
        voxel: of the phantom that is projected, mm.
        field_of_view: mm of the phantom across the image's wider side.
        children: whether its patients are children.
        bedside: share of the images taken in bed: leads, tubes, slanting patients.
        shallow: how often, and by how much, a breath is less than a deep one, 0 … 1.
        marks: whether side and projection are printed into the image.
        border: largest share of the image behind the collimator's leaves at an edge.
        prevalence: shares of ``findings.CLASSES`` among the patients.
        counts: number of patients in each list of the datalist.
    """

    name: str
    prefix: str
    files: tuple[str, ...]
    detector: Detector
    severity: Severity = field(default_factory=Severity)
    shapes: tuple[tuple[int, int], ...] = ((256, 256),)
    voxel: float = VOXEL
    field_of_view: float = 330.0
    children: bool = False
    bedside: float = 0.0
    shallow: float = 0.3
    marks: bool = False
    border: float = 0.0
    prevalence: tuple[float, float, float] = (0.34, 0.33, 0.33)
    counts: Mapping[str, int] = field(
        default_factory=lambda: {"training": 54, "validation": 26, "testing": 52, "unlabeled": 132}
    )


SITES: dict[str, Institution] = {
    site.name: site
    for site in (
        # Adults on their feet, from behind, a good detector and modern processing.
        Institution(
            "cxr_metro", "CXM", ("dx",),
            Detector(0.0175, 0.07, 90.0, 0.9, enhance=0.5, gamma=1.1, black=0.25, toe=0.08, spread=0.07),
            shapes=((256, 256), (272, 256)), shallow=0.25, border=0.03, prevalence=(0.46, 0.26, 0.28),
        ),
        # Adults in bed, from the front, without a grid; films that were scanned with everything on them.
        Institution(
            "cxr_rural", "CXR", ("jpeg",),
            Detector(0.0185, 0.22, 22.0, 1.5, gamma=0.85, black=0.45, toe=0.12, spread=0.14),
            shapes=((232, 280), (240, 272)), bedside=0.85, shallow=0.75, marks=True, border=0.07,
            prevalence=(0.30, 0.42, 0.28),
        ),
        # Children, hardly filtered, on two devices.
        Institution(
            "cxr_children", "CXC", ("png", "cr"),
            Detector(0.0185, 0.08, 40.0, 1.2, enhance=0.2, gamma=1.1, black=0.22, toe=0.06, spread=0.1),
            shapes=((224, 208), (240, 224), (208, 224)), field_of_view=305.0, children=True, bedside=0.1, shallow=0.6,
            border=0.05, prevalence=(0.36, 0.36, 0.28),
        ),
    )
}  # fmt: skip
TINY = {"training": 6, "validation": 4, "testing": 4, "unlabeled": 8}  # patients


def tiny(site: Institution) -> Institution:
    """The same institution with about 24 images of about 64 pixels: for tests."""
    shapes = tuple(tuple(64 * n // max(shape) for n in shape) for shape in site.shapes)
    return replace(site, shapes=shapes, voxel=8.0, counts=TINY)


@dataclass(frozen=True)
class Person:
    """Everything about one patient that does not change between two exposures."""

    site: Institution
    patient: str
    finding: str
    shape: tuple[int, int]
    thorax: Thorax
    extra: np.ndarray | None


def draw_person(site: Institution, patient: str, finding: str, seed: int = 0) -> Person:
    """Make one patient of an institution; ``finding`` is one of ``findings.CLASSES``."""
    # Build and finding come from separate streams: the same seed with another finding is the same person.
    build = np.random.default_rng(derive_seed(seed, "chest_xray", site.name, patient, "build"))
    ill = np.random.default_rng(derive_seed(seed, "chest_xray", site.name, patient, "finding"))
    thorax = build_thorax(build, draw_sitter(build, site.children, site.shallow), site.voxel)
    shape = site.shapes[int(build.integers(len(site.shapes)))]
    extra = None
    if finding == "consolidation":
        extra = findings.consolidate(ill, thorax, site.severity)
    elif finding == "interstitial":
        extra = findings.haze(ill, thorax, site.severity)
    return Person(site, patient, finding, shape, thorax, extra)


@dataclass(frozen=True)
class Radiograph:
    """One exposure.

    Args:
        image: (H, W) float32, 0 (dark) … 1 (bright).
        pixel: mm of the phantom in one pixel.
        position: PA or AP.
    """

    image: np.ndarray
    pixel: float
    position: str


def radiograph(person: Person, number: int = 0, seed: int = 0) -> Radiograph:
    """Expose one patient; another ``number`` is another visit."""
    site, thorax = person.site, person.thorax
    rng = np.random.default_rng(derive_seed(seed, "chest_xray", site.name, person.patient, "exposure", number))
    in_bed = rng.random() < site.bedside
    view = _position(rng, thorax.sitter, person.shape, site.field_of_view, in_bed)
    water, lung = project(thorax, view, person.extra)
    water += lungs.markings(rng, thorax, view)
    water += bones(rng, thorax.sitter, view, float(rng.uniform(0, 0.5) if in_bed else rng.uniform(0.35, 1.0)))
    water += findings.distractions(rng, thorax, view, lung)
    if person.finding == "interstitial":
        ill = np.random.default_rng(derive_seed(seed, "chest_xray", site.name, person.patient, "network", number))
        water += findings.network(ill, view, lung, site.severity)
    if in_bed:
        water += overlay.bedside(rng, thorax.sitter, view)
    image = expose(rng, np.maximum(water, 0) * thorax.sitter.size**0.35, view, site.detector)
    if site.border:
        overlay.collimate(rng, image, site.border)
    if site.marks:
        _mark(rng, image, in_bed)
    return Radiograph(image, view.pixel, "AP" if in_bed else "PA")


def _position(
    rng: np.random.Generator, sitter: Sitter, shape: tuple[int, int], field_of_view: float, in_bed: bool
) -> View:
    """The patient before the detector: straight and centred on a good day."""
    loose = 2.2 if in_bed else 1.0
    height = sitter.patient.height
    pixel = field_of_view / max(shape) * sitter.patient.scale * float(rng.uniform(0.94, 1.06))
    return View(
        shape,
        pixel,
        (float(rng.normal(0, 5 * loose)), 0.52 * height + float(rng.normal(0, 6 * loose))),
        tilt=float(rng.normal(0, 0.018 * loose)),
        turn=float(rng.normal(0, 0.03 * loose)),
        front_far=0.035 if in_bed else -0.02,
    )


def _mark(rng: np.random.Generator, image: np.ndarray, in_bed: bool) -> None:
    """Print the side, and the projection of a bedside image."""
    size = max(1, image.shape[0] // 110)
    right = rng.random() < 0.7
    row = int(rng.integers(4, 14)) * size
    col = int(rng.integers(3, 8)) * size if right else image.shape[1] - int(rng.integers(9, 14)) * size
    overlay.stamp(image, "R" if right else "L", row, col, size, float(rng.uniform(0.8, 1.0)))
    if in_bed and rng.random() < 0.7:
        overlay.stamp(image, "AP", row + 9 * size, max(col - 4 * size, 0), size, float(rng.uniform(0.8, 1.0)))
