"""What sites say of their images before the first round: how it is measured, compared, refused, and kept."""

import json

import nibabel as nib
import numpy as np
import pytest
import yaml
from PIL import Image

from fedmed.bundles.bundle import Bundle
from fedmed.data.fingerprint import videos
from fedmed.data.fingerprint.facts import summary
from fedmed.data.video.folder_source import FrameFolder
from fedmed.errors import DataError
from fedmed.federation import client, fingerprint
from fedmed.federation.compared_sites import compare
from fedmed.federation.fingerprint import expected
from fedmed.federation.site_fingerprint import site_fingerprint
from fedmed.kinds.find_kind import kind_of
from fedmed.messages.fingerprint import fault
from fedmed.privacy.limits import read_ledger
from fedmed.reports.notes import remarks, warnings
from fedmed.reports.run import read_run
from fedmed.settings.site import load_file
from tests.federation.run_folder import records
from tests.jobs.demo_sites import note_messages

ALLOWED = {"privacy": {"account": "account.json", "allowed_extras": ["fingerprint"]}}
SOUND = {"images": "picture", "device": "cpu", "memory": 8, "counts": {"training": 10}}
IMAGES = 7


def hospital(folder, shift=0, spacing=(1.0, 1.0, 5.0), marked=1, flip=False, number=IMAGES, scale=1.0):
    """A site with some bodies in air, lying to the front, and masks; one list, no other settings."""
    entries = []
    for place in range(number):
        values = np.full((24, 20, 12), -1000.0)
        values[4:20, 10:18, 2:10] = 40 + 5 * place
        mask = np.zeros(values.shape, np.uint8)
        mask[8:12, 12:15, 4:6] = marked
        values = (values[:, ::-1] if flip else values) * scale + shift
        for name, array in (("image", values.astype(np.int16)), ("mask", mask)):
            folder.mkdir(parents=True, exist_ok=True)
            nib.save(nib.Nifti1Image(array, np.diag([*spacing, 1])), folder / f"{name}{place}.nii.gz")
        entries.append({"image": f"image{place}.nii.gz", "label": f"mask{place}.nii.gz"})
    (folder / "datalist.json").write_text(json.dumps({"training": entries}))
    path = folder.with_suffix(".yaml")
    path.write_text(yaml.safe_dump({"data_root": str(folder), "device": "cpu", **ALLOWED}))
    return load_file(path)


def measured(site, role="supervised"):
    bundle = Bundle("covid_ct_segmentation", ["demo"])
    return site_fingerprint(site, kind_of(bundle), bundle, role, 0)


def leaves(value):
    return [leaf for part in value.values() for leaf in leaves(part)] if isinstance(value, dict) else [value]


@pytest.mark.parametrize(
    ("odd", "says"),
    [
        ({}, ""),
        ({"shift": 1024}, "shifted by +1024, raw values without the offset of 1024"),
        ({"scale": 0.1, "shift": 100}, "pictures of 0 to 255"),
        ({"spacing": (2.0, 2.0, 10.0)}, "its voxels are 2 × 2 × 10 mm, usual is 1 × 1 × 5 mm"),
        ({"marked": 255}, "its masks hold 255 (0.42 % of the voxels); the study knows 0, 1"),
        ({"marked": 0}, "its masks are 0 everywhere"),
        ({"flip": True}, "are back and front exchanged?"),
    ],
)
def test_a_site_that_does_not_fit_is_named_with_its_number(tmp_path, odd, says):
    sites = {name: hospital(tmp_path / name, **(odd if name == "c" else {})) for name in "abc"}
    values = {name: measured(site) for name, site in sites.items()}
    assert [fault(one) for one in values.values()] == [""] * 3
    found = compare(values, expected(Bundle("covid_ct_segmentation", ["demo"])))
    assert [site for site, _ in found] == (["c"] if says else []), found
    assert all(says in text for _, text in found)


