"""The synthetic hospitals of the CT federations: their scanners, patients and readers."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fedmed_demo.lesions import LesionMix
from fedmed_demo.scanner import Scanner

CONTROL = {"unlabeled": 40}


@dataclass(frozen=True)
class SiteProfile:
    """One hospital."""

    name: str  # in jobs
    prefix: str  # of its patients' identifiers
    scanner: Scanner
    lesions: LesionMix = field(default_factory=LesionMix)  # what its patients have
    prevalence: float = 1.0  # share of the unlabelled patients who have it (those in labelled lists all do)
    shallow: float = 0.0  # HU added to its patients' lungs, which they do not fill by a deep breath
    annotation: str | tuple[str, ...] = "tight"  # how its readers draw; of several, each patient is drawn by one
    counts: Mapping[str, int] = field(default_factory=dict)  # patients in each list of the datalist
    further: Mapping[str, int] = field(default_factory=dict)  # patients beyond these, of the list with every mask
    tested: int = 0  # patients beyond all these, in the list "testing": so many that a gain can be told from chance


SITES: dict[str, SiteProfile] = {
    site.name: site
    for site in (
        SiteProfile(
            "ct_north", "CTN", Scanner(2.3, 5.0, "soft", 13.0), LesionMix(1.0, 0.25, burden=(0.015, 0.16)),
            annotation="tight", counts={"training": 10, "validation": 2, "testing": 4}, further={"testing": 12},
            tested=16,
        ),
        SiteProfile(
            "ct_south", "CTS", Scanner(2.5, 4.0, "sharp", 20.0, offset=-8.0, signs=(-1, -1, -1)),
            LesionMix(0.7, 0.6, nodule=0.2, burden=(0.01, 0.12), density=25.0),
            annotation="generous", counts={"training": 6, "validation": 2, "testing": 4}, further={"testing": 12},
            tested=16,
        ),
        SiteProfile(
            "ct_east", "CTE", Scanner(2.15, 6.0, "sharp", 58.0, offset=60.0),
            LesionMix(1.0, 0.35, nodule=0.1, burden=(0.006, 0.10), density=-55.0), prevalence=0.85, shallow=80.0,
            annotation="tight", counts={"unlabeled": 14, "testing": 5}, further={"validation": 2, "testing": 20},
            tested=15,
        ),
        SiteProfile(
            "ct_west", "CTW", Scanner(2.6, 3.0, "soft", 24.0, offset=15.0, signs=(1, 1, 1)),
            LesionMix(0.5, 0.6, nodule=0.6, burden=(0.008, 0.14)),
            annotation="threshold", counts={"testing": 5}, further={"testing": 12}, tested=15,
        ),
        SiteProfile(
            "ct_control", "CTC", Scanner(2.4, 5.0, "soft", 18.0, offset=5.0), prevalence=0.0, counts={"unlabeled": 6},
        ),
    )
}  # fmt: skip

# The sites of the paper's tables on voxels so coarse that the federation is made in half a minute. They stand for those
# of Yang et al. (2021): Image_1 to Image_3 with COVID-19, Image_N, Image_LIDC and Image_P without. Only their size is
# scaled down, to make runs cheap; the differences between the sites are not.
COARSE_SITES: dict[str, SiteProfile] = {
    site.name: site
    for site in (
        # Many labels, one careful reader, a calm scanner.
        SiteProfile(
            "image_1", "I1", Scanner(5.4, 7.5, "soft", 14.0), LesionMix(1.0, 0.3, burden=(0.03, 0.22)),
            annotation="tight", counts={"training": 60, "validation": 8, "testing": 14, "unlabeled": 10},
        ),
        # Many scans, few labels; a grainy scanner that reads low, denser lesions.
        SiteProfile(
            "image_2", "I2", Scanner(5.7, 8.0, "sharp", 30.0, offset=-25.0, signs=(-1, -1, -1)),
            LesionMix(0.8, 0.5, nodule=0.2, burden=(0.02, 0.18), density=30.0),
            annotation="tight", counts={"training": 12, "validation": 6, "testing": 14, "unlabeled": 44},
        ),
        # Shallow breath, faint lesions, and two groups of readers: each patient was drawn by one of them.
        SiteProfile(
            "image_3", "I3", Scanner(5.2, 7.0, "sharp", 50.0, offset=40.0, signs=(1, 1, 1)),
            LesionMix(1.0, 0.4, nodule=0.1, burden=(0.02, 0.16), density=-40.0), shallow=60.0,
            annotation=("loose", "threshold"),
            counts={"training": 24, "validation": 6, "testing": 14, "unlabeled": 20},
        ),
        SiteProfile("image_n", "IN", Scanner(5.6, 8.0, "soft", 18.0, offset=5.0), prevalence=0.0, counts=CONTROL),
        # Screening for lung cancer: nodules and nothing else.
        SiteProfile(
            "image_lidc", "IL", Scanner(5.0, 7.0, "sharp", 40.0, offset=10.0),
            LesionMix(0.0, 0.0, nodule=1.0, burden=(0.0005, 0.004)), counts=CONTROL,
        ),
        # Bacterial pneumonia: dense lobes, little ground glass.
        SiteProfile(
            "image_p", "IP", Scanner(5.5, 7.5, "soft", 22.0, offset=-10.0, signs=(-1, -1, -1)),
            LesionMix(0.1, 1.0, burden=(0.05, 0.22), density=30.0), counts=CONTROL,
        ),
    )
}  # fmt: skip


def tiny(profile: SiteProfile) -> SiteProfile:
    """The same hospital with three patients a list on a grid of about 64 x 56 x 16: for tests."""
    scanner = profile.scanner
    small = replace(scanner, pixel=scanner.pixel * 2.5, slices=scanner.slices * 3.2)
    counts, further = (dict.fromkeys(lists, 3) for lists in (profile.counts, profile.further))
    return replace(profile, scanner=small, counts=counts, further=further, tested=0)
