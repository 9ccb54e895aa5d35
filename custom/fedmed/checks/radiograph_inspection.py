"""Inspection of radiographs whose labels are classes, in a site's check."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import parsed
from fedmed.checks.bins import Bins
from fedmed.checks.entries import Cases, Entry
from fedmed.checks.inspection import ClassInspection, with_lists
from fedmed.checks.site_findings import SiteFinding, data_finding
from fedmed.data.image_size import file_fault
from fedmed.data.prepare.case import Case, content_hash
from fedmed.data.prepare.folder import readable_kind
from fedmed.data.prepare.pool import DIED, Track, run_all
from fedmed.data.prepare.xray_view import TAKEN, view_of
from fedmed.errors import DataError, first_line

READS = "cxr_classification"  # the bundle that reads radiographs where no job names one
PICTURE = 4 * 256**2  # bytes of a prepared radiograph, where no job says its size
POOL_FROM = 64  # images; for fewer, processes take longer to start than this one to read
FORMATS = {b"\x89PNG": "PNG", b"\xff\xd8\xff": "JPEG", b"": "DICOM"}  # how a file begins


@dataclass
class InspectedRadiograph(Case):
    """One radiograph after its inspection: ``shape`` is (rows, columns); there is no spacing and no HU.

    Attributes:
        mean: mean brightness, 0 (black) to 1.
        kind: ``DICOM``, ``PNG`` or ``JPEG``.
        view: PA, AP, LL, … where a DICOM header says it.
    """

    mean: float | None = None
    kind: str = ""
    view: str = ""


class RadiographInspection(ClassInspection):
    """Pictures, opened by the reader of the bundle that will train on them."""

    noun = "image"
    facts = (
        ("Pixels along the longer side", (128, 256, 512, 1024, 2048, 3072), lambda case: max(case.shape)),
        ("Pixels along the shorter side", (128, 256, 512, 1024, 2048, 3072), lambda case: min(case.shape)),
        ("Mean brightness, 0 (black) to 1", (0.2, 0.35, 0.5, 0.65, 0.8), lambda case: getattr(case, "mean", None)),
    )

    def open(
        self,
        entries: Sequence[Entry],
        workers: int = 1,
        track: Track | None = None,
        bundle: str | None = None,
        site_bundles: Path | None = None,
    ) -> dict[Entry, Case]:
        paths = list(dict.fromkeys(entry.image for entry in entries))
        work = partial(inspect_picture, bundle=bundle or READS, site_bundles=site_bundles)
        apart = any(readable_kind(path) == "DICOM" for path in paths)  # its decoders may take any memory
        inspected = run_all(work, paths, workers if len(paths) >= POOL_FROM else 1, track, apart=apart, died=_died)
        cases = dict(zip(paths, inspected, strict=True))
        return with_lists({entry: cases[entry.image] for entry in entries})

    def judge_images(self, cases: Cases, size: int | None) -> Iterator[SiteFinding]:
        """Find images that cannot be read, that have two classes, or that are smaller than the network's input."""
        labelled: dict[str, list[Entry]] = defaultdict(list)  # by content
        for entry, case in cases.items():
            for fault in case.faults:
                yield data_finding("picture", f"{entry.where}: {fault}", entry.list, entry.number)
            for note in case.notes:
                text = f"{entry.where}: {note}; remove the entry unless it was meant"
                yield data_finding("view", text, entry.list, entry.number)
            if case.usable and entry.label is not None:
                labelled[case.content].append(entry)
        for same in labelled.values():
            if len({entry.label for entry in same}) > 1:
                shown = "; ".join(f"{entry.where} as '{entry.label}'" for entry in same[:4])
                first, *others = ((entry.list, entry.number) for entry in same)
                text = f"the same image is listed with two classes: {shown}; keep the right one"
                yield data_finding("two_classes", text, *first, also=tuple(others))
        usable = {id(case): case for case in cases.values() if case.usable}.values()
        if small := [case for case in usable if size is not None and max(case.shape) < size]:
            text = f"{len(small)} images are smaller than the network's input of {size} pixels, the first is "
            yield data_finding("small_picture", f"{text}{small[0].case}; export them in full size if there is more")

    def bins(self, cases: Sequence[Case]) -> list[Bins]:
        formats = Counter(case.kind for case in cases if case.usable and isinstance(case, InspectedRadiograph))
        kinds = [Bins("Files", tuple((name, formats[name]) for name in ("DICOM", "PNG", "JPEG")))] if formats else []
        return super().bins(cases) + kinds

    def cache_bytes(self, entries: Sequence[Entry], cases: Cases, sample: Sequence[Entry], mean: float | None) -> int:
        """Prepared radiographs are all of one size."""
        return round((mean or PICTURE) * len({e.image for e in entries if e not in cases or cases[e].usable}))


@cache  # once in each worker process
def _reader(bundle: str, site_bundles: Path | None) -> Any:
    """The first transform of the bundle's preparation, which reads the file."""
    parser = Bundle(bundle, site_bundles=site_bundles).parser(device="cpu")
    return parsed(parser, "validate#preprocessing").flatten().transforms[0]


def inspect_picture(path: Path, bundle: str, site_bundles: Path | None) -> InspectedRadiograph:
    """Read one image. Never raises for bad data: the faults stand in the returned case.

    Raises:
        BundleError: the bundle cannot be opened.
    """
    case, reader = InspectedRadiograph(path.name, path.name, path, path), _reader(bundle, site_bundles)
    try:
        if fault := file_fault(path):
            raise DataError(fault)
        with path.open("rb") as stream:
            head = stream.read(4)
        case.kind = next(kind for start, kind in FORMATS.items() if head.startswith(start))
        image = np.asarray(reader({"image": str(path)})["image"])[0]
        if case.kind == "DICOM":
            from fedmed.data.prepare.dicom_headers import read_header  # it needs an extra, as other files do not

            header = read_header(path)
            case.view = view_of(header)
            if note := TAKEN.fault(case.view, str(header.get("BodyPartExamined") or "")):
                case.notes.append(note)
    except MemoryError:
        case.faults.append("does not fit into memory; check with --workers 1 or on a machine with more memory")
    except Exception as error:  # noqa: BLE001 - the reader is the bundle's, its decoders have exceptions of their own
        case.faults.append(re.sub(rf"^{re.escape(str(path))}:? ?", "", first_line(error)))  # the entry's place says it
    else:
        case.shape, case.mean = tuple(map(int, image.shape)), round(float(image.mean(dtype=np.float64)), 4)
        case.content = content_hash(image)
    return case


def _died(path: Path) -> InspectedRadiograph:
    return InspectedRadiograph(path.name, path.name, path, path, faults=[DIED])
