"""The slices of a CT series: one a file, or the frames of an Enhanced CT file, each with a header of its own.

ITK takes the frames of a file in the order in which they are stored, with one spacing and the scale of the first, and
inverts the values of MONOCHROME1, which is a word about display. Both are read here, with pydicom.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from fedmed.data.geometry import to_ras
from fedmed.errors import DataError, first_line
from fedmed.optional import needs

with needs("dicom", "DICOM files"):
    from pydicom import Dataset

OF_FRAME = {  # attribute of a classic slice -> its names in the functional groups of a frame
    **{name: (name,) for name in ("ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing", "SliceThickness")},
    **{name: (name,) for name in ("RescaleIntercept", "RescaleSlope", "RescaleType", "KVP", "ConvolutionKernel")},
    **{name: (name,) for name in ("BodyPartExamined", "AnatomicRegionSequence")},
    "AcquisitionNumber": ("AcquisitionNumber", "FrameAcquisitionNumber"),
    "TemporalPositionIdentifier": ("TemporalPositionIdentifier", "TemporalPositionIndex"),
}
OF_FILE = (
    *("SOPClassUID", "Modality", "PatientID", "StudyInstanceUID", "FrameOfReferenceUID", "Rows", "Columns"),
    *("SamplesPerPixel", "PhotometricInterpretation", "BitsAllocated", "BitsStored", "PixelRepresentation"),
)


@dataclass(frozen=True)
class Slice:
    """A file's only picture, or one of its frames (counted from 0), with the header that a classic slice has."""

    path: Path
    head: Dataset
    frame: int | None = None

    @property
    def name(self) -> str:
        """Name for errors."""
        return self.path.name if self.frame is None else f"frame {self.frame + 1} of {self.path.name}"

    @property
    def position(self) -> np.ndarray:
        """(3,) in mm; AttributeError, TypeError or ValueError where none can be read."""
        return np.array(self.head.ImagePositionPatient, dtype=float).reshape(3)

    @property
    def orientation(self) -> np.ndarray:
        """(6,): direction of a row, then of a column; errors as for the position."""
        return np.array(self.head.ImageOrientationPatient, dtype=float).reshape(6)


def depths(slices: Sequence[Slice]) -> np.ndarray:
    """Depth of each slice along the normal of the first, in mm; errors as for a slice's position."""
    along = slices[0].orientation
    return np.array([each.position for each in slices]) @ np.cross(along[:3], along[3:])


def slices_of(heads: Sequence[Dataset], files: Sequence[Path]) -> list[Slice]:
    """The slices of files with these headers: in the order of the files, frames by their positions.

    Raises:
        DataError: a file of several frames that does not say where each of them lies.
    """
    if not any(_has_frames(head) for head in heads):
        return [Slice(path, head) for path, head in zip(files, heads, strict=True)]
    slices = [each for path, head in zip(files, heads, strict=True) for each in _frames(path, head)]
    try:
        return [slices[n] for n in np.argsort(depths(slices), kind="stable")]
    except (AttributeError, TypeError, ValueError) as error:
        raise DataError("a frame has no readable position or orientation (0020,0032 and 0020,0037)") from error


def itk_reads(slices: Sequence[Slice]) -> bool:
    """True where ITK reads values and places of these slices as they are meant."""
    inverted = any(each.head.get("PhotometricInterpretation") == "MONOCHROME1" for each in slices)
    return not inverted and all(each.frame is None for each in slices)


def read_slices(slices: Sequence[Slice]) -> tuple[np.ndarray, np.ndarray]:
    """Return stored value × slope + intercept of each slice, (X, Y, Z) float32, and the affine (4, 4) to mm in RAS.

    Raises:
        DataError: pixels that cannot be decoded, or slices of different size.
    """
    columns, rows = int(slices[0].head.Columns), int(slices[0].head.Rows)
    array = np.empty((columns, rows, len(slices)), np.float32)
    numbered = sorted(enumerate(slices), key=lambda pair: (str(pair[1].path), pair[1].frame or 0))
    for path, pairs in groupby(numbered, key=lambda pair: pair[1].path):
        of_file = list(pairs)
        for (z, each), stored in zip(of_file, _pixels(path, [each for _, each in of_file]), strict=True):
            if stored.shape != (rows, columns):
                raise DataError(f"{each.name} has shape {stored.shape}, not {(rows, columns)}; export the series again")
            array[:, :, z] = stored.T * float(each.head.RescaleSlope) + float(each.head.RescaleIntercept)
    return array, _affine(slices)


def _has_frames(head: Dataset) -> bool:
    return int(head.get("NumberOfFrames") or 1) > 1 or "PerFrameFunctionalGroupsSequence" in head


def _frames(path: Path, head: Dataset) -> Iterator[Slice]:
    count = int(head.get("NumberOfFrames") or 1)
    groups = list(head.get("PerFrameFunctionalGroupsSequence") or [])
    if len(groups) != count:
        raise DataError(f"{path.name} has {count} frames and says the place of {len(groups)}; export the series again")
    shared = list(head.get("SharedFunctionalGroupsSequence") or [])
    for number in range(count):
        flat = Dataset()
        for name in OF_FILE:
            if name in head:
                setattr(flat, name, head.get(name))
        for group in (head, *_groups(shared), *_groups([groups[number]])):  # the last word is the frame's
            for name, others in OF_FRAME.items():
                for other in others:
                    if other in group:
                        setattr(flat, name, group.get(other))
        yield Slice(path, flat, number)


def _groups(items: Sequence[Dataset]) -> list[Dataset]:
    """Contents of the sequences of functional groups."""
    return [inner for item in items for element in item if element.VR == "SQ" for inner in element.value]


def _pixels(path: Path, slices: Sequence[Slice]) -> Iterator[np.ndarray]:
    """Stored values (rows, columns) of some slices of one file, without what lies beyond their bits."""
    from pydicom.pixels import iter_pixels  # not there in pydicom 2, which MONAI Label has and no series is read with

    head = slices[0].head
    bits, signed = int(head.get("BitsStored") or 16), bool(head.get("PixelRepresentation"))
    try:
        for stored in iter_pixels(path, indices=[each.frame or 0 for each in slices], raw=True):
            values = stored.astype(np.int64) & (2**bits - 1)
            yield np.where(values >> (bits - 1), values - 2**bits, values) if signed else values
    except Exception as error:  # noqa: BLE001 - its decoders fail in many ways
        if isinstance(error, MemoryError):
            raise
        raise DataError(f"{path.name} cannot be decoded ({first_line(error)}); export it uncompressed") from error


def _affine(slices: Sequence[Slice]) -> np.ndarray:
    first, last = slices[0], slices[-1]
    along_row, along_column = first.orientation[:3], first.orientation[3:]
    down, across = (float(size) for size in first.head.PixelSpacing)  # between rows, then between columns
    if len(slices) > 1:
        step = (last.position - first.position) / (len(slices) - 1)
    else:
        step = np.cross(along_row, along_column) * float(first.head.get("SliceThickness") or 1)
    affine = np.eye(4)
    affine[:3] = np.stack([along_row * across, along_column * down, step, first.position], axis=1)
    return to_ras(affine)
