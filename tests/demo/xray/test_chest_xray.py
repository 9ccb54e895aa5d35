"""Synthetic X-rays: their files and lists, the halves, who has what, and that the same seed gives the same pixels."""

import hashlib
import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pydicom
import pytest
from PIL import Image
from scipy import ndimage

from fedmed.data.classes import load_images
from fedmed.data.datalist import load_datalist
from fedmed.files import CHECKOUT
from fedmed.settings.site import load_file
from fedmed_demo import KINDS, demo_site
from fedmed_demo.__main__ import sites_with_folders
from fedmed_demo.xray import chest_xray
from fedmed_demo.xray.chest_xray import draw_person, radiograph
from fedmed_demo.xray.findings import CLASSES
from fedmed_demo.xray.image_files import Header, save
from fedmed_demo.xray.institution_files import roster
from fedmed_demo.xray.institutions import SITES, tiny

LISTS = ("training", "validation", "testing", "unlabeled")


@pytest.fixture(scope="module")
def root(fedmed_home):
    """All three institutions, tiny; shared with the other tests of the session."""
    for site in SITES:
        demo_site("chest_xray_tiny", site, fedmed_home)
    return fedmed_home


def lists_of(root, site, name="datalist.json"):
    return json.loads((demo_site("chest_xray_tiny", site, root) / name).read_text())


@pytest.mark.parametrize("site", SITES)
def test_every_institution_has_all_lists_and_classes(root, site):
    home = demo_site("chest_xray_tiny", site, root)
    assert home.parent.name == f"chest_xray_tiny-v{chest_xray.VERSION}-seed0"
    lists = lists_of(root, site)
    assert tuple(lists) == LISTS and not any("label" in entry for entry in lists["unlabeled"])
    assert 22 <= sum(map(len, lists.values())) <= 28
    for name in LISTS[:3]:
        cases = load_datalist(home, home / "datalist.json", name, classes=CLASSES)
        assert {case["label"] for case in cases} == {0, 1, 2}
    patients = [{entry["patient"] for entry in lists[name]} for name in LISTS]
    assert sum(map(len, patients)) == len(set.union(*patients))
    assert not any(label in entry["image"] for entries in lists.values() for entry in entries for label in CLASSES)


def test_some_patients_come_twice_with_two_different_images(root):
    for site in SITES:
        home = demo_site("chest_xray_tiny", site, root)
        entries = [entry for entries in lists_of(root, site).values() for entry in entries]
        twice = [patient for patient, n in Counter(entry["patient"] for entry in entries).items() if n == 2]
        assert twice
        pixels = [(home / entry["image"]).read_bytes() for entry in entries if entry["patient"] == twice[0]]
        assert pixels[0] != pixels[1]


def test_halves_part_what_is_trained_on_and_share_what_is_held_out(root):
    home = demo_site("chest_xray_tiny", "cxr_rural", root)
    assert [demo_site("chest_xray_tiny", f"cxr_rural_{half}", root) for half in (1, 2)] == [home] * 2
    whole = lists_of(root, "cxr_rural")
    first, second = (lists_of(root, "cxr_rural", f"datalist_{half}.json") for half in (1, 2))
    for name in LISTS:
        parts = [{entry["image"] for entry in half[name]} for half in (first, second)]
        assert set.union(*parts) == {entry["image"] for entry in whole[name]}
        shared = name in ("validation", "testing")
        assert parts[0] == parts[1] if shared else not parts[0] & parts[1]
        patients = [{entry["patient"] for entry in half[name]} for half in (first, second)]
        assert shared or not patients[0] & patients[1]
    assert len(load_images(home, home / "datalist_1.json")) == len(first["training"]) + len(first["unlabeled"])


def test_institutions_keep_their_images_in_different_ways(root):
    metro, rural, children = (demo_site("chest_xray_tiny", site, root) / "images" for site in SITES)
    dx = pydicom.dcmread(next(metro.iterdir()))
    assert (dx.Modality, dx.PhotometricInterpretation, dx.BitsStored) == ("DX", "MONOCHROME2", 14)
    assert dx.WindowWidth > 1 and dx.pixel_array.max() > 4096 and {p.suffix for p in metro.iterdir()} == {".dcm"}
    picture = Image.open(next(rural.iterdir()))
    assert (picture.format, picture.mode) == ("JPEG", "L")
    suffixes = {path.suffix: path for path in children.iterdir()}
    assert set(suffixes) == {".png", ".dcm"}
    cr = pydicom.dcmread(suffixes[".dcm"])
    assert (cr.Modality, cr.PhotometricInterpretation) == ("CR", "MONOCHROME1")
    assert Image.open(suffixes[".png"]).mode.startswith("I")


