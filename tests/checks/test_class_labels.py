"""A site whose labels are names of classes, and whose images are radiographs."""

import json

from fedmed.checks.entries import count_lists, read_entries
from fedmed.checks.measurement import choose_sample, write_datalist
from fedmed.checks.site_check import Options, check_site
from fedmed.data.datalist import ClassEntry
from fedmed.kinds.classification import Classification

CLASSES = ("normal", "normal", "bacteria", "virus")  # of the site's entries, see conftest.py


def test_classes_are_no_missing_masks(xray_site):
    site = xray_site.config()
    entries, findings = read_entries(site, ClassEntry())
    assert findings == [] and set(count_lists(site)[1].values()) == {4} and len(entries) == 16
    training = [entry for entry in entries if entry.list == "training"]
    assert [entry.label for entry in training] == list(CLASSES) and not any(entry.mask for entry in entries)
    assert all(entry.label is None for entry in entries if entry.list == "unlabeled")


def test_an_entry_without_a_class_is_a_fault_of_its_own(xray_site):
    del xray_site.lists["training"][1]["label"]
    (xray_site.root / "bilder" / "training2.png").unlink()
    entries, findings = read_entries(xray_site.config(), ClassEntry())
    assert [(finding.kind, finding.entry) for finding in findings] == [("entry", 1), ("missing", 2)]
    assert "training, entry 1 has no class as its 'label'" in findings[0].text and len(entries) == 14


def test_radiographs_are_not_judged_as_ct(xray_site):
    xray_site.config()
    checked = check_site(str(xray_site.yaml), Options(skip=("disk", "device")))
    assert checked.ready and isinstance(checked.kind, Classification) and checked.findings == []
    assert {case.shape for case in checked.cases.values()} == {(40, 30), (41, 30), (42, 30), (43, 30)}


def test_the_sample_has_a_case_of_each_class_with_its_label(xray_site, tmp_path):
    site = xray_site.config()
    entries, _ = read_entries(site, ClassEntry())
    sample = choose_sample(entries, {}, "supervised")
    taken = [(entry.list, entry.number) for entry in sample]
    assert sorted(taken) == [(key, number) for key in ("training", "validation") for number in (1, 2, 3)]  # the largest
    lists = json.loads(write_datalist(tmp_path, site, sample).read_text())
    assert sorted(entry["label"] for entry in lists["validation"]) == ["bacteria", "normal", "virus"]
    assert all((site.data_root / entry["image"]).is_file() for entry in lists["training"])
    unlabeled = choose_sample(entries, {}, "unsupervised")
    assert [entry.label for entry in unlabeled if entry.list == "unlabeled"] == [None] * 3
