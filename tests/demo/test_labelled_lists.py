"""A list with every mask, beside that of a synthetic site."""

import json
import shutil

import nibabel as nib
import numpy as np
import pytest

from fedmed.data.datalist import load_datalist
from fedmed.errors import DataError
from fedmed_demo import demo_site
from fedmed_demo.chest_ct import make_scan, more_tested, patients_of
from fedmed_demo.hospitals import SITES, tiny
from fedmed_demo.labelled_lists import labelled_list

KIND = "chest_ct_tiny"


def files(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def patients(lists, *names):
    return {entry["patient"] for name in names for entry in lists.get(name, [])}


def test_scans_without_masks_get_them_and_nothing_else_changes(tmp_path):
    folder = demo_site(KIND, "ct_east", tmp_path)
    before, local = files(folder), json.loads((folder / "datalist.json").read_text())
    path = labelled_list(KIND, "ct_east", tmp_path)
    assert path == folder / "datalist_labelled.json" and before.items() <= files(folder).items()
    lists = json.loads(path.read_text())
    assert {name: len(entries) for name, entries in lists.items()} == {"training": 3, "validation": 3, "testing": 3}
    assert [entry["image"] for entry in lists["training"]] == [entry["image"] for entry in local["unlabeled"]]
    for name in lists:
        assert all("label" in case for case in load_datalist(folder, path, name))
    for entry in lists["training"]:
        image, mask = nib.load(folder / entry["image"]), nib.load(folder / entry["label"])
        scans = (make_scan(tiny(SITES["ct_east"]), entry["patient"], diseased=ill) for ill in (True, False))
        drawn = next(scan for scan in scans if np.array_equal(scan.image, image.get_fdata()))
        assert np.array_equal(mask.get_fdata(), drawn.mask) and np.array_equal(image.affine, mask.affine)
    stamps = files(folder)
    assert labelled_list(KIND, "ct_east", tmp_path) == path and files(folder) == stamps, "made once"
    assert not [result for result in path.parents[1].iterdir() if "masks-" in result.name]


@pytest.mark.parametrize("site", ["ct_north", "ct_west"])
def test_nobody_is_tested_on_who_trained_or_was_tested_on_in_the_demo(fedmed_home, tmp_path, site):
    made = demo_site(KIND, site, fedmed_home)
    shutil.copytree(made, tmp_path / made.relative_to(fedmed_home))
    path = labelled_list(KIND, site, tmp_path)
    lists, local = json.loads(path.read_text()), json.loads((path.parent / "datalist.json").read_text())
    assert not patients(lists, "testing") & (patients(lists, "training", "validation") | patients(local, *local))
    assert lists.get("training") == local.get("training") and lists.get("validation") == local.get("validation")


@pytest.mark.parametrize("site", ["ct_north", "ct_south", "ct_east", "ct_west"])
def test_the_demo_tests_on_twenty_patients_of_each_hospital(site):
    profile = SITES[site]
    further, before = more_tested(profile), {patient for _, patient in patients_of(profile)}
    assert profile.counts["testing"] + len(further) == 20 and {name for name, _ in further} == {"testing"}
    assert not before & {patient for _, patient in further}


def test_a_site_that_has_no_such_list_is_named(tmp_path):
    with pytest.raises(DataError, match=r"'ct_control' of 'chest_ct_tiny' has no datalist_labelled\.json"):
        labelled_list(KIND, "ct_control", tmp_path)
