"""Counts that a site gives of its training images are those that its rounds read, and those of its check."""

import json

import pytest
import yaml

from fedmed.bundles.bundle import Bundle
from fedmed.checks.bundle_demands import BundleDemands
from fedmed.checks.checked_site import CheckedSite
from fedmed.checks.entries import read_entries
from fedmed.federation.client import count_trained
from fedmed.kinds.find_kind import kind_of
from fedmed.settings.site import load_file
from fedmed_demo import demo_site


@pytest.fixture
def counted(fedmed_home):
    """Return a function: a demo site and a role in a job -> what is counted, the site and its check."""

    def counted(demo, name, role, bundle, overlays, **overrides):
        folder = demo_site(demo, name, fedmed_home)
        (fedmed_home / "counted.yaml").write_text(yaml.safe_dump({"data_root": str(folder), "device": "cpu"}))
        site = load_file(fedmed_home / "counted.yaml", name)
        made = Bundle(bundle, overlays, overrides)
        facts = {"dataset_dir": str(site.data_root), "datalist": str(site.datalist), "cache_dir": str(site.cache_dir)}
        result = count_trained(made.parser(device="cpu", **facts), site, role)
        kind, classes = kind_of(made), tuple(one.name for one in made.classes)
        entries, _ = read_entries(site, kind.form(classes))
        demands = BundleDemands(made, kind, classes, fraction=overrides.get("label_fraction", 1.0))
        checked = CheckedSite(site, entries=entries, kind=kind, role=role, demands=demands)
        return result, checked.trains_on, json.loads(site.datalist.read_text())

    return counted


VIDEOS, SMALL = ("lap_phases_tiny", "lap_harbor"), {"image_size": [24, 32], "frame_rate": 2.0}
CXR = ("chest_xray_tiny", "cxr_metro")


@pytest.mark.parametrize(
    ("demo", "role", "bundle", "overlays", "overrides", "with_labels", "without"),
    [
        (("chest_ct_tiny", "ct_north"), "supervised", "covid_ct_segmentation", ["demo"], {}, ["training"], []),
        (("chest_ct_tiny", "ct_east"), "unsupervised", "covid_ct_segmentation",
         ["demo", "unlabelled", "consistency"], {}, ["training"], ["unlabeled"]),
        (CXR, "supervised", "cxr_classification", ["demo", "finetune"], {}, ["training"], []),
        (CXR, "unsupervised", "cxr_classification", ["demo", "pretrain"], {}, [], ["unlabeled", "training"]),
        (VIDEOS, "supervised", "surgical_phase_classification", ["demo"], SMALL, ["training"], []),
        (VIDEOS, "unsupervised", "surgical_phase_classification", ["demo", "cycle"], SMALL, [],
         ["unlabeled", "training"]),
    ],
)  # fmt: skip
def test_the_lists_of_a_role_are_counted(counted, demo, role, bundle, overlays, overrides, with_labels, without):
    result, said, lists = counted(*demo, role, bundle, overlays, **overrides)
    entries = [[entry for key in keys for entry in lists.get(key, [])] for keys in (with_labels, without)]
    assert (result.labelled, result.unlabelled) == tuple(map(len, entries)) and result.labelled + result.unlabelled > 0
    patients = tuple(len({entry["patient"] for entry in group}) for group in entries)
    assert (result.labelled_patients, result.unlabelled_patients) == patients
    assert said == result


def test_a_part_of_the_labels_is_counted_as_it_is_chosen(counted):
    result, said, lists = counted(*CXR, "supervised", "cxr_classification", ["demo", "finetune"], label_fraction=0.2)
    assert 0 < result.labelled < result.listed == len(lists["training"]) and said == result
    assert result.words.startswith(f"{result.labelled} of {result.listed} labelled images of ")


def test_a_site_says_it_once_and_at_home_alone(finished_run):
    """Three sites, two of which train; the server's own files have the number of images, and of no patient."""
    reported = {}
    for path in sorted(finished_run.glob("*/simulate_job/fedmed/progress.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        reported[path.parents[2].name] = [line for line in lines if line["event"] == "data"]
    assert [len(reported[site]) for site in ("ct_north", "ct_east", "ct_west")] == [1, 1, 0]
    (line,), rounds = reported["ct_north"], finished_run / "server/simulate_job/fedmed/rounds.jsonl"
    sent = json.loads(rounds.read_text().splitlines()[0])["sites"]["ct_north"]
    assert line["labelled"] == sent["n_samples"] and 0 < line["labelled_patients"] <= line["labelled"]
    for path in (finished_run / "server").rglob("*"):
        assert not path.is_file() or b"labelled_patients" not in path.read_bytes(), path
