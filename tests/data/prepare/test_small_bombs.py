"""Small files that cost much, and what is no file at all, cost a preparation a line of its report and nothing more."""

import os
import re
import stat
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedmed.data.prepare import dicom_folder
from fedmed.data.prepare.ct_site import prepare_site
from fedmed.data.prepare.dicom_folder import checked_series
from fedmed.data.prepare.pool import DIED, read_apart
from fedmed.data.prepare.video_site import prepare_video_site
from fedmed.data.prepare.xray_site import prepare_xray_site
from fedmed.errors import DataError

STATUS = Path("/proc/self/status")
CRAFTED = struct.pack("<HH2sHI", 2, 0x102, b"OB", 0, 3_200_000_000)  # an element that states 3.2 GB


def reasons(prepared):
    return {case.case: "; ".join(case.faults) for case in prepared.cases if case.faults}


def crafted(path):
    """A DICOM file of some hundred bytes for which GDCM allocates gigabytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(128) + b"DICM" + CRAFTED + bytes(100))
    return path


def huge_png(path, side):
    """A PNG that states side x side pixels in colour, and holds none."""
    body = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    chunks = [body, b"IDAT", b"IEND"]
    framed = [struct.pack(">I", len(one) - 4) + one + struct.pack(">I", zlib.crc32(one)) for one in chunks]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(framed))


@pytest.fixture
def scans(tmp_path, write_nifti):
    for number in range(3):
        write_nifti(tmp_path / "in" / f"a{number}.nii.gz", seed=number)
    return tmp_path / "in"


@pytest.fixture
def pictures(tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(3):
        grey = np.random.default_rng(number).integers(0, 256, (40, 44)).astype(np.uint8)
        Image.fromarray(grey).save(tmp_path / "in" / f"a{number}.png")
    return tmp_path / "in"


def test_volumes_that_claim_too_much_are_refused_and_the_others_used(scans, tmp_path, write_nifti, claim_shape):
    claim_shape(write_nifti(scans / "large.nii.gz"), 1900, 1900, 1900)
    claim_shape(write_nifti(scans / "empty.nii.gz"), 300, 300, 300)
    claim_shape(write_nifti(scans / "short.nii.gz"), 30_000, 30_000, 30_000)
    prepared = prepare_site(scans, tmp_path / "site", "s")
    refused = reasons(prepared)
    assert refused.keys() == {"large", "empty", "short"}
    assert "does not fit into memory: 1900×1900×1900" in refused["large"] and "30000×30000" in refused["short"]
    assert "empty.nii.gz is unreadable (its header states" in refused["empty"]
    assert len(prepared.cases) == 6


def test_pictures_of_too_many_pixels_are_refused_and_the_others_used(pictures, tmp_path):
    huge_png(pictures / "large.png", 13_300)
    huge_png(pictures / "larger.png", 50_000)
    crafted(pictures / "crafted.dcm")
    prepared = prepare_xray_site(pictures, tmp_path / "site", "s")
    refused = reasons(prepared)
    assert refused.keys() == {"large.png", "larger.png", "crafted.dcm"}
    assert all("does not fit into memory" in refused[name] for name in ("large.png", "larger.png"))
    assert "(0002,0102) at its start states 3200000000 bytes" in refused["crafted.dcm"]


@pytest.mark.parametrize("name", ["scan.png", "scan", "scan.nii.gz"])
@pytest.mark.parametrize("leads_to", [None, "/dev/zero"])
def test_a_pipe_or_device_among_the_images_is_named(scans, tmp_path, name, leads_to):
    if leads_to:
        (scans / name).symlink_to(leads_to)
    else:
        os.mkfifo(scans / name)
    for prepare in (prepare_site, prepare_xray_site):
        with pytest.raises(DataError, match=rf"{name}: is a .*, not a file.*; remove it"):
            prepare(scans, tmp_path / "site", "s")
    assert not (tmp_path / "site").exists()


def test_links_in_a_loop_are_left_out_or_refused_as_before(scans, tmp_path):
    (scans / "loop.nii.gz").symlink_to(scans / "other.nii.gz")
    (scans / "other.nii.gz").symlink_to(scans / "loop.nii.gz")
    (scans / "folder").symlink_to(scans)
    refused = reasons(prepare_site(scans, tmp_path / "site", "s"))
    assert refused.keys() == {"loop", "other"} and "unreadable" in refused["loop"]


@pytest.mark.usefixtures("found_here")
def test_a_crafted_slice_refuses_its_series_alone(tmp_path, write_dicom):
    stored = np.random.default_rng(0).integers(0, 2000, (8, 8, 4)).astype(np.uint16)
    for name in ("b", "c"):  # each that is read costs a process that loads ITK
        write_dicom(tmp_path / "in" / name, stored + ord(name), patient=name)
    crafted(tmp_path / "in" / "b" / "crafted.dcm")
    refused = reasons(prepare_site(tmp_path / "in", tmp_path / "site", "s"))
    assert refused.keys() == {"b"} and "crafted.dcm is damaged DICOM: (0002,0102) at its start states" in refused["b"]


def test_a_hidden_pipe_beside_slices_is_named(tmp_path, write_dicom):
    write_dicom(tmp_path / "in", np.ones((4, 4, 3), np.uint16))
    os.mkfifo(tmp_path / "in" / ".lock")  # ITK opens hidden files too
    ((_, fault),) = checked_series(tmp_path / "in")
    assert ".lock: is a named pipe, not a file" in fault


@pytest.mark.usefixtures("read_here")
def test_a_series_of_too_many_voxels_is_refused_by_its_headers(tmp_path, write_dicom, change_dicom):
    write_dicom(tmp_path / "in" / "a", np.ones((4, 4, 3), np.uint16))
    change_dicom(tmp_path / "in" / "a", Rows=60_000, Columns=60_000)
    with pytest.raises(DataError, match="the series does not fit into memory: 60000×60000×3 values"):
        prepare_site(tmp_path / "in", tmp_path / "site", "s")


@pytest.mark.skipif(not STATUS.exists(), reason="the limit, and what a process has held at most, are Linux's")
def test_the_process_that_reads_dicom_is_refused_more_memory_than_its_share(tmp_path, monkeypatch):
    crafted(tmp_path / "in" / "a.dcm")
    monkeypatch.setattr("fedmed.data.prepare.pool._reader", None)  # one that has read nothing yet
    monkeypatch.setattr("fedmed.data.prepare.pool.share_of", lambda processes: 2**28)
    assert read_apart(_peak, tmp_path / "in") < 2 * 2**30
    assert not read_apart(_loads_torch)


def _loads_torch() -> bool:
    """Whether this process has PyTorch, which ITK would load where nobody needs it."""
    import fedmed.data.prepare.dicom  # noqa: F401 - loads ITK

    return "torch" in sys.modules


def _peak(folder: Path) -> int:
    """Bytes that reading a folder takes at most, where nothing looks at its files before."""
    assert dicom_folder._series_in(folder) == []
    # Not ru_maxrss, which starts from what the process that started this one had held.
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", STATUS.read_text()).group(1))


@pytest.mark.usefixtures("read_here")
@pytest.mark.parametrize("copy", [False, True])
def test_what_is_written_may_be_read_by_its_owner_only(scans, tmp_path, write_dicom, copy):
    before = os.umask(0o022)
    try:
        for path in scans.iterdir():
            path.chmod(0o644)
        write_dicom(scans / "d", np.random.default_rng(0).integers(0, 2000, (8, 8, 4)).astype(np.uint16))
        prepare_site(scans, tmp_path / "site", "s", copy=copy)
    finally:
        os.umask(before)
    modes = {
        path: stat.S_IMODE(path.stat().st_mode)
        for path in [tmp_path / "site", *(tmp_path / "site").rglob("*")]
        if path.is_dir() or path.stat().st_nlink == 1
    }
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600} and len(modes) > 6
    assert {stat.S_IMODE(path.stat().st_mode) for path in scans.glob("*.nii.gz")} == {0o644}


@pytest.mark.parametrize("module", ["ct_inspect", "xray_site", "video_site"])
def test_a_file_at_which_the_reader_dies_is_refused_with_that_reason(tmp_path, monkeypatch, write_nifti, module):
    def all_die(work, sources, workers, track, *, apart, died):
        return [died(source) for source in sources]

    monkeypatch.setattr(f"fedmed.data.prepare.{module}.run_all", all_die)
    preparations = {"ct_inspect": prepare_site, "xray_site": prepare_xray_site, "video_site": prepare_video_site}
    prepare, name = preparations[module], {"ct_inspect": "a.nii.gz", "xray_site": "a.png"}.get(module, "a.mp4")
    write_nifti(tmp_path / "in" / "a.nii.gz").rename(tmp_path / "in" / name)
    with pytest.raises(DataError, match=f"a.*: {DIED}"):
        prepare(tmp_path / "in", tmp_path / "site", "s")
