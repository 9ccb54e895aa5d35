"""What is known about one CT volume: where it was found, and what its inspection said."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Source:
    """One volume as it was found, before anything but its name was looked at.

    Attributes:
        case: name of the case, unique in the site, usable as a file name.
        key: path relative to the scanned folder, without extension; patient patterns are searched in it.
        images: the NIfTI file, or the files of a DICOM series in the order of their slices.
        mask: NIfTI mask of the case, or None.
        patient: who it belongs to, or None when only the DICOM header can tell.
        dicom: whether ``images`` are DICOM files.
    """

    case: str
    key: str
    images: tuple[Path, ...]
    mask: Path | None = None
    patient: str | None = None
    dicom: bool = False


class Checked(Protocol):
    """What every preparation knows of a volume or image: its name, what speaks against it, where it is listed."""

    case: str
    patient: str
    faults: list[str]
    notes: list[str]
    lists: list[str]

    @property
    def usable(self) -> bool: ...


@dataclass
class Case:
    """One volume after inspection; a line of ``prepare_report.csv``.

    Attributes:
        case, patient: as in :class:`Source`; the patient of a DICOM series is a pseudonym of its PatientID.
        image, mask: NIfTI files that training will read; a DICOM series has been converted.
        found: what the image was found as: the NIfTI file, or the folder of the series.
        shape, spacing: voxels and mm along the three axes of the array.
        hu_min, hu_mean, hu_max: of all voxels.
        mask_ml: volume of the mask in ml, None without a mask.
        content: SHA-256 of the voxel values; equal for copies of one volume under two names.
        faults: why the case is refused; empty for a usable case.
        notes: what a person should look at, without being a reason to refuse.
        lists: the datalist keys that hold the case.
    """

    case: str
    patient: str
    found: Path
    image: Path | None = None
    mask: Path | None = None
    shape: tuple[int, ...] = ()
    spacing: tuple[float, ...] = ()
    hu_min: float | None = None
    hu_mean: float | None = None
    hu_max: float | None = None
    mask_ml: float | None = None
    content: str = ""
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lists: list[str] = field(default_factory=list)

    @property
    def usable(self) -> bool:
        """Whether nothing speaks against the case."""
        return not self.faults
