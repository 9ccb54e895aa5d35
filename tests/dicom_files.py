"""DICOM series written byte by byte, so that no DICOM library checks itself; and changes to them."""

import struct
from pathlib import Path

import numpy as np
import pydicom

CT_STORAGE = "1.2.840.10008.5.1.4.1.1.2"
EXPLICIT_LITTLE = "1.2.840.10008.1.2.1"
LONG = {"OB", "OW", "UN", "SQ"}


def dicom_series(
    folder: Path,
    stored: np.ndarray,
    *,
    spacing: tuple[float, float, float] = (0.7, 0.8, 2.5),
    origin: tuple[float, float, float] = (-10.0, -20.0, 30.0),
    slope: float = 1.0,
    intercept: float = -1024.0,
    patient: str = "P1",
    modality: str = "CT",
    series: int = 1,
    leave_out: tuple[int, ...] = (),
    tilt: float = 0.0,
) -> None:
    """Write ``stored`` (X, Y, Z; uint16), axial, y shifted by ``tilt`` mm a slice; files in reverse order."""
    folder.mkdir(parents=True, exist_ok=True)
    depth = stored.shape[2]
    for z in range(depth):
        if z in leave_out:
            continue
        position = (origin[0], origin[1] + tilt * z, origin[2] + spacing[2] * z)
        uid = f"1.2.3.{series}.{z + 1}"
        body = [
            (0x0008, 0x0016, "UI", CT_STORAGE),
            (0x0008, 0x0018, "UI", uid),
            (0x0008, 0x0060, "CS", modality),
            (0x0010, 0x0010, "PN", "Doe^Jane"),
            (0x0010, 0x0020, "LO", patient),
            (0x0018, 0x0050, "DS", f"{spacing[2]}"),
            (0x0020, 0x000D, "UI", "1.2.3"),
            (0x0020, 0x000E, "UI", f"1.2.3.{series}"),
            (0x0020, 0x0011, "IS", f"{series}"),
            (0x0020, 0x0013, "IS", f"{z + 1}"),
            (0x0020, 0x0032, "DS", "\\".join(f"{value:.6g}" for value in position)),
            (0x0020, 0x0037, "DS", "1\\0\\0\\0\\1\\0"),
            (0x0020, 0x0052, "UI", "1.2.3.99"),
            (0x0028, 0x0002, "US", 1),
            (0x0028, 0x0004, "CS", "MONOCHROME2"),
            (0x0028, 0x0010, "US", stored.shape[1]),
            (0x0028, 0x0011, "US", stored.shape[0]),
            (0x0028, 0x0030, "DS", f"{spacing[1]}\\{spacing[0]}"),
            (0x0028, 0x0100, "US", 16),
            (0x0028, 0x0101, "US", 16),
            (0x0028, 0x0102, "US", 15),
            (0x0028, 0x0103, "US", 0),
            (0x0028, 0x1052, "DS", f"{intercept}"),
            (0x0028, 0x1053, "DS", f"{slope}"),
            (0x7FE0, 0x0010, "OW", stored[:, :, z].T.astype("<u2").tobytes()),
        ]
        (folder / f"slice{depth - z:03d}.dcm").write_bytes(_file(uid, body))


def change_slices(folder: Path, *names: str, **values: object) -> None:
    """Set attributes in the slices of these names, or in every slice; None removes."""
    for path in [folder / name for name in names] or sorted(folder.iterdir()):
        head = pydicom.dcmread(path)
        for name, value in values.items():
            head.pop(name, None)
            if value is not None:
                setattr(head, name, value)
        head.save_as(path)


def compress(path: Path) -> None:
    """Turn an uncompressed DICOM file into JPEG Lossless, as most archives send it."""
    import gdcm  # nothing else here needs it

    reader = gdcm.ImageReader()
    reader.SetFileName(str(path))
    assert reader.Read()
    change = gdcm.ImageChangeTransferSyntax()
    change.SetTransferSyntax(gdcm.TransferSyntax(gdcm.TransferSyntax.JPEGLosslessProcess14_1))
    change.SetInput(reader.GetImage())
    assert change.Change()
    writer = gdcm.ImageWriter()
    writer.SetFile(reader.GetFile())
    writer.SetImage(change.GetOutput())
    writer.SetFileName(str(path))
    assert writer.Write()


def _file(uid: str, body: list[tuple]) -> bytes:
    meta = b"".join(
        _element(*item)
        for item in (
            (0x0002, 0x0001, "OB", b"\x00\x01"),
            (0x0002, 0x0002, "UI", CT_STORAGE),
            (0x0002, 0x0003, "UI", uid),
            (0x0002, 0x0010, "UI", EXPLICIT_LITTLE),
            (0x0002, 0x0012, "UI", "1.2.3.4"),
        )
    )
    head = _element(0x0002, 0x0000, "UL", len(meta))
    return b"\x00" * 128 + b"DICM" + head + meta + b"".join(_element(*item) for item in body)


def _element(group: int, number: int, kind: str, value: object) -> bytes:
    if isinstance(value, int):
        data = struct.pack("<I" if kind == "UL" else "<H", value)
    else:
        data = value if isinstance(value, bytes) else value.encode()
    if len(data) % 2:
        data += b"\x00" if kind in ("UI", "OB") else b" "
    length = struct.pack("<2xI", len(data)) if kind in LONG else struct.pack("<H", len(data))
    return struct.pack("<HH", group, number) + kind.encode() + length + data
