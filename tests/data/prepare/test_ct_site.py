"""From a folder to a site: what is written, what is refused, and that it is all or nothing."""

import csv
import gzip
import json
import os
import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import yaml
from monai.transforms import Compose

from fedmed.data.cases import CheckCased, LoadCased
from fedmed.data.datalist import load_datalist
from fedmed.data.prepare.case import Case
from fedmed.data.prepare.ct_inspect import list_table
from fedmed.data.prepare.ct_site import prepare_site
from fedmed.data.prepare.volume_faults import Foreground
from fedmed.errors import DataError
from fedmed.settings.site import load_site, parse_site
from tests.commands import fedmed


@pytest.fixture(scope="module")
def pairs(tmp_path_factory, write_pair):
    """Ten patients with two scans each, all with masks. Do not write to it."""
    root = tmp_path_factory.mktemp("pairs")
    for patient in range(10):
        for scan in range(2):
            write_pair(root, f"p{patient}_s{scan}", seed=patient * 2 + scan, ones=1 + patient % 4)
    return root


@pytest.fixture
def folder(pairs, tmp_path):
    """``pairs``, to be changed."""
    return shutil.copytree(pairs, tmp_path / "in")


@pytest.fixture(scope="module")
def prepared(pairs, tmp_path_factory):
    """The site made of ``pairs``. Do not write to it."""
    return prepare(pairs, tmp_path_factory.mktemp("prepared") / "site")


def prepare(folder, out, **options):
    options = {"masks": folder / "mask", "patient_pattern": "^(p.*)_s", **options}
    return prepare_site(folder / "image", out, "site_a", **options)


def lists(out):
    return json.loads((out / "datalist.json").read_text())


def counts(out):
    return {name: len(entries) for name, entries in lists(out).items()}


