"""From a folder of X-rays to a site: what is found, what is refused, who is in which list, what is written."""

import csv
import importlib
import json
import os
import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from PIL import Image
from pydicom import Dataset, dcmread

from fedmed.data.datalist import load_datalist
from fedmed.data.prepare.xray_labels import parse_merges, read_table
from fedmed.data.prepare.xray_site import Labels, prepare_xray_site
from fedmed.errors import DataError
from fedmed.files import CHECKOUT
from fedmed_demo.xray.image_files import Header, save
from tests.commands import fedmed

MAIN = fedmed("prepare", "cxr")
DATA = Path(os.environ.get("FEDMED_DATA") or CHECKOUT.parent / "shared" / "data").expanduser()
LISTS = ("training", "validation", "testing")
LABELS = ("columns", "merge", "classes", "separator", "uncertain", "ignore")


def grey(seed: int, size: int = 40) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (size, size + 4)).astype(np.uint8)


def picture(path: Path, seed: int, mode: str = "L") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(grey(seed)).convert(mode).save(path)
    return path


def dicom(folder: Path, name: str, kind: str, patient: str, seed: int) -> Path:
    header = Header(patient, 0, seed + 1, 1.0, "PA")
    return folder / save(grey(seed).astype(np.float32) / 255, folder, name, kind, header)


@pytest.fixture
def folder(tmp_path):
    """Thirty patients of three classes; every third has two images, and one image has no label."""
    rows, number = ["file,label,patient"], 0
    for patient in range(30):
        label = ("normal", "bacteria", "virus")[patient % 3 if patient < 24 else 0]
        for _ in range(1 + (patient % 3 == 0)):
            number += 1
            file = picture(tmp_path / "in" / label / f"{number:03d}.png", number)
            rows.append(f"{file.relative_to(tmp_path / 'in')},{label if number != 5 else ''},p{patient}")
    (tmp_path / "in" / "labels.csv").write_text("\n".join(rows) + "\n")
    return tmp_path / "in"


def prepare(folder, out, table="labels.csv", **options):
    labels = {key: options.pop(key) for key in LABELS if key in options}
    labels = Labels(folder / table if table else None, **labels)
    return prepare_xray_site(folder, out, "site_a", labels=labels, **options)


def lists(out):
    return json.loads((out / "datalist.json").read_text())


def reasons(prepared):
    return {case.case: "; ".join(case.faults) for case in prepared.cases if case.faults}


def test_a_labelled_site_is_divided_by_patient_and_class(folder, tmp_path):
    prepared = prepare(folder, tmp_path / "site")
    made = lists(tmp_path / "site")
    patients = [{entry["patient"] for entry in made[name]} for name in LISTS]
    assert sum(map(len, patients)) == len(set.union(*patients))
    labels = {name: [entry["label"] for entry in made[name]] for name in LISTS}
    for label in ("normal", "bacteria", "virus"):
        whole = sum(of_list.count(label) for of_list in labels.values())
        assert labels["training"].count(label) == pytest.approx(0.6 * whole, abs=3)
        assert all(label in of_list for of_list in labels.values())
    assert prepared.data_root == folder and prepared.classes == ["bacteria", "normal", "virus"]
    datalist, classes = tmp_path / "site" / "datalist.json", prepared.classes
    held = [case for name in LISTS for case in load_datalist(folder, datalist, name, classes=classes)]
    assert {case["label"] for case in held} == {0, 1, 2}


def test_an_image_without_a_label_trains_unless_its_patient_is_tested_on(folder, tmp_path):
    seen = set()
    for seed in range(6):
        prepared = prepare(folder, tmp_path / f"site{seed}", seed=seed)
        (case,) = [case for case in prepared.cases if not case.label]
        (sister,) = [c for c in prepared.cases if c.patient == case.patient and c.label]
        held_out = sister.lists[0] in ("validation", "testing")
        assert case.lists == ([] if held_out else ["unlabeled"]) and held_out == bool(case.notes)
        assert all("label" not in entry for entry in lists(tmp_path / f"site{seed}").get("unlabeled", []))
        seen.add(held_out)
    assert seen == {True, False}


