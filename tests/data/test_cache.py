import logging
import os
import stat
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from monai.data import MetaTensor, get_track_meta
from monai.transforms import RandFlipd, RandSpatialCropd, ScaleIntensityRanged, SpatialPadd

from fedmed.data import cache as storing
from fedmed.data.cache import CaseCacheDataset, CaseStore, settings_text
from fedmed.data.cases import CheckCased, ForegroundIndexd, LoadCased
from fedmed.data.datalist import load_datalist
from fedmed.errors import DataError
from fedmed.files import CACHE_FOLDER, default_cache_dir, purge


class Counted(LoadCased):
    """Counts how many cases are decoded."""

    count = 0

    def __call__(self, data):
        Counted.count += 1
        return super().__call__(data)


def steps(a_max=0, index=True):
    keys = ["image", "label"]
    prepare = [Counted(keys), CheckCased(), ScaleIntensityRanged("image", -1000, a_max, 0, 1, clip=True)]
    prepare += [SpatialPadd(keys, (16, 16, 16))] + ([ForegroundIndexd()] if index else [])
    return [*prepare, RandSpatialCropd(keys, (8, 8, 8), random_size=False), RandFlipd(keys, 0.5, 0)]


@pytest.fixture
def make(site, tmp_path):
    Counted.count = 0
    root, datalist = site()

    def build(transform=None, cache_dir=tmp_path / "cache"):
        return CaseCacheDataset(load_datalist(root, datalist, "training"), transform or steps(), cache_dir)

    return build


def files(tmp_path):
    return sorted((tmp_path / "cache" / CACHE_FOLDER).iterdir())


def test_each_case_is_decoded_once_whatever_the_number_of_processes(make, tmp_path):
    first = make()
    items = [first[index] for index in range(3)]
    assert Counted.count == 3 and len(files(tmp_path)) == 3
    again = make()
    assert all(torch.equal(again.prepared(i)["image"], first.prepared(i)["image"]) for i in range(3))
    assert Counted.count == 3
    assert items[0]["image"].shape == (1, 8, 8, 8)


def test_cached_and_uncached_cases_are_equal(make):
    cached, plain = make(), make(cache_dir=None)
    cached.prefill()
    for index in range(3):
        one, other = cached.prepared(index), plain.prepared(index)
        assert one.keys() == other.keys() == {"image", "label", "foreground_index", "background_index"}
        assert all(torch.equal(one[key], other[key]) and one[key].dtype == other[key].dtype for key in one)


@pytest.mark.parametrize("workers", [0, 1])
def test_filling_the_cache_draws_nothing_that_a_training_would_draw(make, workers):
    """Or a first training on a machine would end elsewhere than a second one, whose cache is full."""
    before = torch.random.get_rng_state()
    make().prefill(workers)
    assert torch.equal(torch.random.get_rng_state(), before) and Counted.count == (0 if workers else len(make()))


def test_items_are_plain_tensors_and_the_switch_for_metadata_is_put_back(make):
    item = make()[0]
    assert all(isinstance(value, torch.Tensor) and not isinstance(value, MetaTensor) for value in item.values())
    assert get_track_meta()


def test_a_changed_image_is_noticed(make, save_nifti, scan):
    dataset = make()
    before = dataset.prepared(1)["image"]
    image = scan(seed=1)[0]
    save_nifti("images/c1.nii.gz", image + 100)
    after = dataset.prepared(1)["image"]
    assert not torch.equal(before, after) and torch.equal(after, make(cache_dir=None).prepared(1)["image"])


def test_a_changed_mask_of_equal_size_is_noticed(make, tmp_path):
    dataset = make()
    dataset.prepared(0)
    path = tmp_path / "labels/c0.nii.gz"
    facts = path.stat()
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    dataset.prepared(0)
    assert Counted.count == 2


def test_a_file_name_that_is_not_utf8(tmp_path):
    places = set()
    for name in (b"M\xfcller.nii.gz", b"M\xe4ller.nii.gz"):  # Latin-1, from an old archive
        path = tmp_path / os.fsdecode(name)
        path.write_bytes(b"scan")
        os.utime(path, (0, 0))
        places.add(CaseStore(tmp_path / "cache").path({"image": str(path)}, ""))
    assert len(places) == 2


def test_a_changed_setting_or_version_of_monai_is_noticed(make, monkeypatch):
    make().prefill()
    make(steps(a_max=400)).prefill()
    assert Counted.count == 6
    monkeypatch.setattr("monai.__version__", "9.9")
    make().prefill()
    assert Counted.count == 9


def test_settings_do_not_depend_on_use_or_on_addresses(make):
    used = steps()
    make(used)[0]
    assert settings_text(used[:5]) == settings_text(steps()[:5]) and "0x" not in settings_text(used[:5])


