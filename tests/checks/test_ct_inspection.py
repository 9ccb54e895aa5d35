"""Faults of a site's images, masks and lists, by kind and in one clear line."""

import gzip

import nibabel as nib
import numpy as np
import pytest

from fedmed.checks.ct_inspection import _FAULTS, _NOTES, CTInspection, explain
from fedmed.checks.entries import check_lists, read_entries
from fedmed.data.datalist import MaskEntry
from fedmed.data.prepare import volume_faults
from fedmed.kinds.segmentation_3d import Segmentation3D

CT = CTInspection()
AFFINE = np.diag([0.7, 0.7, 2.0, 1.0])
FIRST = "MUELLER_19540312"
REVERSED = [[0, 1], [1, -1], [2, 1]]  # rows


def findings(site):
    config = site.config()
    entries, results = read_entries(config, MaskEntry())
    return [*results, *CT.judge_patients(entries), *CT.judge(CT.open(entries), None)]


def kinds(site):
    return {(finding.kind, finding.list, finding.entry) for finding in findings(site)}


def scan(site):
    return site.root / f"aufnahmen/{FIRST}.nii.gz"


def contour(site):
    return site.root / f"konturen/{FIRST}.nii.gz"


def rewrite(path, place, content):
    """Put bytes into the header of a NIfTI file."""
    header = bytearray(gzip.decompress(path.read_bytes()))
    header[place : place + len(content)] = content
    path.write_bytes(gzip.compress(header))


def metres(site):
    site.image(FIRST, 0, affine=np.diag([8e-4, 8e-4, 5e-3, 1]))
    site.mask(FIRST, affine=np.diag([8e-4, 8e-4, 5e-3, 1]))


def two_affines(site):
    image = nib.load(scan(site))
    image.set_sform(image.affine, 1)
    image.set_qform(image.affine + np.diag([0, 0, 1, 0]), 1)
    nib.save(image, scan(site))


def micrometres(site):
    image = nib.load(scan(site))
    image.header.set_xyzt_units("micron")
    nib.save(image, scan(site))


def picture(site):
    site.image(FIRST, 0, values=np.random.default_rng(0).integers(0, 255, (20, 18, 8)).astype(np.uint8))


@pytest.mark.parametrize(
    ("kind", "harm"),
    [
        ("missing", lambda site: scan(site).unlink()),
        ("unreadable", lambda site: scan(site).write_bytes(scan(site).read_bytes()[:3000])),
        ("unreadable", lambda site: contour(site).write_bytes(gzip.compress(b"no header"))),
        ("memory", lambda site: rewrite(scan(site), 40, np.array([3, 1900, 1900, 1900], "<i2").tobytes())),  # dim
        ("volume", lambda site: site.image(FIRST, 0, values=np.zeros((20, 18), np.int16))),
        ("values", lambda site: site.image(FIRST, 0, values=np.full((20, 18, 8), np.nan, np.float32))),
        ("spacing", metres),
        ("geometry", lambda site: rewrite(scan(site), 88, bytes(4))),  # pixdim[3]
        ("geometry", lambda site: site.image(FIRST, 0, affine=None)),
        ("mask_grid", lambda site: site.mask(FIRST, affine=np.diag([-0.8, -0.8, 6.0, 1.0]))),
        ("mask_grid", lambda site: site.mask(FIRST, shape=(20, 18, 9))),
        ("mask_values", lambda site: site.mask(FIRST, value=2)),
        ("empty_mask", lambda site: site.mask(FIRST, value=0)),
        ("odd_values", picture),
        ("moved_mask", lambda site: nib.save(nib.load(contour(site)).as_reoriented(REVERSED), contour(site))),
        ("two_affines", two_affines),
        ("spacing", micrometres),
        ("entry", lambda site: site.lists["training"][0].update(image="../x.nii.gz")),
        ("entry", lambda site: site.lists["training"][0].pop("label")),
        ("entry", lambda site: site.lists["training"].__setitem__(0, "scan.nii.gz")),
    ],
)
def test_one_fault_is_one_line(small_site, kind, harm):
    harm(small_site)
    (finding,) = findings(small_site)
    assert (finding.kind, finding.list, finding.entry) == (kind, "training", 0)
    assert finding.text.startswith("training, entry 0") and "\n" not in finding.text
    assert len(finding.text.split("; ")) > 1  # what, and what to do


def test_a_patient_and_a_scan_may_not_be_in_a_scored_list_and_another(small_site):
    small_site.lists["testing"][0]["patient"] = f"Patient-{FIRST}"
    small_site.image("WEBER_77", 1)  # voxels of SCHMIDT, training 1
    results = findings(small_site)
    assert [(f.kind, f.list, f.entry, f.also) for f in results] == [
        ("patient", "training", 0, (("testing", 0),)),
        ("copy", "training", 1, (("validation", 0),)),
    ]
    assert all(finding.level == "problem" for finding in results)


