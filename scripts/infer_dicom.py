#!/usr/bin/env python3
"""Segment a DICOM CT series with an exported bundle; the result is a DICOM segmentation of that series.

    scripts/infer_dicom.py covid_ct_segmentation /data/patient7/ct OUT.dcm

Open OUT.dcm together with the series in 3D Slicer, OHIF or a PACS. It holds the patient's name and identifiers, as
DICOM demands: keep it only where the series may be kept. For research; a reader must check it.
"""

import _environment  # noqa: F401 - first, since it says what to do outside of .venv

import argparse
import hashlib
import os
import sys
import tempfile
from pathlib import Path

from fedmed.errors import DataError, FedMedError
from fedmed.files import private_files, write_atomically
from fedmed.plain_text import in_terminal, print_in_any_terminal


def segment(
    bundle: Path, folder: Path, uid: str | None, device: str | None, trusted: list[str]
) -> tuple[object, list[str]]:
    """Return the segmentation of the series in ``folder`` and one line for each of its segments; notes to stderr."""
    # Here and not above: they take seconds to load, for which --help and a wrong path need not wait.
    import numpy as np

    from fedmed.bundles.given_bundle import open_given
    from fedmed.bundles.infer import WEIGHTS, check_ready, infer_image
    from fedmed.bundles.metadata_classes import segments
    from fedmed.data.dicom_results import Producer, find_series, segmentation, source_slices
    from fedmed.data.prepare.case import Source
    from fedmed.data.prepare.ct_inspect import inspect_all

    metadata = check_ready(bundle)
    structures = segments(metadata, bundle)
    weights = hashlib.sha256((bundle / WEIGHTS).read_bytes()).hexdigest()[:16]
    producer = Producer(bundle.resolve().name, metadata["version"], weights)
    files = find_series(folder, uid)
    slices = source_slices(files)
    with tempfile.TemporaryDirectory(prefix="fedmed-dicom-") as place:
        # Checked as a preparation does; not compressed, which would take longer than reading a chest.
        (case,) = inspect_all([Source("scan", files, patient="", series=True)], Path(place), ending=".nii")
        if case.faults:
            raise DataError(f"{folder}: {'; '.join(case.faults)}")
        for note in case.notes:
            print(f"note: {in_terminal(note)}", file=sys.stderr)
        opened = open_given(bundle, Path(place) / "bundle", trusted)
        mask = infer_image(opened, case.image, **({"device": device} if device else {}))
    array = np.asarray(mask.dataobj)
    volume = abs(np.linalg.det(mask.affine[:3, :3])) / 1000
    volumes = [(one, int((array == k).sum())) for k, one in enumerate(structures, start=1)]
    words = [f"{one.title}: {one.amount(count * volume) if count else 'nothing found'}" for one, count in volumes]
    return segmentation(slices, array, mask.affine, structures, producer), words


def check_target(path: Path, replace: bool) -> None:
    """Raise FedMedError now rather than after minutes of inference."""
    if path.is_dir():
        raise FedMedError(f"{path} is a folder; give the name of a file, such as {path / 'seg.dcm'}")
    if path.exists() and not replace:
        raise FedMedError(f"{path} exists; --replace overwrites it")
    if not path.parent.is_dir():
        raise FedMedError(f"the folder {path.parent} does not exist; make it or choose another OUT")
    if not os.access(path.parent, os.W_OK):
        raise FedMedError(f"the folder {path.parent} is read-only; choose another OUT")


@private_files()
def main(arguments: list[str] | None = None) -> int:
    """Return 0, or 2 when the bundle, the series or OUT cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="folder that scripts/export_bundle.py wrote")
    parser.add_argument("folder", metavar="SERIES", type=Path, help="folder of the slices of one CT series")
    parser.add_argument("out", metavar="OUT.dcm", type=Path, help="the segmentation")
    parser.add_argument(
        "--series", metavar="UID", help="SeriesInstanceUID, where the folder holds several; UID:2 of volumes with one"
    )
    parser.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:1; default: a GPU if there is one")
    parser.add_argument(
        "--trust", metavar="DIGEST", action="append", default=[], help="let the bundle of this digest run its own code"
    )
    parser.add_argument("--replace", action="store_true", help="overwrite OUT.dcm")
    options = parser.parse_args(arguments)
    try:
        check_target(options.out, options.replace)
        result, words = segment(options.bundle, options.folder, options.series, options.device, options.trust)
        write_atomically(options.out, result.save_as)
    except FedMedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error.filename or options.out}: {error.strerror}", file=sys.stderr)
        return 2
    print(f"{options.out}: {'; '.join(words)}")
    return 0


if __name__ == "__main__":
    print_in_any_terminal()
    sys.exit(main())
