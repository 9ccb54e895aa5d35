import json
import logging

import pytest

from fedmed.data import datalist as module
from fedmed.data.datalist import (
    ClassEntry,
    MaskEntry,
    Video,
    case_names,
    check_class_names,
    list_entries,
    load_datalist,
)
from fedmed.errors import DataError
from fedmed.files import read_json


def rewrite(datalist, **lists):
    datalist.write_text(json.dumps(lists))
    return datalist


def test_a_label_that_is_no_class_is_found_in_whatever_list_it_stands(site):
    _, datalist = site()
    wrong = {"image": "b.png", "label": "viral"}
    rewrite(datalist, name="MSD", training=[{"image": "a.png", "label": "normal"}], testing=[wrong], unlabeled=[wrong])
    with pytest.raises(DataError, match="entry 0 of 'testing': the label is 'viral', which is not a class"):
        check_class_names(datalist, ClassEntry(("normal",)), ["normal"])
    check_class_names(datalist, ClassEntry(("normal", "viral")), ["normal", "viral"])
    check_class_names(datalist, MaskEntry(), ["lung"])


def test_paths_become_absolute_and_other_keys_stay(site):
    root, datalist = site(cases=2)
    cases = load_datalist(root, datalist, "training")
    assert [case["image"] for case in cases] == [str(root / f"images/c{n}.nii.gz") for n in range(2)]
    assert cases[0]["label"] == str(root / "labels/c0.nii.gz") and cases[0]["patient"] == "p"
    assert case_names(cases) == ["c0", "c1"]


def test_labels_of_unlabelled_videos_are_dropped_too(site):
    root, datalist = site()
    (root / "a.mp4").touch()
    (root / "a.csv").touch()
    entry = {"video": "a.mp4", "labels": "a.csv", "patient": "p"}
    rewrite(datalist, training=[entry], unlabeled=[entry])
    (labelled,) = load_datalist(root, datalist, "training", form=Video())
    assert labelled == {"video": str(root / "a.mp4"), "labels": str(root / "a.csv"), "patient": "p"}
    assert load_datalist(root, datalist, "unlabeled", form=Video()) == [{"video": str(root / "a.mp4"), "patient": "p"}]
    assert case_names([labelled]) == ["a"]


def test_labels_of_unlabelled_cases_are_dropped_and_that_is_said(site, caplog):
    root, datalist = site()
    with caplog.at_level(logging.WARNING, "fedmed.data"):
        cases = load_datalist(root, datalist, "unlabeled")
    assert all("label" not in case for case in cases)
    assert "3 entries of 'unlabeled' carry a label; these labels are ignored" in caplog.text
    rewrite(datalist, unlabeled=[{"image": "images/c0.nii.gz", "label": "nowhere.nii.gz"}])
    assert len(load_datalist(root, datalist, "unlabeled")) == 1, "an ignored label need not exist"


def test_a_missing_folder_and_a_missing_list(site, tmp_path):
    root, datalist = site()
    assert load_datalist(root, datalist, "testing", required=False) == []
    with pytest.raises(DataError, match="data folder .*nowhere does not exist; mount it"):
        load_datalist(tmp_path / "nowhere", datalist, "training")


@pytest.mark.parametrize(
    ("form", "entry"),
    [
        (None, '{"image": "images/a.nii.gz", "label": "labels/a.nii.gz"}'),
        (ClassEntry(("viral", "normal")), '{"image": "images/a.png", "label": "viral"}'),
        (Video(labels=False, masks=True), '{"video": "videos/a.mp4", "masks": "masks/a"}'),
    ],
)
def test_an_example_shows_entries_of_the_task(site, form, entry):
    root, datalist = site()
    for content in ("gone", "{", "{}", '{"training": []}'):
        if content == "gone":
            datalist.unlink()
        else:
            datalist.write_text(content)
        with pytest.raises(DataError, match=r"datalist\.json") as caught:
            load_datalist(root, datalist, "training", form=form)
        assert f'{{"training": [{entry}], "unlabeled": [' in str(caught.value)


