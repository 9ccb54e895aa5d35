"""Small files that state or hold much are refused by header and file, before anything is unpacked."""

import gzip
import io
import os
import struct
import zlib

import nibabel as nib
import numpy as np
import pytest
from PIL import Image

from fedmed.data import image_size
from fedmed.data import read_limits as memory_share
from fedmed.data.image_size import StatedSize, file_fault, nifti_fault, picture, require_fits, size_fault, volume
from fedmed.errors import DataError

MEGA = 2**20


def nifti_start(*shape, dtype=np.int16, before=352, slope=None):
    """The header of a NIfTI file, and nothing after it."""
    kind = nib.Nifti1Header if max(shape) < 2**15 else nib.Nifti2Header
    header = kind()
    header.set_data_shape(shape)
    header.set_data_dtype(dtype)
    header["vox_offset"] = before
    header["magic"] = b"n+1" if kind is nib.Nifti1Header else b"n+2"
    if slope:
        header.set_slope_inter(slope, 0)
    return header.binaryblock + b"\0" * (before - len(header.binaryblock) if before < MEGA else 4)


def zeros_gz(start, count):
    """A packed file of ``start`` and ``count`` zeros, made piece by piece."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb") as file:
        file.write(start)
        for _ in range(count // MEGA):
            file.write(bytes(MEGA))
        file.write(bytes(count % MEGA))
    return packed.getvalue()


def png_start(width, height):
    """A PNG that states its size and holds nothing."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    size = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + size + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


@pytest.fixture
def free(monkeypatch):
    """Function that sets the free bytes of memory."""
    return lambda count: monkeypatch.setattr(image_size, "allowed_bytes", lambda: count)


def test_a_header_that_claims_too_much_is_refused_with_what_it_would_take(write):
    fault = file_fault(write("a.nii.gz", gzip.compress(nifti_start(1900, 1900, 1900))))
    assert fault.startswith("does not fit into memory: 1900×1900×1900 values take 68.6 GB to read, more than 16 GB")
    assert memory_share.MOST in fault
    assert "30000×30000×30000" in file_fault(write("b.nii", nifti_start(30_000, 30_000, 30_000)))
    extended = nifti_start(30_000, 30_000, 30_000, before=3376)[:348] + bytes([1, 0, 0, 0])
    extension = (3024).to_bytes(4, "little") + (6).to_bytes(4, "little") + b"comment " * 377
    assert "30000×30000×30000" in file_fault(write("extended.nii", extended + extension)), "longer than what is read"
    assert "70000×70000×70000" in file_fault(write("c.nii.gz", gzip.compress(nifti_start(70_000, 70_000, 70_000))))


def test_a_small_file_that_really_unpacks_to_much_is_refused_unread(write, free):
    path = write("zeros.nii.gz", zeros_gz(nifti_start(200, 200, 200), 16_000_000))
    assert path.stat().st_size < 20_000
    assert file_fault(path) == ""
    free(50_000_000)
    assert "0.08 GB to read, and 0.05 GB are free for one process; use --workers 1" in file_fault(path)


def test_values_that_are_scaled_take_eight_bytes(write, free):
    plain = write("a.nii", nifti_start(100, 100, 100) + bytes(2_000_000))
    scaled = write("b.nii", nifti_start(100, 100, 100, slope=0.5) + bytes(2_000_000))
    free(12_000_000)
    assert file_fault(plain) == "" and "0.016 GB" in file_fault(scaled)


def test_a_header_that_states_more_than_the_file_can_hold_is_unreadable(write, monkeypatch):
    short = file_fault(write("a.nii", nifti_start(100, 100, 100) + bytes(1000)))
    assert short.startswith("is unreadable (its header states 2000000 bytes of voxels, and it holds at most 1352)")
    monkeypatch.setattr(image_size, "_unpacked", lambda *_: pytest.fail("it was unpacked"))
    impossible = write("b.nii.gz", gzip.compress(nifti_start(300, 300, 300)))
    assert "unreadable" in file_fault(impossible)


def test_a_packed_file_is_counted_no_further_than_its_header_says(write, monkeypatch):
    start = nifti_start(200, 200, 200) + os.urandom(100_000)
    assert "it holds at most 10100352" in file_fault(write("a.nii.gz", zeros_gz(start, 10_000_000)))
    read = []
    monkeypatch.setattr(image_size, "len", lambda piece: read.append(1) or len(piece), raising=False)
    assert file_fault(write("b.nii.gz", zeros_gz(nifti_start(100, 100, 100), 30 * MEGA))) == ""
    assert len(read) == 2  # of 30 pieces


