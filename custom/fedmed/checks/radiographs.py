"""Open every radiograph of a site once, with the reader of the bundle that will train on it. Nothing is written."""

import multiprocessing
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedmed.bundles.load import Bundle
from fedmed.bundles.network import parsed
from fedmed.checks.entries import Entry
from fedmed.data.prepare.case import Case
from fedmed.data.prepare.inspect import content_hash
from fedmed.data.prepare.pool import Track
from fedmed.errors import DataError

POOL_FROM = 64  # images; for fewer, processes take longer to start than this one to read
KINDS = {b"\x89PNG": "PNG", b"\xff\xd8\xff": "JPEG"}


@dataclass
class InspectedRadiograph(Case):
    """One radiograph after its inspection: ``shape`` is (rows, columns); there is no spacing and no HU.

    Attributes:
        mean: mean brightness, 0 (black) to 1.
        kind: ``DICOM``, ``PNG`` or ``JPEG``.
    """

    mean: float | None = None
    kind: str = ""


_reader: Any = None  # of a worker process


def inspect_pictures(
    entries: Sequence[Entry],
    bundle: str,
    bundles: Path | None = None,
    workers: int = 1,
    track: Track | None = None,
) -> dict[Entry, Case]:
    """Inspect the images of all entries; one that several entries name is opened once.

    Args:
        entries: what is listed.
        bundle: whose reader opens the images.
        bundles: the site's own folder of bundles.
        workers: processes.
        track: shows progress.

    Raises:
        BundleError: the bundle cannot be opened.
        DataError: a worker process died.
    """
    paths = list(dict.fromkeys(entry.image for entry in entries))
    track = track or (lambda cases, total: cases)
    if workers <= 1 or len(paths) < POOL_FROM:
        _open_reader(bundle, bundles)
        cases = list(track(map(inspect_picture, paths), len(paths)))
    else:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, context, _open_reader, (bundle, bundles)) as pool:
            try:
                cases = list(track(pool.map(inspect_picture, paths, chunksize=8), len(paths)))
            except BrokenProcessPool as error:
                raise DataError("a worker process died, probably for lack of memory; use --workers 1") from error
    return _of_entries(entries, dict(zip(paths, cases, strict=True)))


def _of_entries(entries: Iterable[Entry], cases: Mapping[Path, Case]) -> dict[Entry, Case]:
    for entry in entries:
        cases[entry.image].lists.append(entry.list)
        cases[entry.image].patient = entry.patient or cases[entry.image].patient
    return {entry: cases[entry.image] for entry in entries}


def _open_reader(bundle: str, bundles: Path | None) -> None:
    """Take the first transform of the bundle's preparation, which reads the file."""
    global _reader
    parser = Bundle(bundle, site_bundles=bundles).parser(device="cpu")
    _reader = parsed(parser, "validate#preprocessing").flatten().transforms[0]


def inspect_picture(path: Path) -> InspectedRadiograph:
    """Read one image. Never raises for bad data: the faults stand in the returned case."""
    case = InspectedRadiograph(path.name, path.name, path, path)
    try:
        case.kind = _kind(path)
        image = np.asarray(_reader({"image": str(path)})["image"])[0]
    except MemoryError:
        case.faults.append("does not fit into memory; check with --workers 1 or on a machine with more memory")
    except Exception as error:  # noqa: BLE001 - the reader is the bundle's, its decoders have exceptions of their own
        case.faults.append(_plain(error, path))
    else:
        case.shape, case.mean = tuple(map(int, image.shape)), round(float(image.mean(dtype=np.float64)), 4)
        case.content = content_hash(image)
    return case


def _kind(path: Path) -> str:
    with path.open("rb") as stream:
        head = stream.read(4)
    return next((kind for start, kind in KINDS.items() if head.startswith(start)), "DICOM")


def _plain(error: BaseException, path: Path) -> str:
    """What the reader said, without the path, which the entry's place replaces."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return re.sub(rf"^{re.escape(str(path))}:? ?", "", text)
