"""The three synthetic institutions of the X-ray federations: their patients, detectors and files."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fedmed_demo.xray.body import VOXEL
from fedmed_demo.xray.detector import Detector
from fedmed_demo.xray.findings import Severity

COUNTS = {"training": 54, "validation": 26, "testing": 52, "unlabeled": 132}  # patients in each list of the demo's


@dataclass(frozen=True)
class Institution:
    """One institution."""

    name: str  # in jobs
    prefix: str  # of its patients' identifiers
    files: tuple[str, ...]  # how it keeps images; each patient's are of one of these kinds, see image_files
    detector: Detector
    shapes: tuple[tuple[int, int], ...]  # rows and columns of its images; each patient's have one of these
    shallow: float  # how often, and by how much, a breath is less than a deep one, 0 … 1
    border: float  # largest share of the image behind the collimator's leaves at an edge
    prevalence: tuple[float, float, float]  # shares of findings.CLASSES among the patients
    voxel: float = VOXEL  # of the phantom that is projected, mm
    field_of_view: float = 330.0  # mm of the phantom across the image's wider side
    children: bool = False
    bedside: float = 0.0  # share of the images taken in bed: leads, tubes, slanting patients
    marks: bool = False  # whether side and projection are printed into the image
    severity: Severity = field(default_factory=Severity)
    counts: Mapping[str, int] = field(default_factory=COUNTS.copy)  # patients in each list of the datalist


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
HALVES = (1, 2)  # of an institution, for two nodes
TINY = {"training": 6, "validation": 4, "testing": 4, "unlabeled": 8}  # patients


def tiny(site: Institution) -> Institution:
    """The same institution with about 24 images of about 64 pixels: for tests."""
    shapes = tuple((64 * rows // max(rows, cols), 64 * cols // max(rows, cols)) for rows, cols in site.shapes)
    return replace(site, shapes=shapes, voxel=8.0, counts=TINY)


def with_halves(sites: Mapping[str, Institution]) -> dict[str, Institution]:
    """The institutions and, under the names of their halves (``cxr_metro_1``), the same again."""
    return {**sites, **{f"{name}_{half}": site for name, site in sites.items() for half in HALVES}}


def with_other_patients(ending: str, **counts: int) -> dict[str, Institution]:
    """The institutions under names with this ending, with other patients: the lists that ``counts`` names."""
    return {f"{n}_{ending}": replace(site, name=f"{n}_{ending}", counts=counts) for n, site in SITES.items()}


# As many patients, all of them labelled, as comparisons of pre-trained encoders need: the demo's 54 labelled patients
# are too few, an AUROC on 62 images is known only to about ± 0.12.
LARGE_SITES = with_other_patients("large", training=320, testing=320)

# The demo's lists, with a test list on which a difference of some hundredths of AUROC shows.
TESTED_SITES = with_other_patients("tested", **{**COUNTS, "testing": 320})
