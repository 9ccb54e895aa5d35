import json
import random
from collections import Counter

import pytest
import torch
from monai.data import DataLoader
from monai.transforms import LoadImaged, ScaleIntensityRanged

from fedmed.data.cache import CaseCacheDataset
from fedmed.data.cases import training_loader
from fedmed.data.classes import labelled_fraction, load_images
from fedmed.data.datalist import load_datalist
from fedmed.errors import DataError
from fedmed.files import CACHE_FOLDER


def cases(*counts):
    places = [(label, n) for label, count in enumerate(counts) for n in range(count)]
    return [{"image": f"/x/{label}_{n}.png", "label": label} for label, n in places]


def counts(chosen):
    return tuple(count for _, count in sorted(Counter(case["label"] for case in chosen).items()))


def names(chosen):
    return {case["image"] for case in chosen}


@pytest.mark.parametrize(
    ("sizes", "fraction", "expected"),
    [
        (
            (1341, 219, 383),
            0.03,
            (40, 7, 11),
        ),  # the paper's training half: quotas 40.23, 6.57, 11.49: the remainder .57 is the largest
        ((1900, 20, 23), 0.03, (56, 1, 1)),  # quotas 57, .6, .69: the total stays 58
        ((10, 10, 10), 0.03, (1, 1, 1)),
        ((100, 1), 0.5, (50, 1)),  # 50.5 is rounded up
        ((3, 3), 0.5, (2, 1)),  # equal remainders: the first class
        ((7, 5), 1.0, (7, 5)),
        ((5, 0, 5), 0.2, (1, 1)),  # a class without cases
        ((1,), 0.001, (1,)),
    ],
)
def test_shares_of_the_classes(sizes, fraction, expected):
    chosen = labelled_fraction(cases(*sizes), fraction, seed=0)
    assert counts(chosen) == expected


def test_shares_are_the_nearest_that_there_are():
    """Against a search over all shares of the same total that leave no class out."""
    draw = random.Random(0)
    for _ in range(60):
        sizes = [draw.randint(1, 9) for _ in range(3)]
        fraction = draw.choice([0.03, 0.1, 0.3, 0.5, 0.77, 1.0])
        shares = counts(labelled_fraction(cases(*sizes), fraction, 0))
        total = max(3, int(fraction * sum(sizes) + 0.5))
        assert sum(shares) == total
        a, b, c = (range(1, size + 1) for size in sizes)
        possible = [(i, j, k) for i in a for j in b for k in c if i + j + k == total]
        error = [sum((n - fraction * size) ** 2 for n, size in zip(share, sizes, strict=True)) for share in possible]
        chosen = sum((n - fraction * size) ** 2 for n, size in zip(shares, sizes, strict=True))
        assert chosen == pytest.approx(min(error))


def test_the_choice_depends_on_the_seed_and_not_on_order_or_place():
    listed = cases(40, 20)
    chosen = labelled_fraction(listed, 0.3, 1)
    shuffled = random.Random(0).sample(listed, len(listed))
    again = labelled_fraction(shuffled, 0.3, 1)
    assert names(chosen) == names(again) and chosen != again
    assert again == [case for case in shuffled if case in again]  # in the order of the list
    moved = [case | {"image": case["image"].replace("/x/", "/elsewhere/")} for case in listed]
    assert {name.replace("/elsewhere/", "/x/") for name in names(labelled_fraction(moved, 0.3, 1))} == names(chosen)
    assert names(labelled_fraction(listed, 0.3, 2)) != names(chosen)
    assert names(labelled_fraction(listed, 0.1, 1)) < names(chosen)
    assert labelled_fraction(listed, 1, 1) == listed


@pytest.mark.parametrize("fraction", [0, -0.1, 1.01, float("nan")])
def test_a_fraction_out_of_range(fraction):
    with pytest.raises(DataError, match="labelled fraction is .*above 0 and at most 1"):
        labelled_fraction(cases(3), fraction, 0)


def test_a_case_without_a_class():
    with pytest.raises(DataError, match="/x/a.png: has no class; give load_datalist the classes"):
        labelled_fraction([{"image": "/x/a.png", "label": "labels/a.png"}], 0.5, 0)
    assert labelled_fraction([], 0.5, 0) == []