def test_a_damaged_file_is_made_again(make, tmp_path, caplog):
    dataset = make()
    dataset.prefill()
    whole = dataset.prepared(0)["image"].clone()
    for path, content in zip(files(tmp_path), (b"", b"rubbish", files(tmp_path)[2].read_bytes()[:500]), strict=True):
        path.write_bytes(content)
    with caplog.at_level(logging.WARNING, "fedmed.data"):
        assert torch.equal(make().prepared(0)["image"], whole)
        make().prefill()
        [make().prepared(index) for index in range(3)]
    assert caplog.text.count("is damaged") == 3
    caplog.clear()
    [make().prepared(index) for index in range(3)]
    assert not caplog.text


def test_flipped_bytes_in_a_case_are_noticed_and_it_is_made_again(make, tmp_path, caplog):
    """PyTorch reads them without a word."""
    make().prefill()
    whole = make().prepared(0)["image"].clone()
    for path in files(tmp_path):
        content = bytearray(path.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 64] = bytes(255 - byte for byte in content[middle : middle + 64])
        path.write_bytes(content)
    with caplog.at_level(logging.WARNING, "fedmed.data"):
        assert torch.equal(make().prepared(0)["image"], whole)
    assert "is damaged (StateError)" in caplog.text


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"),
    ],
)
def test_a_full_disk_is_said_once_and_training_goes_on(make, tmp_path, monkeypatch, caplog, error):
    def full(item, file):
        file.write(b"half a file")
        raise error

    monkeypatch.setattr(storing.torch, "save", full)
    dataset = make()
    with caplog.at_level(logging.WARNING, "fedmed.data"):
        dataset.prefill()
        items = [dataset[index] for index in range(3)]
    assert caplog.text.count("continuing without it") == 1 and len(items) == 3 and files(tmp_path) == []


def test_a_folder_that_cannot_be_made(make, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cache folder .* cannot be made .* cache_dir"):
        make(cache_dir=tmp_path / "file")


def test_nobody_else_can_read_the_cache(make, tmp_path):
    make().prefill()
    assert stat.S_IMODE((tmp_path / "cache" / CACHE_FOLDER).stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in files(tmp_path)} == {0o600}


def test_writers_of_one_case_do_not_clash(tmp_path):
    store = CaseStore(tmp_path)
    path = store.folder / f"{'a' * 64}.pt"
    item = {"image": torch.arange(100_000.0)}
    threads = [threading.Thread(target=lambda: [store.write(path, item) for _ in range(5)]) for _ in range(4)]
    seen = []
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        seen.append(store.read(path))
    assert all(torch.equal(case["image"], item["image"]) for case in seen if case is not None)
    assert [p.name for p in store.folder.iterdir()] == [path.name]


def test_writing_to_an_item_does_not_reach_the_file(make):
    dataset = make()
    dataset.prefill()
    before = dataset.prepared(0)["image"].clone()
    dataset.prepared(0)["image"].fill_(7)
    assert torch.equal(dataset.prepared(0)["image"], before)


def test_purge_deletes_our_files_only(make, tmp_path):
    make().prefill()
    folder = tmp_path / "cache" / CACHE_FOLDER
    (folder / f"{'b' * 64}.x1.tmp").write_text("left by a killed process")
    for foreign in (folder / "notes.txt", tmp_path / "cache" / "other.pt"):
        foreign.write_text("not ours")
    assert purge(tmp_path / "cache") == 4
    assert [path.name for path in files(tmp_path)] == ["notes.txt"] and (tmp_path / "cache" / "other.pt").exists()
    (folder / "notes.txt").unlink()
    assert purge(tmp_path / "cache") == 0 and not folder.exists()
    assert purge(tmp_path / "cache") == 0


def test_an_image_that_vanishes_is_named(make, tmp_path):
    dataset = make()
    (tmp_path / "images/c2.nii.gz").unlink()
    with pytest.raises(DataError, match="c2.nii.gz: is gone"):
        dataset.prefill()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_bad_image_is_a_data_error_also_from_a_worker(make, save_nifti, workers):
    save_nifti("images/c1.nii.gz", np.full((24, 20, 10), np.nan, np.float32))
    with pytest.raises(DataError, match="c1.nii.gz: 4800 voxels are NaN"):
        make().prefill(workers)


def test_a_failing_transform_names_the_image(make):
    keys = ["image", "label"]
    broken = [LoadCased(keys), ScaleIntensityRanged("image", 0, 1, 0, 1), SpatialPadd(keys, (4, 4))]
    dataset = make([*broken, lambda item: item])
    with pytest.raises(DataError, match="c0.nii.gz: cannot be preprocessed"):
        dataset[0]


def test_default_folder_follows_the_home(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDMED_HOME", str(tmp_path))
    assert default_cache_dir() == str(tmp_path / "cache")


def test_a_case_that_does_not_fit_into_memory_is_refused_before_it_is_decoded(make, claim_shape):
    dataset = make()
    path = claim_shape(Path(dataset.data[1]["label"]), 1900, 1900, 1900)
    assert dataset.prepared(0) and Counted.count == 1
    with pytest.raises(DataError, match=f"{path.name}: does not fit into memory: 1900×1900×1900 values"):
        dataset.prepared(1)
    assert Counted.count == 1
