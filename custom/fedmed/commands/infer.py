"""``fedmed infer``."""

import hashlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from fedmed.commands.options import Device, Trust
from fedmed.errors import DataError, FedMedError
from fedmed.files import private_files, write_atomically
from fedmed.plain_text import in_terminal


@private_files()
def infer(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Folder that 'fedmed export' wrote.")],
    folder: Annotated[Path, typer.Argument(metavar="SERIES", help="Folder of the slices of one CT series.")],
    out: Annotated[Path, typer.Argument(metavar="OUT.dcm", help="The segmentation.")],
    series: Annotated[
        str | None,
        typer.Option(
            metavar="UID",
            help="SeriesInstanceUID, where the folder holds several; UID:2 of volumes with one.",
        ),
    ] = None,
    device: Device = None,
    trust: Trust = [],
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite OUT.dcm.")] = False,
) -> None:
    """Segment a DICOM CT series with an exported bundle; the result is a DICOM segmentation of that series.

      fedmed infer covid_ct_segmentation /data/patient7/ct OUT.dcm

    Open OUT.dcm together with the series in 3D Slicer, OHIF or a PACS. It holds the patient's name and identifiers, as
    DICOM demands: keep it only where the series may be kept. For research; a reader must check it.
    """
    _check_target(out, replace)
    result, words = segment(bundle, folder, series, device, trust)
    write_atomically(out, result.save_as)  # type: ignore[attr-defined] # highdicom brings no types
    print(f"{out}: {'; '.join(words)}")


def segment(
    bundle: Path, folder: Path, uid: str | None, device: str | None, trusted: list[str]
) -> tuple[object, list[str]]:
    """Return the segmentation of the series in ``folder`` and one line for each of its segments; notes to stderr."""
    import numpy as np

    from fedmed.data.dicom_results import Producer, find_series, segmentation, source_slices

    files = find_series(folder, uid)  # before the imports that take many seconds
    from fedmed.bundles.given_bundle import open_given
    from fedmed.bundles.infer import WEIGHTS, check_ready, infer_image
    from fedmed.bundles.metadata_classes import segments
    from fedmed.data.prepare.case import Source
    from fedmed.data.prepare.ct_inspect import inspect_all

    metadata = check_ready(bundle)
    structures = segments(metadata, bundle)
    weights = hashlib.sha256((bundle / WEIGHTS).read_bytes()).hexdigest()[:16]
    producer = Producer(bundle.resolve().name, metadata["version"], weights)
    slices = source_slices(files)
    with tempfile.TemporaryDirectory(prefix="fedmed-dicom-") as place:
        # Checked as a preparation does; not compressed, which would take longer than reading a chest.
        (case,) = inspect_all([Source("scan", files, patient="", series=True)], Path(place), ending=".nii")
        if case.faults:
            raise DataError(f"{folder}: {'; '.join(case.faults)}")
        for note in case.notes:
            print(f"note: {in_terminal(note)}", file=sys.stderr)
        opened = open_given(bundle, Path(place) / "bundle", trusted)
        assert case.image is not None  # it has no fault
        mask = infer_image(opened, case.image, **({"device": device} if device else {}))
    array = np.asarray(mask.dataobj)
    volume = abs(np.linalg.det(mask.affine[:3, :3])) / 1000
    volumes = [(one, int((array == k).sum())) for k, one in enumerate(structures, start=1)]
    words = [f"{one.title}: {one.amount(count * volume) if count else 'nothing found'}" for one, count in volumes]
    return segmentation(slices, array, mask.affine, structures, producer), words


def _check_target(path: Path, replace: bool) -> None:
    """Raise FedMedError now rather than after minutes of inference."""
    if path.is_dir():
        raise FedMedError(f"{path} is a folder; give the name of a file, such as {path / 'seg.dcm'}")
    if path.exists() and not replace:
        raise FedMedError(f"{path} exists; --replace overwrites it")
    if not path.parent.is_dir():
        raise FedMedError(f"the folder {path.parent} does not exist; make it or choose another OUT")
    if not os.access(path.parent, os.W_OK):
        raise FedMedError(f"the folder {path.parent} is read-only; choose another OUT")