def test_unlabelled_puts_everything_into_one_list(folder, tmp_path):
    prepare(folder, tmp_path / "site", ignore=True)
    (entries,) = lists(tmp_path / "site").values()
    assert set(lists(tmp_path / "site")) == {"unlabeled"} and len(entries) == 40
    assert not any("label" in entry for entry in entries)


@pytest.mark.parametrize(("kept", "said"), [(r"\w+/(\d+)\.png", "folder and ending"), (r"\w+/(\d+\.png)", "folder")])
def test_a_table_of_bare_names_finds_its_images_where_names_differ(folder, tmp_path, kept, said):
    prepare(folder, tmp_path / "site")
    by_path, table = lists(tmp_path / "site"), folder / "labels.csv"
    table.write_text(re.sub(kept, r"\1", table.read_text()))
    prepared = prepare(folder, tmp_path / "site")
    assert lists(tmp_path / "site") == by_path
    assert any(f"without {said}; they were found by their names" in one for one in prepared.sections["Worth a look"])
    picture(folder / "again" / "001.png", 99)
    with pytest.raises(DataError, match="names that only one image has"):
        prepare(folder, tmp_path / "site")


def test_labels_are_merged_and_limited(folder, tmp_path):
    prepared = prepare(folder, tmp_path / "site", merge=["pneumonia=bacteria,virus"])
    assert prepared.classes == ["normal", "pneumonia"]
    prepared = prepare(folder, tmp_path / "site", classes=("virus", "normal"))
    assert prepared.classes == ["virus", "normal"]
    assert set(reasons(prepared).values()) == {"its label 'bacteria' is not one of virus, normal"}
    with pytest.raises(DataError, match="'viral'"):
        prepare(folder, tmp_path / "site", merge=["pneumonia=viral"])
    for wrong in (["pneumonia"], ["pneumonia="], ["=virus"], ["x=a,b", "y=b"]):
        with pytest.raises(DataError, match="new=old1,old2" if len(wrong) == 1 else "'b' into 'x' and into 'y'"):
            parse_merges(wrong)


def table_of(folder, labels, name="other.csv"):
    """Another table for the first images of a folder: a label each."""
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.png"))
    rows = [f"{file},{label},p{n}" for n, (file, label) in enumerate(zip(files, labels * 40, strict=False))]
    (folder / name).write_text("\n".join(["file,label,patient", *rows]) + "\n")
    return name


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (["1.0", "0.0", "-1.0", ""], "-1 is uncertain; say what becomes of it with --uncertain drop|negative|positive"),
        (["Effusion", "Effusion|Mass"], "'Effusion|Mass' looks like several findings; --separator '|'"),
        (["normal", "Normal", "virus"], "normal differ in their letters alone; --merge 'normal=Normal'"),
        (["normal", "grün"], "no job can have a class 'grün': use 1 to 64 letters"),
    ],
)
def test_cells_that_are_no_class_are_refused_with_the_remedy(folder, tmp_path, labels, said):
    with pytest.raises(DataError, match=re.escape(said)):
        prepare(folder, tmp_path / "site", table_of(folder, labels))
    assert not (tmp_path / "site").exists()
    assert lists_of(prepare(folder, tmp_path / "site", "other.csv", ignore=True), "unlabeled")


