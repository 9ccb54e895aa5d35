"""What is known about one X-ray image: where it was found, and the result of its inspection."""

from dataclasses import dataclass
from pathlib import Path

from fedmed.data.prepare.case import Checked


@dataclass(frozen=True)
class XraySource:
    """One image as it was found; its pixels have not been read.

    Attributes:
        case: path relative to the scanned folder, with ``/`` and with extension; unique at the site.
        path: the file.
        patient: whose image it is; None when only the DICOM header can tell, "" when it is unknown.
        label: name of its class, "" without a label.
        fault: why it is refused before it is read, "" if it is not.
    """

    case: str
    path: Path
    patient: str | None = None
    label: str = ""
    fault: str = ""


@dataclass
class XrayCase(Checked):
    """One image after inspection; a line of ``prepare_report.csv``.

    Attributes:
        label: as in :class:`XraySource`.
        image: the file that training will read.
        kind: PNG, JPEG or DICOM.
        modality, view: as the DICOM header says, else "".
        rows, columns: pixels.
        low, high: smallest and largest stored value.
        content: SHA-256 of the grey values; equal for copies of one image.
    """

    label: str = ""
    image: Path | None = None
    kind: str = ""
    modality: str = ""
    view: str = ""
    rows: int | None = None
    columns: int | None = None
    low: int | None = None
    high: int | None = None
    content: str = ""
