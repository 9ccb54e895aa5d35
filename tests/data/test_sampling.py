import subprocess
import sys
from collections import Counter

import pytest
import torch
from monai.transforms import RandCropByPosNegLabeld, RandFlipd, RandShiftIntensityd, SpatialPadd
from torch.utils.data import DataLoader

from fedmed.data.cache import CaseCacheDataset
from fedmed.data.cases import (
    BACKGROUND,
    FOREGROUND,
    Alternating,
    ForegroundIndexd,
    LoadCased,
    probe_loader,
    training_loader,
)
from fedmed.data.datalist import load_datalist
from fedmed.errors import DataError
from fedmed.files import CACHE_FOLDER

KEYS = ["image", "label"]
PATCH = (8, 8, 4)


def dataset(root, datalist, augment=(), cache=True):
    crop = RandCropByPosNegLabeld(KEYS, "label", PATCH, 1, 1, 1, fg_indices_key=FOREGROUND, bg_indices_key=BACKGROUND)
    steps = [LoadCased(KEYS), SpatialPadd(KEYS, PATCH), ForegroundIndexd(), crop, *augment]
    return CaseCacheDataset(load_datalist(root, datalist, "training"), steps, root / "cache" if cache else None)


def flip():
    return [RandFlipd(KEYS, 0.5, 0), RandShiftIntensityd("image", 10.0, prob=0.5)]


def batches(loader, key="image"):
    return torch.stack([batch[key] for batch in loader])


def test_exactly_the_batches_asked_for(site):
    loader = training_loader(dataset(*site()), batch_size=2, steps=7, seed=1)
    assert len(loader) == 7 and batches(loader).shape == (7, 2, 1, *PATCH)


def test_equal_seeds_give_equal_batches_with_and_without_cache_whatever_the_global_generator(site):
    where = site()
    torch.manual_seed(1)
    first = batches(training_loader(dataset(*where, flip()), 2, 5, seed=3))
    torch.manual_seed(2)
    assert torch.equal(first, batches(training_loader(dataset(*where, flip()), 2, 5, seed=3)))
    assert torch.equal(first, batches(training_loader(dataset(*where, flip(), cache=False), 2, 5, seed=3)))
    assert not torch.equal(first, batches(training_loader(dataset(*where, flip()), 2, 5, seed=4)))


@pytest.mark.slow
def test_equal_batches_in_another_process_from_the_same_cache(site):
    root, datalist = site()
    here = batches(training_loader(dataset(root, datalist, flip()), 2, 3, seed=5))
    code = (
        "import fedmed, importlib.util, sys, torch; from pathlib import Path;"  # FedMed first: it makes MONAI light
        f"spec = importlib.util.spec_from_file_location('sampling_test', {__file__!r});"
        "m = importlib.util.module_from_spec(spec); spec.loader.exec_module(m); root = Path(sys.argv[1]);"
        "loader = m.training_loader(m.dataset(root, root / 'datalist.json', m.flip()), 2, 3, seed=5);"
        "torch.save(m.batches(loader), root / 'there.pt')"
    )
    subprocess.run([sys.executable, "-c", code, str(root)], check=True)
    assert torch.equal(here, torch.load(root / "there.pt"))
    assert len(list((root / "cache" / CACHE_FOLDER).iterdir())) == 3


def test_augmentation_changes_neither_order_nor_crops(site):
    where = site()
    plain = batches(training_loader(dataset(*where), 1, 8, seed=3), "label")
    shifted = [RandShiftIntensityd("image", 10.0, prob=1.0)]
    assert torch.equal(plain, batches(training_loader(dataset(*where, shifted), 1, 8, seed=3), "label"))


def test_every_case_is_seen_before_one_is_seen_twice(site):
    loader = training_loader(dataset(*site(cases=4)), batch_size=2, steps=5, seed=0)
    order = list(loader.sampler)
    assert Counter(order[:4]) == Counter(order[4:8]) == Counter(range(4)) and len(order) == 10


def test_half_of_the_crops_are_centred_on_foreground(site):
    labels = batches(training_loader(dataset(*site()), 4, 50, seed=0), "label").reshape(200, *PATCH)
    centre = labels[:, PATCH[0] // 2, PATCH[1] // 2, PATCH[2] // 2]
    assert 0.4 < centre.mean() < 0.62


def test_no_cases_no_loader(site):
    root, _ = site()
    assert training_loader(CaseCacheDataset([], [LoadCased(KEYS)], root / "cache"), 2, 3, seed=0) is None


def test_a_site_without_any_foreground_is_refused(site):
    root, datalist = site(lesion=False)
    with pytest.raises(DataError, match="datalist.json: none of the 3 training masks has a foreground voxel"):
        training_loader(dataset(root, datalist), 2, 3, seed=0, foreground_in=datalist)
    assert training_loader(dataset(root, datalist), 2, 3, seed=0) is not None


def test_workers_give_equal_batches_for_equal_seeds(site):
    where = site()
    runs = [batches(training_loader(dataset(*where, flip()), 2, 4, seed=3, num_workers=2)) for _ in range(2)]
    assert torch.equal(*runs)


def test_probe_images_are_the_same_each_time_and_chosen_by_the_seed():
    images = [{"image": torch.full((1, 2, 2), float(i))} for i in range(10)]

    def places(loader):
        return [int(value) for batch in loader for value in batch["image"][:, 0, 0, 0]]

    loader = probe_loader(images, samples=6, seed=1, batch_size=4)
    first = places(loader)
    assert len(set(first)) == 6 and places(loader) == first == places(probe_loader(images, 6, 1, 5))
    assert places(probe_loader(images, 6, 2, 4)) != first
    assert sorted(places(probe_loader(images, 100, 1, 4))) == list(range(10))
    with pytest.raises(DataError, match="sample is to have 0 images"):
        probe_loader(images, 0, 1, 4)


def test_alternating_loaders_give_a_batch_each_in_turn_and_again_in_another_pass():
    mixed = Alternating([["a", "b", "c"], [1, 2], ["x"]])
    assert list(mixed) == list(mixed) == ["a", 1, "x", "b", 2, "c"] and len(mixed) == 6
    one, other = (DataLoader(torch.arange(first, first + 4), batch_size=2) for first in (0, 10))
    mixed = Alternating([one, other])
    assert [batch.tolist() for batch in mixed] == [[0, 1], [10, 11], [2, 3], [12, 13]]
    assert mixed.dataset is one.dataset
    with pytest.raises(DataError, match="there are no loaders; list one at least"):
        Alternating([])