def files(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_labelled_site(pairs, prepared):
    out = prepared.out
    names = {"datalist.json", "prepare_report.csv", "prepare_report.md", "site_a.yaml"}
    assert {p.name for p in out.iterdir()} == names
    datalist = lists(out)
    assert counts(out) == {"training": 12, "validation": 4, "testing": 4}
    patients = [{e["patient"] for e in entries} for entries in datalist.values()]
    assert sum(map(len, patients)) == len(set.union(*patients)) == 10
    entry = datalist["training"][0]
    assert (pairs / entry["image"]).is_file() and (pairs / entry["label"]).is_file()
    assert prepared.data_root == pairs


def test_the_site_yaml_is_one_the_federation_reads(pairs, prepared):
    path = prepared.out / "site_a.yaml"
    site = parse_site("site_a", yaml.safe_load(path.read_text()), path)
    assert (site.data_root, site.datalist) == (pairs, prepared.out / "datalist.json")
    assert (site.threads, site.workers, site.amp) == (2, 0, False)


def test_training_accepts_what_the_preparation_accepts(prepared):
    check = Compose([LoadCased(["image", "label"]), CheckCased()])
    for name in ("training", "validation", "testing"):
        for case in load_datalist(prepared.data_root, prepared.out / "datalist.json", name):
            assert check(case)["image"].shape == (1, 10, 9, 6)


def test_the_report_measures_every_case(pairs, prepared):
    with (prepared.out / "prepare_report.csv").open() as file:
        rows = {row["case"]: row for row in csv.DictReader(file)}
    assert len(rows) == 20
    row = rows["p3_s1"]
    values = nib.load(pairs / "image" / "p3_s1.nii.gz").get_fdata()
    assert (row["status"], row["patient"], row["voxels_z"]) == ("used", "p3", "6")
    assert float(row["hu_min"]) == values.min() and float(row["hu_max"]) == values.max()
    assert float(row["hu_mean"]) == pytest.approx(values.mean(), abs=1e-3)
    assert float(row["mask_ml"]) == pytest.approx(4 * 0.7 * 0.7 * 2 / 1000, abs=1e-6)
    assert float(row["spacing_z_mm"]) == 2.0


def test_a_large_mask_has_no_exponent_in_the_table():
    cases = [Case("a", "a", Path("a"), Path("a"), mask_ml=6217.0, hu_min=-9.0, hu_max=9.0, spacing=(1, 1, 1))]
    cases[0].lists = ["training"]
    assert list_table(cases)[1][-1] == "6,220"


def test_an_unlabelled_site_keeps_masks_for_testing_only(pairs, tmp_path):
    prepare(pairs, tmp_path / "site", role="unlabelled")
    datalist = lists(tmp_path / "site")
    assert counts(tmp_path / "site") == {"testing": 4, "unlabeled": 16}
    assert all("label" in e for e in datalist["testing"])
    assert not any("label" in e for e in datalist["unlabeled"])


def test_scans_without_masks_make_an_unlabelled_site(pairs, tmp_path):
    prepared = prepare(pairs, tmp_path / "site", masks=None)
    assert "None" not in (tmp_path / "site" / "prepare_report.md").read_text()
    assert counts(tmp_path / "site") == {"unlabeled": 20} and prepared.data_root == pairs / "image"


def test_a_scan_without_mask_is_kept_away_from_its_tested_patient(folder, tmp_path):
    for path in (folder / "mask").glob("*_s1.nii.gz"):
        path.unlink()
    prepared = prepare(folder, tmp_path / "site")
    assert counts(tmp_path / "site") == {"training": 6, "validation": 2, "testing": 2, "unlabeled": 6}
    left = [case for case in prepared.cases if not case.lists]
    assert len(left) == 4 and all("left out" in case.notes[0] for case in left)


@pytest.fixture
def again(prepared, tmp_path):
    """A place at which ``prepared`` lies already, with paths of that place."""
    out = shutil.copytree(prepared.out, tmp_path / "site")
    for path in out.iterdir():
        path.write_text(path.read_text().replace(str(prepared.out), str(out)))
    return out


def test_the_same_command_writes_the_same_bytes(pairs, again):
    first = files(again)
    prepare(pairs, again, workers=2)
    assert files(again) == first
    prepare(pairs, again, seed=1)
    assert files(again)["datalist.json"] != first["datalist.json"]


def test_preparing_again_leaves_other_files_alone_and_keeps_an_edited_yaml(pairs, again):
    out = again
    (out / "mine.txt").write_text("mine")
    (out / "site_a.yaml").write_text("threads: 9\n")
    prepare(pairs, out)
    assert (out / "mine.txt").read_text() == "mine" and (out / "site_a.yaml.before").read_text() == "threads: 9\n"
    assert "data_root" in (out / "site_a.yaml").read_text()


def test_a_foreign_datalist_is_not_overwritten(pairs, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "datalist.json").write_text("{}")
    with pytest.raises(DataError, match="not written by a preparation"):
        prepare(pairs, tmp_path / "site")
    assert files(tmp_path / "site") == {"datalist.json": b"{}"}


def damage_all(folder, write_nifti):
    """Give eleven of the cases one fault each, and add a copy under another name."""
    image, mask = folder / "image", folder / "mask"
    values = np.asanyarray(nib.load(image / "p0_s0.nii.gz").dataobj)
    whole = (image / "p0_s0.nii.gz").read_bytes()
    (image / "p0_s0.nii.gz").write_bytes(whole[: len(whole) // 2])
    (image / "p0_s1.nii.gz").write_text("not a scan")
    write_nifti(image / "p1_s0.nii.gz", values[:, :, :1])
    write_nifti(image / "p1_s1.nii.gz", np.full(values.shape, -1000, np.int16))
    write_nifti(image / "p2_s0.nii.gz", np.where(values == values.max(), np.nan, values).astype(np.float32))
    write_nifti(image / "p2_s1.nii.gz", (values // 4 - 1000).astype(np.int16))
    write_nifti(mask / "p3_s0.nii.gz", np.zeros((10, 9, 5), np.uint8))
    write_nifti(mask / "p3_s1.nii.gz", np.zeros(values.shape, np.uint8), np.diag([-0.7, -0.7, 2.1, 1]))
    write_nifti(mask / "p4_s0.nii.gz", np.full(values.shape, 255, np.uint8))
    (image / "p5_copy_s0.nii.gz").write_bytes((image / "p5_s0.nii.gz").read_bytes())
    raw = bytearray(gzip.decompress((image / "p6_s0.nii.gz").read_bytes()))
    raw[80:92] = np.array([0.7, 0.7, 0.0], "<f4").tobytes()  # pixdim of the three axes
    (image / "p6_s0.nii.gz").write_bytes(gzip.compress(bytes(raw)))
    (image / "nobody.nii.gz").write_bytes(whole)


def test_every_bad_case_is_refused_with_its_reason_and_the_rest_is_used(folder, tmp_path, write_nifti):
    damage_all(folder, write_nifti)
    prepared = prepare(folder, tmp_path / "site")
    reasons = {case.case: "; ".join(case.faults) for case in prepared.cases if not case.usable}
    expected = {
        "p0_s0": "unreadable",
        "p0_s1": "unreadable",
        "p1_s0": "2D",
        "p1_s1": "empty",
        "p2_s0": "NaN",
        "p2_s1": "implausible HU",
        "p3_s0": "mask has shape",
        "p3_s1": "mask lies up to 0.5 mm away",
        "p4_s0": "other than 0 and 1: 255",
        "p5_copy_s0": "same voxels as 'p5_s0'",  # without a mask it gives way to the one with a mask
        "p6_s0": "spacing of zero",
        "nobody": "pattern does not match",
    }
    assert reasons.keys() == expected.keys()
    assert all(text in reasons[case] for case, text in expected.items())
    report = (tmp_path / "site" / "prepare_report.md").read_text()
    assert all(f"- {case}: {reason}" in report for case, reason in reasons.items())
    assert not any(f"/{case}.nii" in json.dumps(lists(tmp_path / "site")) for case in reasons)
    assert sum(bool(case.lists) for case in prepared.cases) == 10


def test_a_file_without_an_affine_does_not_become_one_of_1_mm(folder, tmp_path):
    path = folder / "image" / "p0_s0.nii.gz"
    nib.save(nib.Nifti1Image(np.asanyarray(nib.load(path).dataobj), None), path)
    (case,) = (case for case in prepare(folder, tmp_path / "site").cases if not case.usable)
    assert case.case == "p0_s0" and "no affine (sform and qform code are 0)" in case.faults[0]


@pytest.mark.parametrize("apart", [0, 40])
def test_masks_in_another_axis_order_are_moved_onto_their_images(folder, tmp_path, write_nifti, apart):
    """As dcm2niix stores them, beside an image of another program; the image may have a second affine, too."""
    plain = {path.name: np.asanyarray(nib.load(path).dataobj) for path in (folder / "mask").iterdir()}
    path = folder / "image" / "p0_s0.nii.gz"
    image, second = nib.load(path), nib.load(path).affine.copy()
    for name, mask in plain.items():
        other = nib.Nifti1Image(mask, image.affine).as_reoriented([[1, 1], [0, -1], [2, 1]])
        write_nifti(folder / "mask" / name, np.asarray(other.dataobj), other.affine)
    second[2, 3] += apart
    image.set_sform(image.affine, 1)
    image.set_qform(second, 1)
    nib.save(image, path)
    prepared = prepare(folder, tmp_path / "site")
    assert len(prepared.sections["Refused"]) == 0
    assert any(line.startswith("20 × the mask's axes are in another") for line in prepared.sections["Worth a look"])
    for name, mask in plain.items():
        moved = nib.load(tmp_path / "site" / "prepared" / "masks" / name)
        assert np.array_equal(moved.dataobj, mask) and np.allclose(moved.affine, image.affine)
    assert np.allclose(nib.load(tmp_path / "site" / "prepared" / "masks" / path.name).get_qform(), second)


def test_masks_of_other_values_name_what_tells_them_apart(folder, tmp_path, write_nifti):
    for path in (folder / "mask").iterdir():
        write_nifti(path, np.asanyarray(nib.load(path).dataobj) * np.uint8(255))
    with pytest.raises(DataError, match=r"p0_s0: mask has values other than 0 and 1: 255; .*--mask-value 255"):
        prepare(folder, tmp_path / "site")


@pytest.mark.parametrize(
    ("options", "stored", "notes"),
    [
        (["--mask-value", "255"], lambda mask: mask * np.uint8(255), []),
        (["--mask-value", "2,3"], lambda mask: mask * np.uint8(2) + (1 - mask), ["mask values 1 count as background"]),
        (["--mask-threshold", "0.5"], lambda mask: (0.1 + 0.8 * mask).astype(np.float32), []),
    ],
)
def test_masks_of_other_values_become_0_and_1(folder, tmp_path, write_nifti, options, stored, notes):
    plain = {path.name: np.asanyarray(nib.load(path).dataobj) for path in (folder / "mask").iterdir()}
    for name, mask in plain.items():
        write_nifti(folder / "mask" / name, stored(mask))
    main = fedmed("prepare", "ct")
    arguments = [str(folder / "image"), "--masks", str(folder / "mask"), "--out", str(tmp_path / "site")]
    assert main([*arguments, "--site", "s", "--workers", "1", "--patient-pattern", "^(p.*)_s", *options]) == 0
    entries = [entry for entries in lists(tmp_path / "site").values() for entry in entries]
    assert len(entries) == 20
    for entry in entries:
        written = nib.load(tmp_path / "site" / entry["label"])
        assert np.array_equal(np.asanyarray(written.dataobj), plain[Path(entry["label"]).name])
        assert written.get_data_dtype() == np.uint8 and written.affine[2, 2] == 2.0
    report = (tmp_path / "site" / "prepare_report.md").read_text()
    assert "- mask values: `" in report and all(note in report for note in notes)


def test_wrong_words_about_masks(folder, tmp_path, capsys, write_nifti):
    main = fedmed("prepare", "ct")
    arguments = [str(folder / "image"), "--masks", str(folder / "mask"), "--out", str(tmp_path / "site"), "--site", "s"]
    for options, words in (
        (["--mask-value", "liver"], "must be numbers"),
        (["--mask-value", "0"], "not 0, the background"),
        (["--mask-value", "1", "--mask-threshold", "0.5"], "exclude each other"),
        (["--mask-threshold", "nan"], "must be finite"),
    ):
        assert main([*arguments, *options]) == 2 and words in capsys.readouterr().err
    write_nifti(folder / "mask" / "p0_s0.nii.gz", np.full((10, 9, 6), 0.4, np.float32))
    prepared = prepare(folder, tmp_path / "site", foreground=Foreground((1,)))
    (case,) = (case for case in prepared.cases if not case.usable)
    assert "mask has values such as 0.4, not labels; use --mask-threshold" in case.faults[0]
    assert not (tmp_path / "site" / "prepared" / "masks" / "p0_s0.nii.gz").exists()


def test_nothing_usable_writes_nothing(tmp_path, write_nifti):
    write_nifti(tmp_path / "in" / "a.nii.gz", np.full((4, 4, 4), -1000, np.int16))
    with pytest.raises(DataError, match="none of 1 volumes is usable:\n    a: empty"):
        prepare_site(tmp_path / "in", tmp_path / "out" / "site", "s")
    assert list((tmp_path / "out").iterdir()) == []
    (tmp_path / "void").mkdir()
    with pytest.raises(DataError, match="no NIfTI file"):
        prepare_site(tmp_path / "void", tmp_path / "out" / "site", "s")


def test_a_labelled_site_needs_masks_with_foreground(folder, tmp_path, write_nifti):
    with pytest.raises(DataError, match="needs masks"):
        prepare(folder, tmp_path / "site", masks=None, role="labelled")
    for path in (folder / "mask").iterdir():
        write_nifti(path, np.zeros((10, 9, 6), np.uint8))
    with pytest.raises(DataError, match="every training mask is empty"):
        prepare(folder, tmp_path / "site")
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize(
    ("renamed", "remedy"), [("{} Maske.nii.gz", "--mask-suffix ' Maske'"), ("mask_{}.nii.gz", "rename the masks")]
)
def test_masks_of_other_names_are_refused_with_a_way_to_say_them(folder, tmp_path, renamed, remedy):
    for mask in (folder / "mask").iterdir():
        mask.rename(mask.with_name(renamed.format(mask.name.removesuffix(".nii.gz"))))
    with pytest.raises(DataError, match="no mask was found") as refused:
        prepare(folder, tmp_path / "out")
    assert remedy in str(refused.value)


@pytest.mark.usefixtures("read_here")
def test_dicom_is_converted_and_nifti_joins_it(tmp_path, write_dicom, write_nifti):
    stored = np.random.default_rng(1).integers(0, 1500, (7, 6, 5)).astype(np.uint16)
    for number, patient in enumerate(["A", "A", "B", "C"]):
        write_dicom(tmp_path / "in" / f"ct{number}", stored + number, patient=patient)
    write_nifti(tmp_path / "in" / "d.nii.gz")
    mask = np.zeros(stored.shape, np.uint8)
    mask[2:4, 2:4, 2] = 1
    lps_grid = np.array([[-0.7, 0, 0, 10], [0, -0.8, 0, 20], [0, 0, 2.5, 30], [0, 0, 0, 1]])
    for number in range(4):
        write_nifti(tmp_path / "masks" / f"ct{number}.nii.gz", mask, lps_grid)
    write_dicom(tmp_path / "in" / "scout", stored[:, :, :1], patient="A")
    out = tmp_path / "site"
    for _ in range(2):
        prepared = prepare_site(tmp_path / "in", out, "s", masks=tmp_path / "masks")
        assert [case.case for case in prepared.cases if not case.usable] == ["scout"]
        datalist = lists(out)
        assert prepared.data_root == out
        assert {e["image"] for entries in datalist.values() for e in entries} == {
            *(f"prepared/images/ct{number}.nii.gz" for number in range(4)),
            "prepared/images/d.nii.gz",
        }
        entry = next(e for name in datalist for e in datalist[name] if "ct2" in e["image"])
        assert np.array_equal(nib.load(out / entry["image"]).get_fdata(), stored + 2.0 - 1024)
        assert np.array_equal(nib.load(out / entry["label"]).get_fdata(), mask)
        assert not (out / "prepared" / "images" / "scout.nii.gz").exists()
    patients = {case.case: case.patient for case in prepared.cases}
    assert patients["ct0"] == patients["ct1"] != patients["ct2"]


def test_the_command(pairs, tmp_path, capsys):
    main = fedmed("prepare", "ct")
    arguments = [str(pairs / "image"), "--out", str(tmp_path / "site"), "--site", "site_a", "--workers", "1"]
    assert main([*arguments, "--masks", str(pairs / "mask"), "--split", "0", "0", "1"]) == 0
    assert "20 of 20 volumes" in capsys.readouterr().out
    assert list(lists(tmp_path / "site")) == ["testing"]
    arguments[0] = str(tmp_path / "nowhere")
    assert main(arguments) == 2 and "nowhere, does not exist" in capsys.readouterr().err


def test_an_error_while_writing_is_reported_and_leaves_nothing(pairs, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedmed.data.prepare.write.write_files", full)
    with pytest.raises(DataError, match="No space left"):
        prepare(pairs, tmp_path / "out" / "site")
    assert list((tmp_path / "out").iterdir()) == []


def test_copy_makes_a_site_that_stands_alone(pairs, tmp_path):
    prepared = prepare(pairs, tmp_path / "site", copy=True)
    (case,) = load_datalist(tmp_path / "site", tmp_path / "site" / "datalist.json", "testing")[:1]
    assert prepared.data_root == tmp_path / "site" and f"{tmp_path}/site/prepared/masks/" in case["label"]


def test_names_that_no_table_was_made_for(folder, tmp_path):
    """From an old archive, in Latin-1; and one that a spreadsheet would run."""
    names = [os.fsdecode(b"M\xfcller.nii.gz"), "=1+1.nii.gz"]
    for old, new in zip(sorted((folder / "image").iterdir()), names, strict=False):
        old.rename(folder / "image" / new)
    prepare(folder, tmp_path / "site", masks=None, patient_pattern=None)
    report = (tmp_path / "site" / "prepare_report.csv").read_text(encoding="utf-8")
    assert "\n'=1+1,'=1+1,used," in report and "\nM\\udcfcller," in report
    assert len(load_datalist(folder / "image", tmp_path / "site" / "datalist.json", "unlabeled")) == 20


def test_without_a_folder_to_write_the_site_is_where_fedmed_finds_it(pairs, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDMED_HOME", str(tmp_path / "home"))
    line = [str(pairs / "image"), "--masks", str(pairs / "mask"), "--site", "site_a", "--workers", "1"]
    assert fedmed("prepare", "ct")([*line, "--patient-pattern", "^(p.*)_s"]) == 0
    assert load_site("site_a").data_root == pairs