def test_a_site_tells_rounded_numbers_and_of_few_images_counts_alone(tmp_path):
    told = measured(hospital(tmp_path / "a"))
    assert told["counts"]["training"] == told["measured"] == 10 and IMAGES not in leaves(told)
    assert told["spacing"]["z"]["median"] == 5 and told["size"]["x"]["median"] == 24
    few = measured(hospital(tmp_path / "few", number=4))
    assert few.keys() == {"images", "device", "memory", "counts"} and few["counts"]["training"] == 5
    (tmp_path / "a" / "image0.nii.gz").write_bytes(b"no image")
    assert measured(load_file(tmp_path / "a.yaml"))["measured"] == 10, "what cannot be read is left out"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"memory": float("nan")}, "'memory' is not a number"),
        ({"memory": 10**400}, "'memory' is not a number"),
        ({"counts": {"training": 7}}, "a part that is not a multiple of 5"),
        ({"counts": {"patient": 5}}, "a name that it may not have"),
        ({"findings": "Mr Smith"}, "a name that a fingerprint does not have"),
        ({"images": "a.png"}, "'images' is not one of volume, picture, video"),
        (
            {"size": {"rows": {"low": 1, "median": {"deep": {}}, "high": 2}, "columns": 3}},
            "a part that is not a number",
        ),
        ({"size": {"x": {"low": 1, "median": 1, "high": 2}}}, "other axes than rows, columns"),
        ({"grid": {"1.1": 0.5}}, "its 'grid' has other fields than 4 rows of 4"),
        ({"values": {"Smith": 0.5}}, "a name that it may not have"),
        ({"counts": None}, "not a list of at most 100 names"),
    ],
)
def test_what_is_no_fingerprint_is_refused_with_a_reason_and_the_run_goes_on(small, monkeypatch, changed, says):
    """At the site's own gate, and at a server whose site has none."""
    assert says in fault({**SOUND, **changed})
    assert fault([]) and fault({"images": "video"})
    if changed.keys() & {"memory", "findings"}:
        monkeypatch.setattr(client, "site_fingerprint", lambda *args: {**SOUND, **changed})
        server = small(fingerprint=True, rounds=1, local={"a": ALLOWED})
        assert server.fingerprints.missing == {"a": "PrivacyError", "b": fingerprint.FORBIDDEN}
        server.fingerprints.missing.clear()
        server.fingerprints._take("a", client.Extras("a", 0, {"fingerprint": {**SOUND, **changed}}))
        assert says in server.fingerprints.missing["a"] and "Smith" not in server.fingerprints.missing["a"]
        assert server.model_round == 0


def test_it_is_asked_once_before_the_first_round_and_said_in_record_log_and_report(
    small, monkeypatch, killed_before, tmp_path, caplog
):
    messages = []
    note_messages(monkeypatch, messages, "fingerprint", "train")
    sizes = {"a": 500, "b": 4000, "c": 500}

    def told(site, *args):
        axes = {axis: dict.fromkeys(("low", "median", "high"), sizes[site.site]) for axis in ("rows", "columns")}
        return {**SOUND, "size": axes}

    monkeypatch.setattr(client, "site_fingerprint", told)
    local = dict.fromkeys("abc", ALLOWED)
    with killed_before(1):
        small("abcd", fingerprint=True, local=local)
    assert [task.name for _, task, _ in messages] == ["fingerprint"] * 4 + ["train"] * 4
    kept = json.loads((records(tmp_path / "ws", "server") / "fingerprint.json").read_text())
    assert kept["missing"] == {"d": fingerprint.FORBIDDEN} and [one["site"] for one in kept["findings"]] == ["b"]
    assert "before round 1: site 'b': its images measure 4000 pixels along rows, usual are 500" in caplog.text
    messages.clear()
    small("abcd", fingerprint=True, local=local, resume=True)
    assert {task.name for _, task, _ in messages} == {"train"}, "a resumed run does not ask again"
    run = read_run(tmp_path / "ws")
    assert [(when, site) for when, site, _ in warnings(run)] == [("before round 1", "b")]
    assert run.uncompared == ["d"], "what no site allows by itself is no warning"
    (said,) = (note for note in remarks(run) if "not compared" in note)
    assert said.startswith("The images of d were") and "fedmed site approve" in said


def test_the_ledger_has_what_left(small, tmp_path):
    small(fingerprint=True, rounds=1, local={"a": ALLOWED})
    first, *others = read_ledger(tmp_path / "ws" / "a")
    assert first["answer"] == first["task"] == "fingerprint" and first["bytes"] > 0
    assert first["extras"]["fingerprint"]["counts"] == {"training": 5, "validation": 0, "testing": 0, "unlabeled": 0}
    assert [line["extras"] for line in read_ledger(tmp_path / "ws" / "b") if line["task"] == "fingerprint"] == [{}]
    assert "fingerprint" not in {line["task"] for line in others}
    small(rounds=1, name="without", local={"a": ALLOWED})
    assert "fingerprint" not in {line["task"] for line in read_ledger(tmp_path / "without" / "a")}


def test_pictures_tell_shares_of_classes_and_no_word_of_their_own(tmp_path):
    shades = {"normal": 60, "viral_pneumonia": 200, "Smith": 90}
    listed = [("normal", 6), ("viral_pneumonia", 3), ("Smith", 1)]
    entries = []
    for label, number in listed:
        for place in range(number):
            name = f"{label}{place}.png"
            shade = np.tile(np.linspace(0, shades[label], 96), (64, 1))
            Image.fromarray(shade.astype(np.uint8)).save(tmp_path / name)
            entries.append({"image": name, "label": label})
    (tmp_path / "datalist.json").write_text(json.dumps({"training": entries}))
    (tmp_path / "s.yaml").write_text(yaml.safe_dump({"data_root": str(tmp_path), "device": "cpu", **ALLOWED}))
    bundle = Bundle("cxr_classification")
    told = site_fingerprint(load_file(tmp_path / "s.yaml"), kind_of(bundle), bundle, "supervised", 0)
    assert not fault(told) and told["classes"] == {"0": 0.6, "1": 0.3, "2": 0} and told["other_classes"] == 0.1
    assert told["size"]["rows"]["median"] == 64 and told["size"]["columns"]["high"] == 96
    assert "Smith" not in json.dumps(told)
    ((name, text),) = compare({"s": told}, expected(bundle))
    assert name == "s" and text.startswith("10 % of its labels are none of the study's classes: normal, ")


