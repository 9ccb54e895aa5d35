"""The federation for parts of instruments: what its sites have, and a simulator's pictures."""

import csv
import json

import cv2
import numpy as np
import pytest
import yaml

from fedmed.errors import DataError
from fedmed.files import CHECKOUT
from fedmed_demo import KINDS, demo_site
from fedmed_demo.federation import LAP_INSTRUMENTS
from fedmed_demo.surgery.procedure_vector import FILE, WIDTH, procedure_vector
from fedmed_demo.surgery.profile import read_profiles
from fedmed_demo.surgery.recording import DrawnRecording, Room

TRAINING = ("inst_nephro1", "inst_nephro2", "inst_prostate", "inst_hyst")
LISTS = {"training", "validation", "testing"}


def values(folder):
    return {int(value) for path in folder.rglob("*.png") for value in np.unique(cv2.imread(str(path), -1))}


def test_four_sites_train_and_two_never_do():
    lists = {name: set(site.counts) for name, site in LAP_INSTRUMENTS.items()}
    assert all(lists.pop(name) == LISTS for name in (*TRAINING, "inst_simulator"))
    assert lists.pop("inst_pooled") == {"training", "validation"}
    assert lists == {"inst_lobe": {"testing"}, "inst_binary": {"testing"}}
    organs = [LAP_INSTRUMENTS[name].anatomy.organ for name in (*TRAINING, "inst_lobe")]
    assert organs == ["kidney", "kidney", "prostate", "uterus", "lung"]
    labels = {name: LAP_INSTRUMENTS[name].counts["training"] / LAP_INSTRUMENTS[name].mask_every for name in TRAINING}
    assert min(labels, key=labels.get) == "inst_hyst"
    assert all(site.rate >= 5 for site in LAP_INSTRUMENTS.values())  # frames 0.2 s apart exist
    assert [name for name, site in LAP_INSTRUMENTS.items() if site.parts != "all"] == ["inst_binary"]


def test_sites_and_server_are_ready_for_a_job():
    folder = CHECKOUT / "site_configs"
    settings = {name: yaml.safe_load((folder / "demo" / f"{name}.yaml").read_text()) for name in LAP_INSTRUMENTS}
    assert {one["demo"] for one in settings.values()} == {"lap_instruments"}
    assert [name for name, one in settings.items() if one.get("allow_release")] == list(TRAINING)
    procedures = {name: one["words"]["procedure"] for name, one in settings.items()}
    assert procedures == {name: site.procedure for name, site in LAP_INSTRUMENTS.items()}
    assert {one["words"]["indicator_path"] for one in settings.values()} == {FILE}
    assert [name for name, one in settings.items() if one["words"].get("masks")] == ["inst_binary"]
    assert yaml.safe_load((folder / "demo_server.yaml").read_text())["demo_site"] in LAP_INSTRUMENTS


def test_masks_of_parts_at_labelled_frames_and_the_simulators_pictures(fedmed_home):
    folder = demo_site("lap_instruments_tiny", "inst_hyst", fedmed_home)
    lists = json.loads((folder / "datalist.json").read_text())
    assert set(lists) == LISTS | {"synthetic"} and set(lists["training"][0]) == {"video", "patient", "masks"}
    times = sorted(int(path.stem) for path in (folder / lists["training"][0]["masks"]).iterdir())
    assert times[0] == 600 and set(np.diff(times)) <= {800, 1000, 1200}  # not at every frame, 200 ms apart
    assert values(folder / "masks") == {0, 1, 2, 3}
    local = np.loadtxt(folder / FILE)
    assert local.shape == (WIDTH,) and np.allclose(local, procedure_vector("hysterectomy"), atol=1e-6)
    (entry,) = lists["synthetic"]
    names = [row["file"] for row in csv.DictReader((folder / entry["video"] / "pictures.csv").open())]
    assert names == [f"{1000 * n:08d}.jpg" for n in range(4)]
    assert sorted(path.stem for path in (folder / entry["masks"]).iterdir()) == [name[:-4] for name in names]


def test_a_pool_has_the_recordings_of_the_sites_that_train_and_no_others(fedmed_home):
    counts = {name: site.counts for name, site in LAP_INSTRUMENTS.items()}
    for name, videos in counts["inst_pooled"].items():
        assert videos == sum(counts[site][name] for site in TRAINING)
    pool = demo_site("lap_instruments_tiny", "inst_pooled", fedmed_home)
    lists = json.loads((pool / "datalist.json").read_text())
    members = {name: demo_site("lap_instruments_tiny", name, fedmed_home) for name in TRAINING}
    local = {name: json.loads((folder / "datalist.json").read_text()) for name, folder in members.items()}
    assert lists == {
        name: [entry for site in TRAINING for entry in local[site][name]] for name in counts["inst_pooled"]
    }
    for entry in (lists["training"][-1], local["inst_hyst"]["validation"][0]):
        for path in (pool / entry["video"], *(pool / entry["masks"]).iterdir()):
            assert path.read_bytes() == (members["inst_hyst"] / path.relative_to(pool)).read_bytes()
    assert not (pool / local["inst_hyst"]["testing"][0]["video"]).exists()


def test_a_site_of_whole_instruments_and_the_simulator_itself(fedmed_home):
    whole = demo_site("lap_instruments_tiny", "inst_binary", fedmed_home)
    assert values(whole / "masks") == {0, 1} and set(json.loads((whole / "datalist.json").read_text())) == {"testing"}
    simulator, site = (demo_site("lap_instruments_tiny", name, fedmed_home) for name in ("inst_simulator", "inst_hyst"))
    for name in ("images/INS-001/00002000.jpg", "masks/INS-001/00002000.png"):
        assert (simulator / name).read_bytes() == (site / name).read_bytes()


def test_a_simulator_draws_plain_tissue_and_pictures_in_no_order():
    """Tissue of one patient hardly varies from pixel to pixel there; neighbours in the folder are not in time."""
    rough = {}
    for name in ("inst_nephro1", "inst_simulator"):
        frame = Room(DrawnRecording(KINDS["lap_instruments_tiny"][name], "p")).frame(0, 2.0)
        flat = cv2.cvtColor(frame.image, cv2.COLOR_RGB2GRAY).astype(float)
        rough[name] = np.median(np.abs(flat - cv2.medianBlur(flat.astype(np.uint8), 5))[frame.mask == 0])
    assert rough["inst_simulator"] < 1 < rough["inst_nephro1"]


def test_an_unknown_hospital_is_told(tmp_path):
    path = tmp_path / "one.yaml"
    path.write_text("hospitals: [{name: a, prefix: A, simulated_by: b, lists: {training: {videos: 1}}}]")
    with pytest.raises(DataError, match="a is simulated by 'b'; name one of a"):
        read_profiles(path)
    path.write_text("hospitals: [{name: a, prefix: A, lists: {}}, {name: b, prefix: B, pools: [a, c], lists: {}}]")
    with pytest.raises(DataError, match="b pools 'c'; name some of a"):
        read_profiles(path)


def test_names_that_share_letters_have_nearer_vectors():
    kidney, prostate, other = map(procedure_vector, ("nephrectomy", "prostatectomy", "simulation"))
    assert np.linalg.norm(kidney) == pytest.approx(1) and kidney @ prostate > kidney @ other
    one = procedure_vector("abc")  # a single place, by the digest ba78...
    assert np.flatnonzero(one).tolist() == [0xBA % WIDTH] and abs(one).max() == 1
    with pytest.raises(ValueError, match="three letters"):
        procedure_vector("ab")