def test_the_gap_between_header_and_voxels_is_limited(write):
    fault = file_fault(write("a.nii.gz", zeros_gz(nifti_start(10, 10, 10, before=2_000_000_000), MEGA)))
    assert "2e+09 bytes before the first voxel" in fault


@pytest.mark.parametrize("side", [13_300, 50_000])
def test_a_picture_of_too_many_pixels_is_refused_by_its_header(write, side):
    assert file_fault(write("a.png", png_start(side, side))).startswith("does not fit into memory")


def test_a_large_radiograph_is_no_bomb(write, free):
    assert file_fault(write("spine.png", png_start(4_300, 14_000))) == ""
    free(10**8)
    assert "free for one process" in file_fault(write("a.png", png_start(4_300, 4_300)))


def test_a_small_dicom_file_of_many_pixels_is_refused_by_its_header(tmp_path):
    import pydicom
    from pydicom.dataset import FileDataset, FileMetaDataset

    meta = FileMetaDataset()
    meta.TransferSyntaxUID, meta.MediaStorageSOPClassUID = pydicom.uid.RLELossless, "1.2.840.10008.5.1.4.1.1.1.1"
    meta.MediaStorageSOPInstanceUID = "1.2.3"
    for name, values in {"a": (20_000, 20_000, 1), "b": (1000, 1000, 5000)}.items():
        header = FileDataset(None, {}, file_meta=meta, preamble=bytes(128))
        header.Rows, header.Columns, header.NumberOfFrames = values
        header.save_as(tmp_path / name, enforce_file_format=True)
    assert "20000×20000 pixels" in file_fault(tmp_path / "a")
    assert "1000×1000×5000 values" in file_fault(tmp_path / "b")


def test_a_data_type_that_there_is_not_is_left_to_the_reader(tmp_path):
    (tmp_path / "x.nii").write_bytes(b"\xff\xd8\xff\xe0" + b"\x8b" * 400)  # as the header of a JPEG reads
    assert not nifti_fault(tmp_path / "x.nii")


def test_damaged_files_and_others_are_left_to_their_readers(write, free):
    for name in ("a.nii.gz", "a.nii", "a.png", "a.dcm", "a.nrrd"):
        assert file_fault(write(name, b"nonsense")) == ""
        assert file_fault(write(name, b"")) == ""
    free(999)
    assert file_fault(write("a.npy", bytes(1000))).startswith("does not fit into memory")
    with pytest.raises(DataError, match=r"a\.npy: does not fit"):
        require_fits(write("a.npy", bytes(1000)))


@pytest.mark.parametrize("name", ["a.png", "a", "a.nii.gz", "a.dcm"])
def test_only_regular_files_are_opened(tmp_path, name):
    path = tmp_path / name
    os.mkfifo(path)
    with pytest.raises(DataError, match="is a named pipe, not a file; remove it"):
        file_fault(path)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(DataError, match=r"is a device, not a file \(it leads to /dev/zero\)"):
        file_fault(path)
    path.unlink()
    path.symlink_to(path)
    assert file_fault(path) == "", "a loop is left to the reader"


def test_a_person_may_raise_the_limit(monkeypatch, free):
    free(10**11)
    size = volume((1900, 1900, 1900), 2)
    monkeypatch.setenv(memory_share.MOST, "100")
    assert size_fault(size) == ""
    for wrong in ("much", "-1", "nan", "0"):
        monkeypatch.setenv(memory_share.MOST, wrong)
        with pytest.raises(DataError, match="FEDMED_MAX_IMAGE_GB is"):
            memory_share.most_bytes()


def test_processes_share_what_is_free(free):
    one, four = memory_share.share_of(1), memory_share.share_of(4)
    assert 0 < four <= one <= memory_share.most_bytes() and memory_share.allowed_bytes() <= memory_share.most_bytes()
    free(one)
    assert size_fault(picture(3000, 3000)) == ""
    free(4)
    assert size_fault(StatedSize((4,), 5))


def test_pillow_itself_has_the_same_limit():
    assert Image.MAX_IMAGE_PIXELS == image_size.PIXELS