@pytest.mark.parametrize(
    ("uncertain", "classes"),
    [("drop", {"positive": 1, "negative": 1}), ("positive", {"positive": 2, "negative": 1}),
     ("negative", {"positive": 1, "negative": 2})],
)  # fmt: skip
def test_uncertain_findings_become_what_is_said(folder, tmp_path, uncertain, classes):
    prepared = prepare(folder, tmp_path / "site", table_of(folder, ["1.0", "0.0", "-1", ""]), uncertain=uncertain)
    counts = Counter(case.label for case in prepared.cases)
    assert {name: round(counts[name] / 10) for name in ("positive", "negative")} == classes
    assert f"10 × -1 (uncertain): {uncertain}" in prepared.sections["Worth a look"]
    with pytest.raises(DataError, match="this one has 'virus' too"):
        prepare(folder, tmp_path / "site", table_of(folder, ["1", "virus"]), uncertain=uncertain)


def test_of_several_findings_the_one_that_is_a_class_counts(folder, tmp_path):
    table = table_of(folder, ["Mass|Nodule", "Effusion|Mass", "Hernia", "No Finding"])
    options = {"separator": "|", "classes": ["Effusion", "Mass", "No Finding"]}
    prepared = prepare(folder, tmp_path / "site", table, **options)
    (fault,) = set(reasons(prepared).values())
    assert "several findings (Effusion, Mass), and a class is one" in fault and "--classes" in fault
    assert {case.label for case in prepared.cases if case.lists} == {"Mass", "No Finding", ""}
    said = prepared.sections["Worth a look"]
    assert "10 rows have findings of which --classes names none; read as no label" in said
    assert not any("which no row" in line for line in said)


@pytest.mark.parametrize("separator", ["", "|"])
def test_classes_in_other_letters_than_the_tables_are_told(folder, tmp_path, separator):
    table = table_of(folder, ["NORMAL", "Effusion", "effusion"])
    options = {"separator": separator, "classes": ["Normal", "Effusion", "Mass"]}
    for merge, said in (([], "'Normal', and the table has"), (["Normal=NORMAL"], "'Effusion', and the table has")):
        with pytest.raises(DataError, match=rf"other\.csv: --classes names {said}.*--merge '"):
            prepare(folder, tmp_path / "site", table, merge=merge, **options)
    merge = ["Normal=NORMAL", "Effusion=effusion"]
    prepared = prepare(folder, tmp_path / "site", table, merge=merge, **options)
    assert Counter(case.label for case in prepared.cases) == {"Normal": 14, "Effusion": 26}
    assert "--classes names Mass, which no row of the table has" in prepared.sections["Worth a look"]


def test_words_for_an_empty_cell_are_no_class_and_numbers_as_classes_are_noted(folder, tmp_path):
    prepared = prepare(folder, tmp_path / "site", table_of(folder, ["normal", "virus", "nan"]))
    assert prepared.classes == ["normal", "virus"]
    assert any("'nan' in the table, read as no label" in line for line in prepared.sections["Worth a look"])
    prepared = prepare(folder, tmp_path / "site", table_of(folder, ["0.0", "1.0"]))
    assert "--uncertain drop calls 1 positive" in prepared.sections["Worth a look"][0]


def test_the_same_folder_gives_the_same_files_whatever_the_workers(folder, tmp_path):
    for name, workers in (("a", 1), ("b", 2)):
        prepare(folder, tmp_path / name / "site", workers=workers)
    for file in ("datalist.json", "prepare_report.csv", "prepare_report.md"):
        assert (tmp_path / "a" / "site" / file).read_bytes() == (tmp_path / "b" / "site" / file).read_bytes()


def test_the_report(folder, tmp_path):
    prepared = prepare(folder, tmp_path / "site")
    rows = list(csv.DictReader((tmp_path / "site" / "prepare_report.csv").open()))
    assert len(rows) == len(prepared.cases) == 40
    assert (rows[0]["kind"], rows[0]["rows"], rows[0]["columns"], rows[0]["status"]) == ("PNG", "40", "44", "used")
    page = (tmp_path / "site" / "prepare_report.md").read_text()
    assert "40 images found" in page and "| list | images | patients | bacteria | normal | virus |" in page


