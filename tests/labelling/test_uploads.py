"""Files from clients are opened as images before they are kept."""

import gzip
import zlib

import nibabel as nib
import numpy as np
import pytest
from PIL import Image

from fedmed.errors import DataError
from fedmed.labelling import uploads
from fedmed.labelling.uploads import check_upload

NRRD = "NRRD0004\ntype: {type}\ndimension: 3\nsizes: {sizes}\nencoding: {encoding}\n{more}\n"


@pytest.fixture
def volume():
    return nib.Nifti1Image(np.arange(120, dtype=np.int16).reshape(6, 5, 4), np.eye(4))


def nrrd(path, content, sizes="6 5 4", kind="short", encoding="gzip", more=""):
    path.write_bytes(NRRD.format(type=kind, sizes=sizes, encoding=encoding, more=more).encode() + content)
    return path


def test_whole_images_of_each_kind_are_taken(tmp_path, volume):
    for name in ("a.nii", "a.nii.gz"):
        nib.save(volume, tmp_path / name)
        check_upload(tmp_path / name)
    nib.save(nib.Nifti2Image(volume.dataobj, np.eye(4)), tmp_path / "second.nii.gz")
    check_upload(tmp_path / "second.nii.gz")
    for name in ("a.png", "a.jpg"):
        Image.new("RGB", (9, 7)).save(tmp_path / name)
        check_upload(tmp_path / name)
    check_upload(nrrd(tmp_path / "a.nrrd", gzip.compress(bytes(240))))
    check_upload(nrrd(tmp_path / "raw.nrrd", bytes(240), encoding="raw"))


def test_zeros_with_an_images_name_are_refused_without_being_unpacked(tmp_path):
    zeros = bytes(1 << 20)
    for name in ("a.nii", "b.png", "c.jpg", "d.nrrd"):
        (tmp_path / name).write_bytes(zeros)
        with pytest.raises(DataError):
            check_upload(tmp_path / name)
    (tmp_path / "f.nii.gz").write_bytes(gzip.compress(zeros))
    (tmp_path / "g.nii.gz").write_bytes(zeros)
    for name in ("f.nii.gz", "g.nii.gz"):
        with pytest.raises(DataError, match="save it again"):
            check_upload(tmp_path / name)


def changed(volume, path, **fields):
    """A NIfTI file whose header says something else."""
    header = bytearray(volume.to_bytes())
    new = volume.header.copy()
    for name, value in fields.items():
        new[name] = value
    header[:348] = new.binaryblock
    path.write_bytes(gzip.compress(bytes(header)) if path.name.endswith(".gz") else bytes(header))
    return path


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"dim": [3, 6, 5, 40, 1, 1, 1, 1]}, "holds another number"),
        ({"dim": [3, 30000, 30000, 30000, 1, 1, 1, 1]}, "GB"),
        ({"dim": [3, 6, 0, 4, 1, 1, 1, 1]}, "has voxels"),
        ({"vox_offset": 2e9}, "single file"),
        ({"vox_offset": float("nan")}, "single file"),
        ({"magic": b"ni1"}, "single file"),
        ({"datatype": 32, "bitpix": 64}, "plain numbers"),
    ],
)
def test_a_nifti_header_that_is_not_true_is_refused(tmp_path, volume, name, fields, words):
    with pytest.raises(DataError, match=words):
        check_upload(changed(volume, tmp_path / name, **fields))


def test_a_small_file_that_unpacks_to_much_more_than_its_header_says(tmp_path, volume):
    path = tmp_path / "a.nii.gz"
    path.write_bytes(gzip.compress(volume.to_bytes() + bytes(8 << 20)))
    with pytest.raises(DataError, match="another number"):
        check_upload(path)
    with pytest.raises(DataError, match="another number"):
        check_upload(nrrd(tmp_path / "a.nrrd", gzip.compress(bytes(8 << 20))))


def test_a_file_cut_short_is_refused(tmp_path, volume):
    path = tmp_path / "a.nii.gz"
    nib.save(volume, path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError):
        check_upload(path)
    with pytest.raises(DataError):
        check_upload(nrrd(tmp_path / "a.nrrd", gzip.compress(bytes(239))))


@pytest.mark.parametrize("more", ["data file: /etc/passwd\n", "datafile: LIST\n", "byte skip: -1\n", "line skip: 3\n"])
def test_an_nrrd_header_that_leads_to_another_file_is_refused(tmp_path, more):
    with pytest.raises(DataError, match="another file"):
        check_upload(nrrd(tmp_path / "a.nrrd", b"", more=more))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sizes": "60000 60000 60000"}, "GB"),
        ({"sizes": "6 5 -4"}, "voxels"),
        ({"kind": "block"}, "plain numbers"),
        ({"encoding": "hex"}, "encoding"),
    ],
)
def test_an_nrrd_header_that_cannot_be_used_is_refused(tmp_path, given, words):
    with pytest.raises(DataError, match=words):
        check_upload(nrrd(tmp_path / "a.nrrd", zlib.compress(bytes(240)), **given))


@pytest.mark.parametrize("name", ["a.dcm", "a.nii", "a.nii.gz", "a.png", "a.nrrd"])
def test_dicom_is_not_taken_under_any_name(tmp_path, volume, name):
    """ITK looks at the content, and the least of its bytes tell it that a file is DICOM."""
    content = bytearray(volume.to_bytes())
    content[128:132] = b"DICM"
    (tmp_path / name).write_bytes(bytes(content))
    with pytest.raises(DataError, match="DICOM files are not taken"):
        check_upload(tmp_path / name)


def test_an_image_is_held_to_the_memory_that_is_free(tmp_path, volume, monkeypatch):
    nib.save(volume, tmp_path / "a.nii.gz")
    monkeypatch.setattr(uploads.psutil, "virtual_memory", lambda: type("Memory", (), {"available": 1000}))
    with pytest.raises(DataError, match="free some memory"):
        check_upload(tmp_path / "a.nii.gz")


@pytest.mark.parametrize("name", ["a.tar", "a.zip", "a.svs", "a.xml", "a.html", "a.dcm", "a.mha", "a.hdr", "a"])
def test_other_files_are_not_taken(tmp_path, name):
    (tmp_path / name).write_bytes(b"<script>")
    with pytest.raises(DataError, match="files are not taken"):
        check_upload(tmp_path / name)
