"""The nodule sites: groups by slice spacing, one site a patient, two datalists a site."""

import json

import numpy as np
import pytest

from fedmed.data.prepare.split import split_patients
from fedmed.errors import DataError
from research.runner.lidc import PROTOCOLS, default_data, group, numbers, prepare_lidc


@pytest.fixture(scope="module")
def crops(tmp_path_factory, write_nifti):
    """Ten patients a spacing, two nodules each; patient 5 has one more nodule in a thicker scan."""
    data, mask = tmp_path_factory.mktemp("lidc") / "data", np.zeros((10, 9, 6), np.uint8)
    mask[4:6, 4:6, 2:4] = 1
    number = 0
    for spacing in (1.0, 1.25, 2.0, 2.5):
        for patient in range(10):
            names = [f"X-{spacing}-{patient}_R_{nodule}" for nodule in (1, 2)]
            if (spacing, patient) == (2.5, 9):
                names.append("X-1.0-5_R_3")
            for name in names:
                number += 1
                affine = np.diag([0.7, 0.7, spacing, 1])
                write_nifti(data / "image" / f"{name}.nii.gz", affine=affine, seed=number)
                write_nifti(data / "mask" / f"{name}.nii.gz", mask, affine)
    return data


@pytest.fixture(scope="module")
def made(crops):
    """Folder of the sites, and what is known of the crops of each. Do not write to it."""
    return crops.parent / "sites", prepare_lidc(crops, crops.parent / "sites")


def lists(out, site, name="datalist.json"):
    return json.loads((out / site / name).read_text())


def test_sites_and_lists(crops, made):
    out, _ = made
    counts = {p.site: {k: len(v) for k, v in lists(out, p.site).items()} for p in PROTOCOLS}
    assert counts == {
        "lidc_thin": {"testing": 4, "unlabeled": 16},
        "lidc_mid_a": {"testing": 20},
        "lidc_mid_b": {"testing": 20},
        "lidc_thick": {"training": 12, "validation": 4, "testing": 4},
    }
    again = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    prepare_lidc(crops, out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == again


def test_every_site_can_be_the_one_with_labels_of_the_same_patients(crops, made):
    out, _ = made
    plain, variant = (lists(out, "lidc_thin", f"datalist{x}.json") for x in ("", "_labelled"))
    assert variant["testing"] == plain["testing"]
    shown = variant["training"] + variant["validation"]
    assert sorted(e["image"] for e in shown) == sorted(e["image"] for e in plain["unlabeled"])
    assert all("label" in e for e in shown) and not any("label" in e for e in plain["unlabeled"])
    for protocol in PROTOCOLS:
        lists_ = lists(out, protocol.site, "datalist_labelled.json")
        assert {k: len(v) for k, v in lists_.items()} == {"training": 12, "validation": 4, "testing": 4}
        patients = [{e["patient"] for e in entries} for entries in lists_.values()]
        assert len(set.union(*patients)) == sum(map(len, patients)) == 10
        assert all((crops / e["label"]).is_file() for entries in lists_.values() for e in entries)
    assert lists(out, "lidc_thick", "datalist_labelled.json") == lists(out, "lidc_thick")
    labelled = [p.name for p in (out / "site_configs_labelled").iterdir() if "datalist_labelled" in p.read_text()]
    assert labelled == ["lidc_thin.yaml"]


def test_a_patient_is_at_one_site(made):
    out, sites = made
    refused = [case for cases in sites.values() for case in cases if not case.usable]
    assert [case.case for case in refused] == ["X-1.0-5_R_3"]
    assert "the patient's other crops are at lidc_thin" in refused[0].faults[0]
    homes = {}
    for site in sites:
        for entries in lists(out, site).values():
            for e in entries:
                homes.setdefault(e["patient"], set()).add(site)
    assert all(len(home) == 1 for home in homes.values())
    assert len(homes) == 40


def test_missing_crops(tmp_path):
    with pytest.raises(DataError, match="no folders 'image' and 'mask'"):
        prepare_lidc(tmp_path, tmp_path / "sites")
    assert list(tmp_path.iterdir()) == []
    assert group([])["lidc_thin"] == []


@pytest.mark.skipif(not default_data().is_dir(), reason="the LIDC nodule crops are not on this machine")
def test_the_real_crops(tmp_path):
    sites = prepare_lidc(default_data(), tmp_path / "sites")
    used = {site: sum(bool(case.lists) for case in cases) for site, cases in sites.items()}
    assert used == {"lidc_thin": 259, "lidc_mid_a": 216, "lidc_mid_b": 92, "lidc_thick": 212}
    rows = {row[:2]: row[2:4] for row in numbers(sites)}
    assert rows["lidc_thick", "training"] == ("140", "72")
    assert rows["lidc_thin", "unlabeled"] == ("214", "121")
    patients = {case.patient for case in sites["lidc_thick"]}
    assert len(split_patients(patients, (0.6, 0.2, 0.2))) == 120