def test_what_is_refused(folder, tmp_path):
    bad = folder / "bad"
    picture(bad / "undamaged.jpg", 900)
    (bad / "short.jpg").write_bytes((bad / "undamaged.jpg").read_bytes()[:400])
    (bad / "text.png").write_text("no picture")
    (bad / "empty.png").write_bytes(b"")
    Image.fromarray(np.zeros((64, 64), np.uint8)).save(bad / "black.png")
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (64, 64, 3)).astype(np.uint8)).save(bad / "colour.png")
    Image.fromarray(grey(1, 16)).save(bad / "icon.png")
    (bad / "notes.txt").write_text("ignored")
    ct = dicom(bad, "ct", "dx", "P1", 950)
    ct.write_bytes(ct.read_bytes().replace(b"CS\x02\x00DX", b"CS\x02\x00CT"))
    cut = dicom(bad, "cut", "dx", "P2", 951)
    cut.write_bytes(cut.read_bytes()[:-500])
    refused = reasons(prepare(folder, tmp_path / "site", table=None))
    assert "damaged" in refused["bad/short.jpg"] and "not a PNG, JPEG or DICOM" in refused["bad/text.png"]
    assert "not a PNG" in refused["bad/empty.png"] and "all pixels are equal" in refused["bad/black.png"]
    assert "colour photograph" in refused["bad/colour.png"] and "thumbnail" in refused["bad/icon.png"]
    assert "modality is CT" in refused["bad/images/ct.dcm"] and "the image is damaged" in refused["bad/images/cut.dcm"]
    assert len(refused) == 8 and "bad/undamaged.jpg" not in refused


def test_copies_count_once_and_contradictions_not_at_all(folder, tmp_path):
    normal = sorted((folder / "normal").iterdir())
    shutil.copy(normal[0], folder / "z_again.png")
    Image.open(normal[1]).convert("RGB").save(folder / "z_colours_of_grey.png")
    shutil.copy(normal[3], folder / "z_ill.png")
    with (folder / "labels.csv").open("a") as table:
        table.write("z_again.png,normal,p99\nz_colours_of_grey.png,normal,p0\nz_ill.png,virus,p98\n")
    refused = reasons(prepare(folder, tmp_path / "site"))
    contradicted = normal[3].relative_to(folder).as_posix()
    assert set(refused) == {"z_again.png", "z_colours_of_grey.png", "z_ill.png", contradicted}
    assert "of another patient, 'p0'" in refused["z_again.png"] and "patient" not in refused["z_colours_of_grey.png"]
    assert "different labels: normal, virus" in refused[contradicted]


def test_who_the_patient_is(folder, tmp_path):
    """The table, else the pattern, else the header; a file that none knows is refused."""
    picture(folder / "q7_scan1.png", 700)
    picture(folder / "other.png", 701)
    first, second = (dicom(folder, f"d{i}", kind, "Doe 17", 710 + i) for i, kind in enumerate(("dx", "cr")))
    prepared = prepare(folder, tmp_path / "site")
    assert set(reasons(prepared)) == {"q7_scan1.png", "other.png"}
    who = {case.case: case.patient for case in prepared.cases}
    assert who["images/d0.dcm"] == who["images/d1.dcm"] and who["images/d0.dcm"].startswith("patient-")
    assert "Doe" not in "".join(p.read_text() for p in (tmp_path / "site").iterdir())
    for path in (first, second):
        path.unlink()
    prepared = prepare(folder, tmp_path / "site", patient_pattern=r"^(q\d+)_")
    assert {case.case: case.patient for case in prepared.cases}["q7_scan1.png"] == "q7"
    assert "does not match" in reasons(prepared)["other.png"]


