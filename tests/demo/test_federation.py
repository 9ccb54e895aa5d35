"""A demo site appears on disk whole or not at all, once."""

import json
import multiprocessing

import nibabel as nib
import numpy as np
import pytest

from fedmed.errors import DataError
from fedmed_demo import chest_ct, demo_site


def make_in_process(root, results) -> None:
    results.put(str(demo_site("chest_ct_tiny", "ct_west", root)))


def leftovers(root) -> list:
    return [path for path in root.rglob("*") if "making" in path.name]


def test_files_and_datalist_of_a_site(fedmed_home):
    home = demo_site("chest_ct_tiny", "ct_north", fedmed_home)
    assert home == fedmed_home / "demo" / f"chest_ct_tiny-v{chest_ct.VERSION}-seed0" / "ct_north"
    datalist = json.loads((home / "datalist.json").read_text())
    assert {name: len(entries) for name, entries in datalist.items()} == {"training": 3, "validation": 3, "testing": 3}
    entries = [entry for part in datalist.values() for entry in part]
    assert len({entry["patient"] for entry in entries}) == 9
    assert entries[6]["image"] == "images/CTN-0007_ct.nii.gz"
    for entry in entries:
        image, mask = nib.load(home / entry["image"]), nib.load(home / entry["label"])
        assert image.get_data_dtype() == np.int16 and mask.get_data_dtype() == np.uint8
        assert image.shape == mask.shape and np.array_equal(image.affine, mask.affine)
        assert np.allclose(image.header.get_qform(), image.header.get_sform(), atol=1e-3)
        assert not np.allclose(image.affine[:3, :3], np.diag(image.header.get_zooms()))


def test_lists_of_the_other_sites(fedmed_home):
    east = json.loads((demo_site("chest_ct_tiny", "ct_east", fedmed_home) / "datalist.json").read_text())
    assert set(east) == {"unlabeled", "testing"}
    assert all("label" not in entry for entry in east["unlabeled"])
    control = json.loads((demo_site("chest_ct_tiny", "ct_control", fedmed_home) / "datalist.json").read_text())
    assert set(control) == {"unlabeled"}


def test_second_call_makes_nothing(tmp_path, caplog):
    caplog.set_level("INFO", "fedmed.demo")
    home = demo_site("chest_ct_tiny", "ct_control", tmp_path)
    stamp = (home / "datalist.json").stat().st_mtime_ns
    assert demo_site("chest_ct_tiny", "ct_control", tmp_path) == home
    assert (home / "datalist.json").stat().st_mtime_ns == stamp
    assert caplog.messages == [f"making the demo site ct_control, 3 patients, in {home}; this happens once"]


def test_default_root_is_fedmed_home(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDMED_HOME", str(tmp_path / "home"))
    made = tmp_path / "home" / "demo" / f"chest_ct_tiny-v{chest_ct.VERSION}-seed0" / "ct_west"
    made.mkdir(parents=True)
    (made / "datalist.json").touch()
    assert demo_site("chest_ct_tiny", "ct_west") == made


def test_unknown_kind_and_site_name_the_known_ones(tmp_path):
    with pytest.raises(DataError, match="'brain_mr' is unknown; use one of chest_ct"):
        demo_site("brain_mr", "ct_north", tmp_path)
    with pytest.raises(DataError, match="no site 'north'; use one of ct_north"):
        demo_site("chest_ct", "north", tmp_path)


def test_folder_that_cannot_be_written_is_a_data_error(tmp_path):
    (tmp_path / "demo").write_text("a file where a folder should be")
    with pytest.raises(DataError, match="FEDMED_HOME"):
        demo_site("chest_ct_tiny", "ct_west", tmp_path)


@pytest.mark.parametrize("reason", [KeyboardInterrupt, OSError("disk full")])
def test_interrupted_creation_leaves_nothing_behind(tmp_path, monkeypatch, reason):
    write, calls = chest_ct.write_patient, []

    def fail_on_second(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise reason
        return write(*arguments)

    monkeypatch.setattr(chest_ct, "write_patient", fail_on_second)
    with pytest.raises((KeyboardInterrupt, DataError)):
        demo_site("chest_ct_tiny", "ct_west", tmp_path)
    assert not leftovers(tmp_path) and not list(tmp_path.rglob("ct_west"))
    monkeypatch.undo()
    assert (demo_site("chest_ct_tiny", "ct_west", tmp_path) / "datalist.json").is_file()


def test_remains_of_a_killed_process_are_cleared(tmp_path):
    home = tmp_path / "demo" / f"chest_ct_tiny-v{chest_ct.VERSION}-seed0"
    (home / ".ct_west.making-abc" / "images").mkdir(parents=True)
    (home / "ct_west").mkdir()
    demo_site("chest_ct_tiny", "ct_west", tmp_path)
    assert not leftovers(tmp_path)


def test_two_processes_at_once_make_one_site(tmp_path):
    context = multiprocessing.get_context("fork")  # a started one would first import all that this one has
    results = context.Queue()
    workers = [context.Process(target=make_in_process, args=(tmp_path, results)) for _ in range(2)]
    for worker in workers:
        worker.start()
    homes = {results.get(timeout=600) for _ in workers}
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert len(homes) == 1 and not leftovers(tmp_path)
    home = tmp_path / "demo" / f"chest_ct_tiny-v{chest_ct.VERSION}-seed0" / "ct_west"
    assert len(list((home / "images").iterdir())) == 3