def test_training_with_and_without_mask_is_allowed(small_site):
    small_site.lists["unlabeled"][0]["patient"] = f"Patient-{FIRST}"
    small_site.lists["unlabeled"].append({"image": f"aufnahmen/{FIRST}.nii.gz", "patient": f"Patient-{FIRST}"})
    assert [(f.kind, f.level) for f in findings(small_site)] == [("twice", "note")]


def test_masks_that_are_all_empty_leave_nothing_to_learn(small_site):
    for name in (FIRST, "SCHMIDT_19610101"):
        small_site.mask(name, value=0)
    assert ("no_foreground", "training", None) in kinds(small_site)


def test_an_entry_without_patient_is_noted_once(small_site):
    for entry in small_site.lists["training"]:
        del entry["patient"]
    (finding,) = findings(small_site)
    assert finding.kind == "no_patient" and "2 entries" in finding.text


def test_a_file_is_opened_once(small_site, monkeypatch):
    small_site.lists["testing"] = [dict(small_site.lists["training"][0])]
    config = small_site.config()
    entries, _ = read_entries(config, MaskEntry())
    opened = []
    from fedmed.data.prepare import ct_inspect

    plain = ct_inspect._inspect
    monkeypatch.setattr(
        ct_inspect, "_inspect", lambda source, **rest: opened.append(source.files[0]) or plain(source, **rest)
    )
    CT.open(entries)
    assert len(opened) == len(set(opened)) == 4


def test_what_a_role_needs_and_leaves_unused(tmp_path):
    path = tmp_path / "datalist.json"
    results = list(check_lists({"training": 3, "unlabeled": 2}, "supervised", path, kind=Segmentation3D()))
    assert [finding.kind for finding in results] == ["not_validated", "unused", "not_scored"]
    assert [finding.kind for finding in check_lists({}, None, path, kind=Segmentation3D())] == ["list"]
    assert list(check_lists({"unlabeled": 2, "testing": 1}, "unsupervised", path, kind=Segmentation3D())) == []


@pytest.mark.parametrize(
    "sentences",
    [
        volume_faults.geometry_faults((4, 5), AFFINE, (1, 1)),
        volume_faults.geometry_faults((4, 0, 6), AFFINE, (1, 1, 1)),
        volume_faults.geometry_faults((4, 5, 1), AFFINE, (1, 1, 1)),
        volume_faults.geometry_faults((4, 5, 6), AFFINE * np.nan, (1, 1, 1)),
        volume_faults.geometry_faults((4, 5, 6), AFFINE, (1, 1, 0)),
        volume_faults.geometry_faults((4, 5, 6), AFFINE, (1, 1, 1), placed=False),
        volume_faults.value_faults(np.zeros((2, 2), [("R", "u1")])),
        volume_faults.value_faults(np.zeros((0, 2))),
        volume_faults.value_faults(np.array([np.inf, 1.0])),
        volume_faults.value_faults(np.zeros((2, 2))),
        volume_faults.value_faults(np.array([0.0, 1.0])),
        volume_faults.value_faults(np.array([-1024.0, -800.0])),
        volume_faults.value_faults(np.array([-1024.0, 90000.0])),
        volume_faults.mask_faults(np.zeros((4, 5, 7)), AFFINE, (4, 5, 6), AFFINE),
        volume_faults.mask_faults(np.ones((4, 5, 6)), AFFINE * 2, (4, 5, 6), AFFINE),
        volume_faults.mask_faults(np.full((4, 5, 6), 3), AFFINE, (4, 5, 6), AFFINE),
        volume_faults.mask_faults(np.zeros((4, 5, 6), "S1"), AFFINE, (4, 5, 6), AFFINE),
        ["image x.nii.gz is unreadable (reason)", "mask x.nii.gz is unreadable (reason)"],
        ["does not fit into memory; prepare with fewer workers"],
    ],
)
def test_every_fault_of_a_preparation_has_its_kind(sentences):
    assert sentences and all(explain(sentence, _FAULTS) for sentence in sentences)


def test_every_note_of_a_preparation_has_its_kind():
    notes = [
        *volume_faults.value_notes(np.array([0, 200])),
        *volume_faults.value_notes(np.array([0, 4000])),
        "the mask is empty",
    ]
    assert [explain(note, _NOTES)[0] for note in notes] == ["odd_values", "odd_values", "empty_mask"]


def test_a_folder_that_may_not_be_read_is_a_fault_of_its_entries(small_site):
    small_site.lists["training"][0]["image"] = f"{'x' * 300}.nii.gz"  # root may read every folder, but not this
    (finding,) = findings(small_site)
    assert finding.kind == "missing" and "cannot be reached (File name too long)" in finding.text


def test_both_files_of_an_entry_are_told(small_site):
    small_site.lists["training"][0] |= {"image": "nowhere.nii.gz", "label": "../x.nii.gz"}
    small_site.lists["testing"][0] = 7
    results = findings(small_site)
    expected = [("missing", "training"), ("entry", "training"), ("entry", "testing")]
    assert [(finding.kind, finding.list) for finding in results] == expected