@pytest.mark.parametrize("content", [b"{", b"[1, 2]", b"\x00", b"\xff\xfe\x00"])
def test_malformed_json(site, content):
    root, datalist = site()
    datalist.write_bytes(content)
    with pytest.raises(DataError, match=r"datalist\.json: .*write named lists like"):
        load_datalist(root, datalist, "training")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "the list 'training' is missing"),
        ({"training": []}, "the list 'training' is empty"),
        ({"training": {"image": "a"}}, "the list 'training' is not a list"),
        ({"training": ["images/c0.nii.gz"]}, "entry 0 of 'training' is 'images/c0.nii.gz'"),
        ({"training": [{"label": "labels/c0.nii.gz"}]}, "has no 'image'"),
        ({"training": [{"image": "images/c0.nii.gz"}]}, "has no 'label'; cases without a mask belong into 'unlabeled'"),
    ],
)
def test_wrong_content(site, content, message):
    root, datalist = site()
    with pytest.raises(DataError, match=message):
        load_datalist(root, rewrite(datalist, **content), "training")


@pytest.mark.parametrize("path", ["../secret.nii.gz", "images/../../secret.nii.gz", "/etc/passwd", "", 7, "..\\x.nii"])
def test_a_path_outside_the_site_is_refused(site, path):
    root, datalist = site()
    rewrite(datalist, unlabeled=[{"image": path}])
    with pytest.raises(DataError, match="must be a path below the data folder"):
        load_datalist(root, datalist, "unlabeled")


def test_a_missing_image_is_named(site):
    root, datalist = site()
    (root / "images/c1.nii.gz").unlink()
    with pytest.raises(DataError, match="entry 1 of 'training': the image .*c1.nii.gz does not exist"):
        load_datalist(root, datalist, "training")


CLASSES = ["normal", "bacteria", "virus"]


def test_names_of_classes_become_their_places(classified):
    root, datalist = classified(training=["virus", "normal", "bacteria"], unlabeled=[None, "normal"])
    cases = load_datalist(root, datalist, "training", classes=CLASSES)
    assert [case["label"] for case in cases] == [2, 0, 1]
    assert cases[1]["image"] == str(root / "images/training1.png")
    assert case_names(cases) == ["training0", "training1", "training2"]
    assert all(set(case) == {"image"} for case in load_datalist(root, datalist, "unlabeled", classes=CLASSES))


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("viral", "the label is 'viral', which is not a class; use one of normal, bacteria, virus"),
        ("labels/c0.nii.gz", "the label is 'labels/c0.nii.gz', which is not a class"),
        (1, "the label is 1, which is not a class"),
        (["virus"], r"the label is \['virus'\], which is not a class"),
        (None, r"has no 'label'; name its class \(normal, bacteria, virus\), or list .*unlabeled"),
    ],
)
def test_an_unknown_class(classified, label, message):
    root, datalist = classified(training=["normal", label])
    with pytest.raises(DataError, match=rf"entry 1 of 'training'\S* {message}"):
        load_datalist(root, datalist, "training", classes=CLASSES)


def test_classes_where_masks_are_needed(classified):
    root, datalist = classified(training=["normal", "virus"], unlabeled=["normal"])
    with pytest.raises(DataError, match="entry 0 of 'training': the label is 'normal', the name of a class, where"):
        load_datalist(root, datalist, "training")
    assert len(load_datalist(root, datalist, "unlabeled")) == 1


def test_entries_of_a_list(classified):
    _, datalist = classified(testing=["normal"])
    assert list_entries(datalist, "testing") == [{"image": "images/testing0.png", "label": "normal"}]
    assert list_entries(datalist, "training") == []
    with pytest.raises(DataError, match="the list 'training' is missing"):
        list_entries(datalist, "training", required=True)


def test_a_datalist_is_read_once_until_it_changes(tmp_path, monkeypatch):
    path, read = tmp_path / "datalist.json", []
    path.write_text('{"testing": [{"image": "a.png"}]}')
    monkeypatch.setattr(module, "read_json", lambda *args: read.append(args) or read_json(*args))
    for _ in range(3):
        entries = list_entries(path, "testing")
        entries.append("what a caller does with its list is its own")
        assert list_entries(path, "training") == []
    assert len(read) == 1
    path.write_text('{"testing": [{"image": "b.png"}]}')
    assert list_entries(path, "testing") == [{"image": "b.png"}] and len(read) == 2
