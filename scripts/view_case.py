#!/usr/bin/env python3
"""Draw a scan with its mask: three planes through the largest lesion, and the lungs in 3D.

    scripts/view_case.py scan.nii.gz scan_covid.nii.gz --out scan.png
    scripts/view_case.py scan.nii.gz scan_covid.nii.gz --truth scan_seg.nii.gz --out scan.png --title "Case 7"

Prediction orange, truth blue; in 3D, blue is the part of the truth that the prediction missed. The patient's right is
on the left. A picture shows the patient's anatomy: treat it as you treat the scan.
"""

import _environment  # noqa: F401 - first, since it says what to do outside of .venv

import argparse
import sys
from pathlib import Path

from fedmed.errors import FedMedError
from fedmed.files import private_files


@private_files()
def main(arguments: list[str] | None = None) -> int:
    """Return 0, or 2 when a file cannot be read or does not fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image", metavar="IMAGE", type=Path, help="chest CT in HU, NIfTI")
    parser.add_argument("mask", metavar="MASK", type=Path, help="the predicted mask, on the same grid")
    parser.add_argument("--truth", metavar="MASK", type=Path, help="a reader's mask, on the same grid")
    parser.add_argument("--out", metavar="PNG", type=Path, required=True)
    parser.add_argument("--title", help="default: the image's name")
    parser.add_argument("--azimuth", type=float, help="3D: degrees towards the patient's left (default 24)")
    parser.add_argument("--elevation", type=float, help="3D: degrees from above (default 10)")
    parser.add_argument("--dpi", type=int, choices=range(20, 601), metavar="20...600", default=110, help="default 110")
    options = parser.parse_args(arguments)
    from fedmed.reports.palette import save_picture
    from fedmed.reports.planes import Viewpoint, case_figure, read_case
    from fedmed.reports.plots import style

    try:
        case = read_case(options.image, options.mask, options.truth)
        angles = {"azimuth": options.azimuth, "elevation": options.elevation}
        view = Viewpoint(**{name: angle for name, angle in angles.items() if angle is not None})
        with style():
            picture = case_figure(case, view, options.title)
        save_picture(picture, options.out, options.dpi)
    except FedMedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
