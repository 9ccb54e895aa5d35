"""Make the chest X-rays of a synthetic institution's patients.

Everything is drawn from one seed per person, so that an image does not depend on which others were made.
"""

from dataclasses import dataclass

import numpy as np

from fedmed.seeds import derive_seed
from fedmed_demo import vessels
from fedmed_demo.xray import findings, overlay
from fedmed_demo.xray.body import Thorax, build_thorax, project
from fedmed_demo.xray.detector import expose
from fedmed_demo.xray.institutions import Institution
from fedmed_demo.xray.sitter import Sitter, draw_sitter
from fedmed_demo.xray.skeleton import bones
from fedmed_demo.xray.view import View

VERSION = 6  # grows with every change of the pixels: the folder's name holds it
LARGE_VERSION = f"{VERSION}.1"  # the second number grows with every change of the large profiles
BRANCHES = 70  # of an artery of a lung
STEP = 2.0  # mm between two points of a vessel


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
    """One exposure."""

    image: np.ndarray  # (H, W) float32, 0 (dark) … 1 (bright)
    pixel: float  # mm of the phantom
    position: str  # PA or AP


def radiograph(person: Person, number: int = 0, seed: int = 0) -> Radiograph:
    """Expose one patient; another ``number`` is another visit."""
    site, thorax = person.site, person.thorax
    rng = np.random.default_rng(derive_seed(seed, "chest_xray", site.name, person.patient, "exposure", number))
    in_bed = rng.random() < site.bedside
    view = _position(rng, thorax.sitter, person.shape, site.field_of_view, in_bed)
    water, lung = project(thorax, view, person.extra)
    water += _markings(rng, thorax, view)
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


def _markings(rng: np.random.Generator, thorax: Thorax, view: View) -> np.ndarray:
    """Blood vessels of both lungs less the air of trachea and bronchi, as mm of water, the image's shape."""
    patient = thorax.sitter.patient
    trees = vessels.lung_trees(rng, thorax.grid, patient, thorax.chest.lungs > 6, BRANCHES, 0.62, STEP)
    blood, thick, _ = (np.concatenate(part) for part in zip(*trees, strict=True))
    air, wide = vessels.airways(patient)
    density = np.full(len(thick), 2.2 * (1 - thorax.sitter.lung))
    hollow = -1.1 * np.clip((wide - 5.2) / 3.2, 0, 1)  # bronchi within the lung are hardly visible
    parts = ([blood, air], [thick, wide], [density, hollow])
    points, radii, densities = (np.concatenate(part) for part in parts)
    return view.tubes(points, radii, densities, STEP)


def _mark(rng: np.random.Generator, image: np.ndarray, in_bed: bool) -> None:
    """Print the side, and the projection of a bedside image."""
    size = max(1, image.shape[0] // 110)
    right = rng.random() < 0.7
    row = int(rng.integers(4, 14)) * size
    col = int(rng.integers(3, 8)) * size if right else image.shape[1] - int(rng.integers(9, 14)) * size
    overlay.stamp(image, "R" if right else "L", row, col, size, float(rng.uniform(0.8, 1.0)))
    if in_bed and rng.random() < 0.7:
        overlay.stamp(image, "AP", row + 9 * size, max(col - 4 * size, 0), size, float(rng.uniform(0.8, 1.0)))
