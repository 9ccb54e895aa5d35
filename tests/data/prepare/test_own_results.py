"""Results and other files among a hospital's images: left out by name and number, never images of patients."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedmed.data.prepare.ct_site import prepare_site
from fedmed.data.prepare.folder import LEFT, files_left
from fedmed.data.prepare.video_inspect import DEFAULT
from fedmed.data.prepare.video_site import find_recordings, prepare_video_site
from fedmed.data.prepare.xray_site import prepare_xray_site
from fedmed.errors import DataError

MASK = np.pad(np.ones((3, 3, 2), np.uint8), ((2, 5), (2, 4), (2, 2)))


@pytest.fixture
def scans(tmp_path, write_nifti):
    """Three scans."""
    for number in range(3):
        write_nifti(tmp_path / "in" / f"s{number}.nii.gz", seed=number)
    return tmp_path / "in"


def test_each_kind_of_file_that_is_not_read_is_named_with_its_number(tmp_path):
    for name in ("a.nii.gz", "b.seg.nrrd", "c.SEG.NRRD", "._a.nii.gz", "a.nii.gz.json", "x.zip", "old/d.nii.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    lines = files_left([tmp_path], [tmp_path / "a.nii.gz"], [tmp_path / "old"])
    assert [line.split(" (")[0] for line in lines] == ["1 × ._*", "1 × .json", "2 × .seg.nrrd", "1 × .zip"]
    assert not files_left([tmp_path], [tmp_path])


def names(prepared):
    return [case.case for case in prepared.cases]


def test_masks_that_inference_wrote_beside_scans_are_no_scans(scans, tmp_path, write_nifti):
    for name, mask in (("s0_covid", MASK), ("s1_covid", 0 * MASK), ("s2_ground_glass", MASK)):
        write_nifti(scans / f"{name}.nii.gz", mask)
    write_nifti(scans / "s0_late.nii.gz", seed=7)  # another scan of the patient
    write_nifti(scans / "x_covid.nii.gz", MASK)  # of no scan here: refused, with the reason
    prepared = prepare_site(scans, tmp_path / "out", "a")
    assert names(prepared) == ["s0", "s0_late", "s1", "s2", "x_covid"]
    assert [case.case for case in prepared.cases if case.faults] == ["x_covid"]
    (line,) = [line for line in prepared.sections[LEFT] if "masks" in line]
    assert line.startswith("3 × masks called as a scan beside them (s0_covid.nii.gz, …)")
    masks = [case.mask for case in prepare_site(scans, tmp_path / "out", "a", mask_suffix="_ground_glass").cases]
    assert [mask.name for mask in masks if mask] == ["s2_ground_glass.nii.gz"]


def test_an_earlier_preparation_and_labels_of_monai_label_are_no_scans(scans, tmp_path, write_nifti):
    prepare_site(scans, scans / "a_first", "a", copy=True)  # sorted before the scans
    (scans / "datastore_v2.json").write_text("{}")
    for number in range(3):
        write_nifti(scans / "labels" / "final" / f"s{number}.nii.gz", MASK)
    prepared = prepare_site(scans, tmp_path / "out", "b")
    assert names(prepared) == ["s0", "s1", "s2"] and not any(case.faults for case in prepared.cases)
    said = "\n".join(prepared.sections[LEFT])
    assert "3 × of an earlier preparation (a_first/prepared): results" in said
    assert "3 × of MONAI Label (labels): results" in said
    labelled = prepare_site(scans, tmp_path / "out", "b", masks=scans / "labels" / "final", own_patients=True)
    assert all(case.mask for case in labelled.cases) and "of MONAI Label" not in "\n".join(labelled.sections[LEFT])
    with pytest.raises(DataError, match=r"no DICOM series; 3 × of an earlier preparation \(prepared\)"):
        prepare_site(scans / "a_first", tmp_path / "out", "b")
    assert names(prepare_site(scans / "a_first" / "prepared", tmp_path / "c", "c"))[2] == "images_s2"


def test_a_preparation_into_its_own_folder_names_nothing_of_itself(scans):
    for _ in range(2):
        assert not prepare_site(scans, scans / "site", "a", copy=True).sections[LEFT]


def test_masks_of_a_relative_path_are_read(scans, tmp_path, write_nifti, monkeypatch):
    for number in range(3):
        write_nifti(tmp_path / "masks" / f"s{number}.nii.gz", MASK)
    monkeypatch.chdir(tmp_path)
    prepared = prepare_site(Path("in"), Path("out"), "a", masks=Path("masks"), own_patients=True)
    assert all(case.mask for case in prepared.cases) and not prepared.sections[LEFT]


def test_heat_maps_and_an_earlier_preparation_are_no_radiographs(tmp_path):
    folder = tmp_path / "in"
    for place in (folder / "b", folder / "results" / "heat_maps" / "b", folder / "heat_maps"):
        place.mkdir(parents=True)
        for number in range(3):
            values = np.random.default_rng(len(str(place)) + number).integers(0, 256, (40, 44), np.uint8)
            Image.fromarray(values).save(place / f"{number}.png")
    (folder / "results" / "predictions.csv").touch()
    prepared = prepare_xray_site(folder, folder / "a_first", "a", copy=True)
    assert names(prepared) == [f"{place}/{number}.png" for place in ("b", "heat_maps") for number in range(3)]
    prepared = prepare_xray_site(folder, tmp_path / "out", "b")
    assert len(prepared.cases) == 6 and not any(case.faults for case in prepared.cases)
    first, second = prepared.sections[LEFT][:2]
    assert first.startswith("3 × of an earlier inference (results/heat_maps):")
    assert second.startswith("6 × of an earlier preparation (a_first/prepared):")


def test_an_earlier_preparation_is_no_video(tmp_path, movie):
    folder = movie(tmp_path / "in" / "v.mp4", seconds=2).parent
    prepare_video_site(folder, folder / "a_first", "a", copy=True)
    prepared = prepare_video_site(folder, tmp_path / "out", "b")
    assert names(prepared) == ["v.mp4"] and not prepared.cases[0].faults
    assert prepared.sections[LEFT][0].startswith("1 × of an earlier preparation (a_first/prepared)")
    (folder / "v.mp4").unlink()
    with pytest.raises(DataError, match="no video for the layout 'plain'.*; 1 × of an earlier preparation"):
        find_recordings(folder, DEFAULT)
