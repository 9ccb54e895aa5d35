"""What is known about one CT volume: where it was found, and the result of its inspection."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """One volume as it was found; only its name has been read.

    Attributes:
        case: name of the case, unique at the site, usable as a file name.
        key: path relative to the scanned folder, without extension; patient patterns are searched in it.
        images: the NIfTI file, or the files of a DICOM series in the order of their slices.
        mask: NIfTI mask of the case, or None.
        patient: whose volume it is, or None when only the DICOM header can tell.
        dicom: whether ``images`` are DICOM files.
    """

    case: str
    key: str
    images: tuple[Path, ...]
    mask: Path | None = None
    patient: str | None = None
    dicom: bool = False


@dataclass
class Checked:
    """What every preparation knows of a volume or image after its inspection.

    Attributes:
        case: its name, unique at the site.
        patient: whose volume or image it is; if a DICOM header tells it, a pseudonym of its PatientID.
        faults: why it is refused; empty for a usable one.
        notes: what a person should look at, but no reason to refuse it.
        lists: the datalist keys that hold it.
    """

    case: str
    patient: str
    faults: list[str] = field(default_factory=list, kw_only=True)
    notes: list[str] = field(default_factory=list, kw_only=True)
    lists: list[str] = field(default_factory=list, kw_only=True)

    @property
    def usable(self) -> bool:
        """Whether no fault was found."""
        return not self.faults


@dataclass
class Case(Checked):
    """One volume after inspection; a line of ``prepare_report.csv``.

    Attributes:
        image, mask: NIfTI files that training will read; a DICOM series has been converted.
        found: where the image was found: the NIfTI file, or the folder of the series.
        shape, spacing: voxels and mm along the three axes of the array.
        hu_min, hu_mean, hu_max: of all voxels.
        mask_ml: volume of the mask in ml, None without a mask.
        content: SHA-256 of the voxel values; equal for copies of one volume.
    """

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
