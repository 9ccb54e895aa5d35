import os

import numpy as np
import pytest
import torch
from monai.transforms import LoadImaged, ScaleIntensityRanged
from PIL import Image

from fedmed.data import cache as caching
from fedmed.data.cache import CaseCacheDataset, CaseMemory
from fedmed.data.cases import training_loader
from fedmed.data.datalist import load_datalist
from fedmed.files import CACHE_FOLDER

IMAGE = 6 * 4 * 4  # bytes of a prepared picture


@pytest.fixture
def memory(monkeypatch):
    fresh = CaseMemory()
    monkeypatch.setattr(caching, "MEMORY", fresh)
    return fresh


@pytest.fixture
def make(classified, tmp_path, memory):
    root, datalist = classified(training=["a", "b", "a", "b"])

    def build(in_memory_bytes=10_000, cache_dir=tmp_path / "cache", high=255, tail=None):
        load = LoadImaged("image", image_only=True, ensure_channel_first=True, reverse_indexing=False)
        transform = [load, ScaleIntensityRanged("image", 0, high, 0, 1), tail or (lambda item: item)]
        cases = load_datalist(root, datalist, "training", classes=["a", "b"])
        return CaseCacheDataset(cases, transform, cache_dir, in_memory_bytes)

    return build


def images(dataset):
    return torch.stack([dataset[index]["image"] for index in range(len(dataset))])


@pytest.mark.parametrize("cache", [True, False])
def test_items_equal_those_without_memory(make, tmp_path, cache):
    cache_dir = tmp_path / "cache" if cache else None
    plain, kept = make(0, cache_dir), make(cache_dir=cache_dir)
    for _ in range(2):
        assert torch.equal(images(kept), images(plain))
        assert [kept[n]["label"].item() for n in range(4)] == [0, 1, 0, 1]


def test_no_file_is_read_twice_also_by_the_dataset_of_the_next_round(make, tmp_path):
    expected = images(make())
    for path in (tmp_path / "cache" / CACHE_FOLDER).iterdir():
        path.unlink()
    assert torch.equal(images(make()), expected)
    assert not list((tmp_path / "cache" / CACHE_FOLDER).iterdir())


def test_writing_to_an_item_does_not_reach_the_memory(make):
    dataset = make(tail=lambda item: {**item, "image": item["image"].fill_(7)})
    before = dataset.prepared(0)["image"].clone()
    assert (images(dataset) == 7).all()
    assert torch.equal(dataset.prepared(0)["image"], before)


def test_the_bound_holds_over_all_datasets(make, memory):
    expected = images(make(0))
    assert memory.bytes == 0, "nothing is kept unless asked for"
    assert torch.equal(images(make(2 * IMAGE + 1)), expected) and memory.bytes == 2 * IMAGE
    assert torch.equal(images(make(3 * IMAGE)), expected) and memory.bytes == 3 * IMAGE
    images(make(3 * IMAGE, high=100))
    images(make(0))
    assert memory.bytes == 3 * IMAGE


def test_a_changed_image_or_setting_is_noticed(make, tmp_path):
    before = images(make())
    assert not torch.equal(images(make(high=100)), before)
    path = tmp_path / "images" / "training1.png"
    facts = path.stat()
    Image.fromarray(np.full((6, 4), 9, np.uint8)).save(path)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    after = images(make())
    assert (after[1] == np.float32(9 / 255)).all() and torch.equal(after[0], before[0])


def test_a_loader_gives_the_same_batches(make):
    def batches(dataset):
        return [batch["image"] for batch in training_loader(dataset, batch_size=3, steps=3, seed=1)]

    plain = batches(make(0))
    for _ in range(2):
        assert all(torch.equal(one, other) for one, other in zip(batches(make()), plain, strict=True))