def test_tables_in_other_forms(folder, tmp_path):
    text = (folder / "labels.csv").read_text().replace(",", ";").replace("file;label;patient", "Image;Finding;Pat")
    (folder / "labels.csv").write_text("\ufeff" + text.replace("normal/", ".\\normal\\"), encoding="utf-8")
    columns = {"file": "Image", "label": "Finding", "patient": "Pat"}
    assert len(lists_of(prepare(folder, tmp_path / "site", columns=columns), "training")) > 10
    with pytest.raises(DataError, match="no column 'file' .it has Image, Finding, Pat.; name it with --file-column"):
        prepare(folder, tmp_path / "site")
    with pytest.raises(DataError, match="--label-column"):
        prepare(folder, tmp_path / "site", columns=columns | {"label": "diagnosis"})


def lists_of(prepared, name):
    return [case for case in prepared.cases if name in case.lists]


def test_wrong_tables(folder, tmp_path):
    table = tmp_path / "table.csv"
    for content, message in (
        (b"file,label,patient\n", "no rows"),
        (b"file,label,patient\na.png,x,p\na.png,y,p\n", "line 3 differs from an earlier line about 'a.png'"),
        (b"file,label\n\xff\xfe,1\n", "UTF-8"),
    ):
        table.write_bytes(content)
        with pytest.raises(DataError, match=message):
            read_table(table, {})
    (folder / "labels.csv").write_text("file,label,patient\nelsewhere/a.png,normal,p\n")
    with pytest.raises(DataError, match="none of its files is in"):
        prepare(folder, tmp_path / "site")


def test_files_of_the_table_that_are_missing_are_named(folder, tmp_path):
    with (folder / "labels.csv").open("a") as table:
        table.write("lost.png,normal,p99\n")
    assert prepare(folder, tmp_path / "site").sections["In the table, but not in the folder"] == ["lost.png"]
    assert "lost.png" in (tmp_path / "site" / "prepare_report.md").read_text()


def test_copy_makes_a_site_that_stands_alone(folder, tmp_path):
    prepared = prepare(folder, tmp_path / "site", copy=True)
    shutil.rmtree(folder)
    cases = load_datalist(prepared.data_root, tmp_path / "site" / "datalist.json", "testing", classes=prepared.classes)
    assert prepared.data_root == tmp_path / "site" and all("prepared/images" in case["image"] for case in cases)


def test_the_command(folder, tmp_path, capsys):
    arguments = [str(folder), "--out", str(tmp_path / "site"), "--site", "site_a", "--workers", "1"]
    assert MAIN([*arguments, "--merge", "ill=bacteria,virus", "--split", "0", "0", "1"]) == 0
    assert "'site_a': 39 of 40 images" in capsys.readouterr().out
    assert set(lists(tmp_path / "site")) == {"testing"}
    assert MAIN([*arguments[:-2], "--label-column", "diagnosis"]) == 2
    assert "no column 'diagnosis'" in capsys.readouterr().err
    (folder / "labels.csv").unlink()
    assert MAIN([*arguments, "--label-column", "x"]) == 2 and "give --table" in capsys.readouterr().err
    assert MAIN(arguments) == 0 and set(lists(tmp_path / "site")) == {"unlabeled"}


@pytest.fixture
def views(tmp_path, change_dicom):
    """Seven DX images of several views and parts, and a picture of unknown view."""
    folder, code = tmp_path / "views", Dataset()
    code.CodeMeaning = "left lateral"

    def viewed(name, seed, **values):
        path = dicom(folder, name, "dx", f"P{name}", seed)
        change_dicom(path.parent, path.name, **values)

    viewed("pa", 1)
    viewed("ap", 2, ViewPosition="AP")
    viewed("side", 3, ViewPosition="LL")
    viewed("coded", 4, ViewPosition=None, ViewCodeSequence=[code])
    viewed("turned", 8, ViewPosition="", PatientOrientation=["A", "F"])
    viewed("hand", 5, BodyPartExamined="HAND")
    viewed("silent", 6, ViewPosition="", BodyPartExamined=None)
    picture(folder / "p.png", 7)
    return folder


