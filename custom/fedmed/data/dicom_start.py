"""The start of a DICOM file, before a library reads it: GDCM takes gigabytes for a length that the file does not have.

The file's first group (0002) says how the rest is stored. GDCM allocates whatever length one of its elements states
(CVE-2026-3650), and pydicom unpacks a deflated file at once, however small it is on the disk.
"""

import zlib
from pathlib import Path
from typing import BinaryIO

from fedmed.data.read_limits import GB, allowed_bytes, file_bytes

MARK_AT, MARK, GROUP = 128, b"DICM", b"\x02\x00"
LONG = {b"OB", b"OD", b"OF", b"OL", b"OV", b"OW", b"SQ", b"SV", b"UC", b"UN", b"UR", b"UT", b"UV"}
SHORT = {b"AE", b"AS", b"AT", b"CS", b"DA", b"DS", b"DT", b"FL", b"FD", b"IS", b"LO", b"LT", b"PN", b"SH", b"SL"}
SHORT |= {b"SS", b"ST", b"TM", b"UI", b"UL", b"US"}
SYNTAX, DEFLATED = b"\x02\x00\x10\x00", b"1.2.840.10008.1.2.1.99"
ELEMENTS = 1000  # of the first group; it has a dozen
CHUNK = 2**20
# A file without preamble begins with one of the first elements of group 2 or 8, whose values are short.
FIRST_GROUPS, LAST_FIRST, LONGEST_FIRST = (b"\x02\x00", b"\x08\x00"), 0x20, 256


def is_dicom(head: bytes) -> bool:
    """True where the first 132 bytes are DICOM's: the mark after the preamble, or without both an element that fits."""
    if head[MARK_AT : MARK_AT + len(MARK)] == MARK:
        return True
    element, length = (int.from_bytes(head[place], "little") for place in (slice(2, 4), slice(4, 8)))
    typed = head[4:6] in LONG | SHORT
    return head[:2] in FIRST_GROUPS and element <= LAST_FIRST and len(head) > 8 and (typed or length <= LONGEST_FIRST)


def dicom_fault(path: Path) -> str:
    """Reason to give a DICOM file to no library; "" for one that is sound at its start, or is not DICOM at all.

    Raises:
        OSError: it cannot be read.
        DataError: it is not a regular file.
    """
    size = file_bytes(path)
    with path.open("rb") as file:
        head = file.read(MARK_AT + len(MARK))
        marked = head[MARK_AT:] == MARK
        if not marked and not head.startswith(GROUP):
            return ""
        file.seek(len(head) if marked else 0)
        syntax, fault = _first_group(file, size)
        return fault or (_inflated(file) if syntax.rstrip(b"\0 ") == DEFLATED else "")


def _first_group(file: BinaryIO, size: int) -> tuple[bytes, str]:
    """The transfer syntax and what is wrong; afterwards the file stands behind the group."""
    syntax = b""
    for _ in range(ELEMENTS):
        begin = file.tell()
        head = file.read(8)
        if len(head) < 8 or not head.startswith(GROUP):
            file.seek(begin)
            return syntax, ""
        tag, kind = head[:4], head[4:6]
        if kind in LONG:
            length = int.from_bytes(file.read(4), "little")
        elif kind in SHORT:
            length = int.from_bytes(head[6:8], "little")
        elif not kind.isalpha():  # none is given, as in old files: the length stands in its place
            length = int.from_bytes(head[4:8], "little")
        else:
            return syntax, f"is damaged DICOM: {_tag(tag)} at its start is of no known type; export it again"
        if length > size - file.tell():
            what = f"{_tag(tag)} at its start states {length} bytes, of a file of {size}"
            return syntax, f"is damaged DICOM: {what}; export it again"
        value = file.read(length)
        syntax = value if tag == SYNTAX else syntax
    return syntax, f"is damaged DICOM: more than {ELEMENTS} elements at its start; export it again"


def _inflated(file: BinaryIO) -> str:
    """Unpack the rest piece by piece, and stop where it is too much."""
    unpacker, count, most = zlib.decompressobj(-zlib.MAX_WBITS), 0, allowed_bytes()
    try:
        while data := unpacker.unconsumed_tail or file.read(CHUNK):
            count += len(unpacker.decompress(data, CHUNK))
            if count > most:
                return f"does not fit into memory: unpacked it has more than {most / GB:.3g} GB; export it uncompressed"
            if unpacker.eof:
                break
    except zlib.error:
        pass  # its reader says what is damaged
    return ""


def _tag(tag: bytes) -> str:
    group, element = (int.from_bytes(tag[n : n + 2], "little") for n in (0, 2))
    return f"({group:04X},{element:04X})"
