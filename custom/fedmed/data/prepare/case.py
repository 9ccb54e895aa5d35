"""Facts about a CT volume, an X-ray image or a video: where it was found, and what its inspection said."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedmed.data.patients import BLOCKS_OF, stripped
from fedmed.data.video.stored_video import StoredVideo


class Volume(NamedTuple):
    """Candidate for a volume: a NIfTI file, or the files of a DICOM series."""

    key: str  # path relative to the folder that was searched, without ending
    files: tuple[Path, ...]
    series: bool
    fault: str = ""  # why it is refused before it is read


@dataclass(frozen=True)
class Source:
    """One volume or image as it was found; no voxel has been read."""

    case: str  # its name, unique at the site
    files: tuple[Path, ...]  # a NIfTI file, the files of a DICOM series in the order of their slices, or an X-ray image
    patient: str | None = None  # None when only the DICOM header can tell
    mask: Path | None = None  # NIfTI, of a volume
    label: str = ""  # name of an X-ray's class
    view: str = ""  # of an X-ray, where a table says it
    fault: str = ""  # why it is refused before it is read
    series: bool = False  # whether the files are a DICOM series
    patient_said: bool = True  # False where a file without an id is a patient of its own


@dataclass
class Checked:
    """Facts about any volume, image or video after its inspection; a line of ``prepare_report.csv``."""

    case: str  # its name, unique at the site
    patient: str  # if a DICOM header tells it, a pseudonym of its PatientID
    found: Path  # the file, or the folder of a DICOM series
    image: Path | None = None  # the file that training will read; a DICOM series of CT has been converted
    mask: Path | None = None
    shape: tuple[int, ...] = ()  # voxels along the three axes, or rows and columns
    content: str = ""  # SHA-256 of the values; equal for copies
    label: str = field(default="", kw_only=True)  # name of its class
    faults: list[str] = field(default_factory=list, kw_only=True)  # why it is refused; empty for a usable one
    notes: list[str] = field(default_factory=list, kw_only=True)  # what to look at, but no reason to refuse it
    lists: list[str] = field(default_factory=list, kw_only=True)  # of the datalist
    patient_said: bool = field(default=True, kw_only=True)  # False: it counts as a patient of its own
    patient_key: str = field(default="", kw_only=True)  # of a DICOM header's id: what its spellings have in common

    @property
    def usable(self) -> bool:
        """True where no fault was found."""
        return not self.faults

    def named(self) -> dict[str, Path | str]:
        """Files and words that its entry of the datalist names beside the patient; "" for nothing."""
        return {"image": self.image or self.found, "label": self.mask or self.label}


@dataclass
class Case(Checked):
    """One CT volume: spacing in mm along the axes of the array, HU of all voxels, and the mask's volume in ml."""

    spacing: tuple[float, ...] = ()
    hu_min: float | None = None
    hu_mean: float | None = None
    hu_max: float | None = None
    mask_ml: float | None = None


@dataclass
class XrayCase(Checked):
    """One image: PNG, JPEG or DICOM; its modality, its view, and its smallest and largest stored value."""

    kind: str = ""
    modality: str = ""
    view: str = ""
    low: int | None = None
    high: int | None = None


@dataclass
class VideoCase(Case):
    """One video: ``shape`` is (frames, height, width) as foretold, ``label`` what is known of it, such as "tools"."""

    table: Path | None = None  # of its labels; ``mask`` is the folder of its masks
    columns: tuple[str, ...] = ()  # of the table, beside the second
    seconds: float = 0.0  # its length
    sizes: str = ""  # of its own frames, such as "480x854"
    masks: int = 0  # how many there are
    rows: int = 0  # of the table
    shown: dict[str, int] = field(default_factory=dict)  # tool -> how many rows show it
    lasting: dict[str, int] = field(default_factory=dict)  # phase -> how many rows are of it
    white: int = 0  # frames looked at that are so
    dark: int = 0
    out_of_body: int = 0
    stored: StoredVideo | None = None  # what is known of its frames, at the rate at which they were looked at
    blocks_of: str = ""  # the patient, where parts of one recording are in several lists on purpose

    def named(self) -> dict[str, Path | str]:
        files = {"video": self.image or self.found, "labels": self.table or "", "masks": self.mask or ""}
        return {**files, BLOCKS_OF: self.blocks_of}


def content_hash(values: np.ndarray) -> str:
    """SHA-256 of shape and values, independent of the type in which they are stored."""
    head = ",".join(map(str, values.shape)).encode()
    digest = hashlib.sha256(head)
    for part in values.T:  # slice by slice: the whole would be copied twice
        digest.update(np.ascontiguousarray(part, dtype="<f4").tobytes())
    return digest.hexdigest()


def pseudonym(patient: str) -> str:
    """The name that a datalist, which others may see, has instead of a PatientID; "" for blanks."""
    patient = stripped(patient)
    return "patient-" + hashlib.sha256(patient.encode()).hexdigest()[:12] if patient else ""