@pytest.mark.parametrize(
    ("options", "taken", "column"),
    [
        ([], "ap pa silent p", "unknown 2, AP 1, PA 1"),
        (["--view", "pa,AP"], "ap pa", "AP 1, PA 1"),
        (["--view", "PA,unknown"], "p pa silent", "unknown 2, PA 1"),
        (["--view", "LL"], "side", "LL 1"),
        (["--view", "any"], "ap coded pa side silent turned p", "unknown 2, AP 1, LATERAL 1, LEFT LATERAL 1, LL 1"),
        (["--body-part", "hand"], "hand", "PA 1"),
        (["--view", "any", "--body-part", "any"], "ap coded hand p pa side silent turned", "PA 2, unknown 2, AP 1"),
    ],
)
def test_views_from_the_side_and_hands_are_taken_when_asked_for(views, tmp_path, options, taken, column):
    arguments = [str(views), "--out", str(tmp_path / "site"), "--site", "s", "--workers", "1", *options]
    assert MAIN(arguments) == 0
    names = {Path(entry["image"]).stem for entries in lists(tmp_path / "site").values() for entry in entries}
    assert names == set(taken.split())
    report = (tmp_path / "site" / "prepare_report.md").read_text()
    assert "| list | images | patients | views |" in report and f"| {column}" in report
    if not options:
        assert "- images/side.dcm: its view is LL" in report and "- images/hand.dcm: its body part is HAND" in report


def test_a_table_may_say_the_views(views, tmp_path, capsys):
    rows = ["file,label,patient,Position", "p.png,ill,a,Lateral", "images/side.dcm,ill,b,PA", "images/pa.dcm,ill,c,"]
    (views / "labels.csv").write_text("\n".join(rows) + "\n")
    prepared = prepare(views, tmp_path / "site", columns={"view": "Position"})
    assert reasons(prepared)["p.png"].startswith("its view is LATERAL, from the side")
    labelled = {case.case: case.view for case in prepared.cases if case.lists and case.label}
    assert labelled == {"images/side.dcm": "PA", "images/pa.dcm": "PA"}
    arguments = [str(views), "--out", str(tmp_path / "site"), "--site", "s", "--view", "PA,"]
    assert MAIN(arguments) == 2 and "--view 'PA,' must be words" in capsys.readouterr().err


def test_jpeg_lossless_is_read(views, tmp_path, compress_dicom):
    plain = prepare(views, tmp_path / "site", table=None)
    for path in (views / "images").iterdir():
        compress_dicom(path)
    again = prepare(views, tmp_path / "site", table=None)
    assert [(c.case, c.content, c.faults) for c in again.cases] == [(c.case, c.content, c.faults) for c in plain.cases]


@pytest.fixture
def bundle(monkeypatch):
    """The bundle's package that reads images."""
    monkeypatch.syspath_prepend(str(CHECKOUT / "bundles" / "cxr_classification"))
    yield SimpleNamespace(**{name: importlib.import_module(f"cxr_classifier.{name}") for name in ("files", "readers")})
    for module in [name for name in sys.modules if name.startswith("cxr_classifier")]:
        monkeypatch.delitem(sys.modules, module)


def test_the_bundle_reads_what_the_preparation_accepts(folder, tmp_path, bundle):
    picture(folder / "more" / "a.jpg", 800)
    picture(folder / "more" / "b.png", 801, "RGB")
    Image.fromarray(grey(802).astype(np.uint16) << 4).save(folder / "more" / "c.png")
    for number, kind in enumerate(("dx", "cr")):
        dicom(folder / "more", f"d{number}", kind, "P", 803 + number)
    prepared = prepare(folder, tmp_path / "site", table=None)
    assert not reasons(prepared) and {case.kind for case in prepared.cases} == {"PNG", "JPEG", "DICOM"}
    for case in prepared.cases:
        image = bundle.readers.read_xray(case.image)
        assert image.shape == case.shape and 0 <= image.min() < image.max() <= 1