def test_the_two_devices_for_children_show_the_same_picture(tmp_path):
    image = np.linspace(0, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
    header = Header("P", 0, 1, 1.0, "PA")
    png, cr = (tmp_path / save(image, tmp_path, "a", kind, header) for kind in ("png", "cr"))
    shown = np.asarray(Image.open(png)).astype(float) / 65535
    stored = pydicom.dcmread(cr).pixel_array
    assert np.allclose(shown, image, atol=1e-3) and np.allclose(1 - stored / 4095, image, atol=1e-3)


def test_same_seed_same_pixels_whatever_was_made_before(tmp_path, monkeypatch):
    site = tiny(SITES["cxr_children"])
    one = radiograph(draw_person(site, "CXC-0003", "interstitial"), 0).image
    radiograph(draw_person(site, "CXC-0004", "normal"), 1)
    assert np.array_equal(one, radiograph(draw_person(site, "CXC-0003", "interstitial"), 0).image)
    assert not np.array_equal(one, radiograph(draw_person(site, "CXC-0003", "interstitial", seed=1), 0, seed=1).image)
    few = replace(KINDS["chest_xray_tiny"]["cxr_metro"], counts=dict.fromkeys(LISTS, 3))
    monkeypatch.setitem(KINDS["chest_xray_tiny"], "cxr_metro", few)
    first, again = (demo_site("chest_xray_tiny", "cxr_metro", tmp_path / name) for name in ("first", "again"))
    assert digest(again) == digest(first) and len(digest(first)) >= 12


def digest(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("site", SITES)
def test_findings_change_the_lungs_and_nothing_else(site):
    """The person, the position and the marks stay: they cannot tell the class."""
    profile = replace(tiny(SITES[site]), detector=replace(SITES[site].detector, spread=0.0))
    normal, dense, net = (draw_person(profile, "X-0001", finding) for finding in CLASSES)
    assert np.array_equal(normal.thorax.lungs, dense.thorax.lungs)
    assert dense.extra[normal.thorax.lungs == 0].max() == 0 and dense.extra.max() > 0.2
    images = [radiograph(person).image for person in (normal, dense, net)]
    lung = ndimage.binary_dilation(normal.thorax.lungs.sum(axis=1) > 0, iterations=2)
    assert lung.mean() < 0.6
    for image in images[1:]:
        changed = np.abs(image - images[0]) > 0.05
        assert 0.01 < changed.mean() < 0.6
        assert changed[:3].mean() < 0.2


def test_consolidation_is_mostly_one_sided_and_interstitial_disease_is_not():
    people = {
        finding: [draw_person(tiny(SITES["cxr_metro"]), f"P{i}", finding) for i in range(12)] for finding in CLASSES[1:]
    }
    weaker = {finding: np.array([weaker_side(person) for person in many]) for finding, many in people.items()}
    assert np.mean(weaker["consolidation"] < 0.1) > 0.7
    assert weaker["interstitial"].min() > 0.35


def weaker_side(person):
    """Attenuation that a finding adds at the less affected side, as a share of that at the other."""
    x = person.thorax.grid.axes[0]
    sums = sorted(float((person.extra * side).sum()) for side in (x > 0, x < 0))
    return sums[0] / sums[1]


def test_prevalence_differs_between_institutions_but_not_between_their_lists():
    shares = {}
    for name, site in SITES.items():
        people = roster(site, seed=0)
        assert len({patient for _, patient, _ in people}) == sum(site.counts.values()) > 240
        for part in LISTS:
            result = Counter(finding for which, _, finding in people if which == part)
            assert np.allclose([result[c] / site.counts[part] for c in CLASSES], site.prevalence, atol=0.03)
        shares[name] = site.prevalence
    assert len(set(shares.values())) == 3


def test_children_are_built_differently_from_adults():
    adults, children = (
        [draw_person(tiny(SITES[site]), f"P{i}", "normal").thorax.sitter for i in range(6)]
        for site in ("cxr_metro", "cxr_children")
    )
    assert max(child.size for child in children) < 0.8 and {adult.size for adult in adults} == {1.0}
    assert np.mean([c.slope for c in children]) < np.mean([a.slope for a in adults])
    assert np.mean([c.patient.height for c in children]) < np.mean([a.patient.height for a in adults])


def test_every_demo_site_has_a_file_and_may_send_what_pretraining_exchanges(root, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDMED_HOME", str(tmp_path))
    (tmp_path / "demo").mkdir()
    made = root / "demo" / f"chest_xray_tiny-v{chest_xray.VERSION}-seed0"
    (tmp_path / "demo" / made.name.replace("_tiny", "")).symlink_to(made)
    for site in KINDS["chest_xray"]:
        settings = load_file(CHECKOUT / "site_configs" / "demo" / f"{site}.yaml")
        assert set(settings.privacy.allowed_extras) >= {"rsa", "mu", "sigma", "n"}
        half = site[-2:] if site[-1].isdigit() else ""
        assert settings.datalist == settings.data_root / f"datalist{half}.json" and settings.datalist.is_file()
        assert settings.data_root.name == site.removesuffix(half)


@pytest.mark.parametrize(
    ("kind", "counts"),
    [("large", {"training": 320, "testing": 320}), ("tested", {**SITES["cxr_metro"].counts, "testing": 320})],
)
def test_the_sites_of_the_tables_are_the_same_institutions_with_other_patients(kind, counts):
    sites = KINDS[f"chest_xray_{kind}"]
    assert len(sites) == len(SITES)
    for name, site in SITES.items():
        many = sites[f"{name}_{kind}"]
        assert replace(many, name=site.name, counts=site.counts) == site
        assert many.counts == counts
        assert {finding for _, _, finding in roster(many, 0)} == set(CLASSES)
        first, again = (draw_person(of, f"{site.prefix}-0001", "normal").thorax for of in (site, many))
        assert first.sitter != again.sitter
        text = (CHECKOUT / "site_configs" / "demo" / f"{many.name}.yaml").read_text()
        demo = (CHECKOUT / "site_configs" / "demo" / f"{name}.yaml").read_text()
        assert text.splitlines()[1:] == demo.replace("chest_xray\n", f"chest_xray_{kind}\n").splitlines()[1:]


def test_the_command_makes_each_institution_once():
    assert sorted(sites_with_folders("chest_xray")) == sorted(SITES) and len(sites_with_folders("chest_ct")) == 5
