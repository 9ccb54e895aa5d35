"""DICOM files that make a library take gigabytes are refused before one is given them."""

import struct
import zlib

import pytest

from fedmed.data import dicom_start
from fedmed.data.dicom_start import dicom_fault, is_dicom

LONG = {b"OB", b"UN", b"UT", b"XX"}


def element(group, number, kind, value, length=None):
    length = len(value) if length is None else length
    form = "<HH2sHI" if kind in LONG else "<HH2sH"
    numbers = (0, length) if kind in LONG else (length,)
    return struct.pack(form, group, number, kind, *numbers) + value


def dicom(*more, syntax=b"1.2.840.10008.1.2.1\0", body=b"", preamble=bytes(128) + b"DICM"):
    meta = element(2, 1, b"OB", b"\0\1") + element(2, 0x10, b"UI", syntax) + b"".join(more)
    return preamble + element(2, 0, b"UL", struct.pack("<I", len(meta))) + meta + body


@pytest.fixture
def fault_of(tmp_path):
    def fault_of(content):
        (tmp_path / "a").write_bytes(content)
        return dicom_fault(tmp_path / "a")

    return fault_of


@pytest.mark.parametrize("kind", [b"OB", b"UN", b"UT"])
@pytest.mark.parametrize("preamble", [bytes(128) + b"DICM", b""])
def test_a_length_that_the_file_does_not_have_is_refused(fault_of, kind, preamble):
    fault = fault_of(dicom(element(2, 0x102, kind, bytes(100), 3_200_000_000), preamble=preamble))
    assert fault.startswith("is damaged DICOM: (0002,0102) at its start states 3200000000 bytes, of a file of")


def test_an_element_of_no_known_type_is_refused(fault_of):
    assert "(0002,0102) at its start is of no known type" in fault_of(dicom(element(2, 0x102, b"XX", bytes(4))))


def test_endless_elements_are_refused(fault_of):
    assert "more than 1000 elements" in fault_of(dicom(*[element(2, 0x102, b"UI", b"")] * 1000))


def test_sound_files_and_others_pass(fault_of):
    body = element(8, 0x60, b"CS", b"CT")
    assert fault_of(dicom(body=body)) == fault_of(dicom(body=body, preamble=b"")) == ""
    assert fault_of(b"") == fault_of(b"\x02\x00\x01") == fault_of(b"\x89PNG") == fault_of(bytes(128) + b"DICM") == ""


def test_a_deflated_file_is_counted_piece_by_piece(fault_of, monkeypatch):
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = packer.compress(bytes(50_000_000)) + packer.flush()
    content = dicom(syntax=dicom_start.DEFLATED, body=body)
    assert len(content) < 60_000 and fault_of(content) == ""
    monkeypatch.setattr(dicom_start, "allowed_bytes", lambda: 20_000_000)
    assert "unpacked it has more than 0.02 GB" in fault_of(content)
    assert fault_of(dicom(syntax=dicom_start.DEFLATED, body=b"damaged")) == ""


def test_elements_without_a_type_are_held_against_the_file_too(fault_of):
    element = struct.pack("<HHI", 2, 0x10, 4) + b"1.2\0"
    assert fault_of(bytes(128) + b"DICM" + element) == ""
    assert "states 196608 bytes" in fault_of(bytes(128) + b"DICM" + struct.pack("<HHI", 2, 0x10, 196608))


def test_dicom_is_known_by_how_it_begins():
    body = element(8, 0x16, b"UI", b"1.2.840.10008.5.1.4.1.1.1.1\0")
    implicit = struct.pack("<HHI", 8, 0x16, 28) + body[8:]
    for content in (dicom(), dicom(preamble=b""), body, implicit, bytes(128) + b"DICM"):
        assert is_dicom(content[:132])
    others = (b"", bytes(200), b"\x08\0", b"\x08\0 text in a file", b"\x89PNG\r\n\x1a\n")
    for content in (*others, element(0x10, 0x10, b"PN", b"A^B")):
        assert not is_dicom(content[:132])