def test_radiographs_with_neither_preamble_nor_ending_are_read_or_named(folder, tmp_path, bundle):
    for number, implicit in enumerate((True, False)):
        header = dcmread(dicom(folder / "more", f"d{number}", "dx", f"P{number}", 830 + number))
        bare = Dataset({element.tag: element for element in header})
        bare.save_as(folder / f"IM000{number}", implicit_vr=implicit, little_endian=True, enforce_file_format=False)
    shutil.rmtree(folder / "more")
    (folder / "IM0009").write_bytes((folder / "IM0001").read_bytes()[:900])  # cut short
    (folder / "IM0010").write_bytes(b"no image")
    prepared = prepare(folder, tmp_path / "site", table=None)
    used = [case for case in prepared.cases if case.usable and case.kind == "DICOM"]
    assert [case.case for case in used] == ["IM0000", "IM0001"] and used[0].patient != used[1].patient
    assert list(reasons(prepared)) == ["IM0009"]
    assert "1 × without an ending (IM0010)" in prepared.sections["Not read"]
    assert all(bundle.readers.read_xray(case.image).shape == case.shape for case in used)
    assert {Path(path).name for path in bundle.files.list_images(folder)} >= {"IM0000", "IM0001", "IM0009"}


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        ({"WindowCenter": 90000, "WindowWidth": 10}, "no window shows anything of the image"),
        ({"PhotometricInterpretation": "HSV"}, "is a colour image"),
        ({"VOILUTSequence": [Dataset()]}, "look-up table or window is unusable"),
    ],
)
def test_what_training_refuses_the_preparation_refuses(folder, tmp_path, tags, said):
    path = dicom(folder / "more", "d", "dx", "P", 810)
    header = dcmread(path)
    for name, value in tags.items():
        setattr(header, name, value)
    header.save_as(path)
    (fault,) = reasons(prepare(folder, tmp_path / "site", table=None)).values()
    assert said in fault and str(folder) not in fault


def test_a_transparent_picture_and_a_dark_one_of_sixteen_bits_are_refused(folder, tmp_path):
    clear = Image.fromarray(grey(820))
    (folder / "more").mkdir()
    Image.merge("LA", (clear, Image.new("L", clear.size, 0))).save(folder / "more" / "clear.png")
    cv2.imwrite(str(folder / "more" / "dark.png"), np.dstack([grey(821).astype(np.uint16) << 4] * 3))
    refused = reasons(prepare(folder, tmp_path / "site", table=None))
    assert "all pixels are equal" in refused.pop("more/clear.png")
    assert "16 bits a colour" in refused.pop("more/dark.png") and not refused


@pytest.mark.parametrize(
    ("source", "images", "classes"),
    [("hannover", 41, ["covid"]), ("kermany", 118, ["bacteria", "normal", "virus"]),
     ("nih", 84, ["no finding", "pneumonia"])],
)  # fmt: skip
def test_real_images(source, images, classes, tmp_path):
    """Every sixth image of the table."""
    data, some = DATA / f"cxr_{source}", tmp_path / "some"
    if not data.is_dir():
        pytest.skip(f"{data} is not there")
    head, *rows = (data / "labels.csv").read_text().splitlines(keepends=True)
    for row in rows[::6]:
        path = some / row.split(",")[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(data / row.split(",")[0])
    (some / "labels.csv").write_text("".join([head, *rows[::6]]))
    prepared = prepare_xray_site(some, tmp_path / "site", f"cxr_{source}", labels=Labels(some / "labels.csv"))
    assert sum(bool(case.lists) for case in prepared.cases) == len(prepared.cases) == images
    assert prepared.classes == classes and not prepared.sections["In the table, but not in the folder"]
    page = (tmp_path / "site" / "prepare_report.md").read_text()
    assert ("every label in training is 'covid'" in page) is (source == "hannover")