def test_images_are_loaded_without_labels(classified, caplog):
    root, datalist = classified(unlabeled=[None, None], training=["a", "b"], validation=["a"], testing=["b"])
    with caplog.at_level("INFO", "fedmed.data"):
        images = load_images(root, datalist)
    assert "datalist.json: 2 entries carry a label; this training does not look at labels" in caplog.text
    names = ("unlabeled0", "unlabeled1", "training0", "training1")
    assert images == [{"image": str(root / f"images/{name}.png")} for name in names]
    assert len(load_images(root, datalist, ["training"])) == 2


def test_images_of_a_site_of_masks(site):
    root, datalist = site(cases=2)
    content = json.loads(datalist.read_text())
    datalist.write_text(json.dumps({"training": content["training"], "unlabeled": content["unlabeled"]}))
    assert load_images(root, datalist) == [{"image": str(root / f"images/c{n}.nii.gz")} for n in range(2)]  # each once


def test_held_out_images_are_left_out(classified, caplog):
    root, datalist = classified(training=["a", "b", "a"], testing=["a"])
    content = json.loads(datalist.read_text())
    content["testing"] += content["training"][:1]
    datalist.write_text(json.dumps(content))
    with caplog.at_level("WARNING", "fedmed.data"):
        assert len(load_images(root, datalist)) == 2
    assert "1 images are also listed for validation or testing" in caplog.text
    with pytest.raises(DataError, match="keys has 'testing', whose images are never trained on"):
        load_images(root, datalist, ["unlabeled", "testing"])


def test_no_image_at_all(classified):
    root, datalist = classified(testing=["a"])
    with pytest.raises(DataError, match="none of the lists unlabeled, training has images"):
        load_images(root, datalist)
    root, datalist = classified(training=["a"])
    (root / "images/training0.png").unlink()
    with pytest.raises(DataError, match="entry 0 of 'training': the image .* does not exist"):
        load_images(root, datalist)


def dataset(site, cache_dir):
    root, datalist = site
    load = LoadImaged("image", image_only=True, ensure_channel_first=True, reverse_indexing=False)
    transform = [load, ScaleIntensityRanged("image", 0, 255, 0, 1), lambda item: item]
    return CaseCacheDataset(load_datalist(root, datalist, "training", classes=["a", "b"]), transform, cache_dir)


@pytest.mark.parametrize("cache", [True, False])
def test_classes_reach_the_batch(classified, tmp_path, cache):
    data = dataset(classified(training=["b", "a", "b"]), tmp_path / "cache" if cache else None)
    for _ in range(2):  # from the image, from the cache
        batch = next(iter(DataLoader(data, batch_size=3)))
        assert batch["label"].tolist() == [1, 0, 1] and batch["label"].dtype == torch.int64
        assert batch["image"].shape == (3, 1, 6, 4) and type(batch["image"]) is torch.Tensor
    drawn = next(iter(training_loader(data, batch_size=2, steps=1, seed=0)))
    assert drawn["label"].shape == (2,) and drawn["image"].shape == (2, 1, 6, 4)


def test_a_changed_class_is_noticed_without_preparing_the_image_again(classified, tmp_path):
    dataset(classified(training=["b", "a"]), tmp_path / "cache").prefill()
    before = sorted((tmp_path / "cache" / CACHE_FOLDER).iterdir())
    stamps = [path.stat().st_mtime_ns for path in before]
    content = json.loads((tmp_path / "datalist.json").read_text())
    content["training"][0]["label"] = "a"
    (tmp_path / "datalist.json").write_text(json.dumps(content))
    data = dataset((tmp_path, tmp_path / "datalist.json"), tmp_path / "cache")
    assert [data[0]["label"].item(), data[1]["label"].item()] == [0, 0]
    assert sorted((tmp_path / "cache" / CACHE_FOLDER).iterdir()) == before
    assert [path.stat().st_mtime_ns for path in before] == stamps
    assert all(set(torch.load(path, weights_only=True)) == {"image"} for path in before)
