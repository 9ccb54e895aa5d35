"""The sites of the paper's tables on voxels so coarse that the federation is made in half a minute.

The six sites stand for those of Yang et al. (2021): Image_1 to Image_3 with COVID-19, Image_N, Image_LIDC and Image_P
without. Only their size is scaled down, to make runs cheap; the differences between the sites are not.
"""

from fedmed.data.synthetic import chest_ct
from fedmed.data.synthetic.chest_ct import SiteProfile
from fedmed.data.synthetic.lesions import LesionMix
from fedmed.data.synthetic.scanner import Scanner

VERSION = f"{chest_ct.VERSION}.1"  # the second number grows with every change of these profiles
CONTROL = {"unlabeled": 40}

SITES: dict[str, SiteProfile] = {
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