@pytest.mark.parametrize(
    ("shares", "says"),
    [
        ({"0": 0.5, "1": 0.3, "2": 0.2}, ""),
        ({"0": 0.8, "1": 0.1, "2": 0.1}, ""),  # hospitals differ
        ({"0": 0.85, "1": 0.05, "2": 0.1}, "85 % of its labels are 'normal', usual are 45 %: other patients"),
        (
            {"0": 0.8, "1": 0.0, "2": 0.2},
            "0 % of its labels are 'viral_pneumonia', usual are 35 %: another name there",
        ),
        ({"0": 0.6, "1": 0.4, "2": 0.0}, "0 % of its labels are 'covid', usual are 20 %"),
    ],
)
def test_a_site_whose_classes_are_far_from_as_often_as_usual_is_named_with_one_of_them(shares, says):
    usual = {"0": 0.45, "1": 0.35, "2": 0.2}
    told = {site: SOUND | {"classes": shares if site == "c" else usual} for site in "abc"}
    told["d"] = dict(SOUND)  # tells nothing of its labels
    found = compare(told, expected(Bundle("cxr_classification")))
    assert [site for site, _ in found] == (["c"] if says else []) and all(says in text for _, text in found)


CHEST = np.array([[90, 120, 120, 90], [140, 120, 125, 140], [135, 150, 160, 130], [140, 200, 200, 135]], np.uint8)


@pytest.mark.parametrize(
    ("odd", "says"),
    [
        (lambda chest: chest, ""),
        (lambda chest: chest - 40, ""),
        (lambda chest: 255 - chest, "bright where the others' are dark (correlation -1.0): are they inverted?"),
        (lambda chest: chest[::-1], "its images look upside down"),
        (np.rot90, "its images look turned by 270°"),
    ],
)
@pytest.mark.parametrize("sites", [2, 3])
def test_inverted_and_turned_pictures_are_told_by_where_they_are_bright(odd, says, sites, tmp_path):
    bundle, told = Bundle("cxr_classification"), {}
    for site in range(sites):
        folder = tmp_path / str(site)
        folder.mkdir()
        for place in range(6):
            chest = (odd if site == sites - 1 else np.copy)(CHEST + np.uint8(place))
            Image.fromarray(np.kron(chest, np.ones((8, 8), np.uint8))).save(folder / f"{place}.png")
        (folder / "datalist.json").write_text(json.dumps({"unlabeled": [{"image": f"{n}.png"} for n in range(6)]}))
        (tmp_path / "site.yaml").write_text(yaml.safe_dump({"data_root": str(folder), "device": "cpu", **ALLOWED}))
        settings = load_file(tmp_path / "site.yaml")
        told[str(site)] = site_fingerprint(settings, kind_of(bundle), bundle, "unsupervised", 0)
        assert not fault(told[str(site)]) and len(told[str(site)]["grid"]) == 16
    found = dict(compare(told, expected(bundle)))
    assert set(found) == ({str(site) for site in range(sites)} if says and sites == 2 else {"2"} if says else set())
    assert says in found.get(str(sites - 1), "")


def test_of_a_video_one_frame_is_decoded_and_its_table_read(tmp_path, monkeypatch):
    for place in range(5):
        (tmp_path / f"v{place}").mkdir()
        for frame in range(3):
            picture = Image.fromarray(np.full((48, 64, 3), 40 * frame, np.uint8))
            picture.save(tmp_path / f"v{place}" / f"{frame}.png")
        (tmp_path / f"v{place}.csv").write_text("second,phase\n0,one\n1,two\n2,two\n3,two\n")
    files = [{"video": tmp_path / f"v{place}", "labels": tmp_path / f"v{place}.csv"} for place in range(5)]
    decoded = []

    def frames(self, damage, frames=FrameFolder.frames):
        for frame in frames(self, damage):
            decoded.append(frame.second)
            yield frame

    monkeypatch.setattr(FrameFolder, "frames", frames)
    facts = [videos.measure_phases(one, ["one", "two"], None) for one in files]
    assert facts[0].size == (48, 64) and decoded == [0] * 5
    assert summary(facts, ("rows", "columns"), ())["classes"] == {"0": 0.25, "1": 0.75}
    (tmp_path / "v0.csv").write_text("second,phase\n0,other\n")
    with pytest.raises(DataError, match="unknown"):
        videos.measure_phases(files[0], ["one", "two"], None)
