import numpy as np
import pytest
import torch
from monai.transforms import EnsureTyped, Lambdad
from PIL import Image

from fedmed.data.augment.xray import ClaheViewsd
from fedmed.data.cache import CaseCacheDataset
from fedmed.data.cases import training_loader
from fedmed.errors import DataError, FedMedError


def views(image, seed=0, **options):
    transform = ClaheViewsd("image", **options)
    transform.set_random_state(seed)
    return transform({"image": image})["image"]


@pytest.fixture
def image():
    rows, columns = torch.meshgrid(torch.linspace(0, 1, 48), torch.linspace(0, 1, 64), indexing="ij")
    return (0.3 + 0.2 * rows * columns + 0.02 * torch.rand(48, 64, generator=torch.Generator().manual_seed(0)))[None]


def test_views_are_in_range_and_differ_and_nothing_else_changes(image):
    before, state, numpy_state = image.clone(), torch.get_rng_state(), np.random.get_state()[1].copy()
    made = views(image, prob=1.0)
    assert made.shape == (2, 1, 48, 64) and made.dtype == torch.float32
    assert made.min() >= 0 and made.max() <= 1 and not torch.equal(made[0], made[1]) and torch.equal(image, before)
    assert torch.equal(state, torch.get_rng_state()) and (numpy_state == np.random.get_state()[1]).all()


def test_contrast_grows_locally(image):
    assert views(image, prob=1.0, clip_limit=(4, 4)).std() > 1.3 * image.std()


def test_without_equalisation_the_image_stays_exactly_as_it_is(image):
    assert torch.equal(views(image, views=3, prob=0.0), image.expand(3, 1, 48, 64))


def test_each_view_is_equalised_or_not_by_itself(image):
    kept = torch.cat([(views(image, seed, prob=0.5) == image).flatten(1).all(dim=1)[None] for seed in range(60)])
    assert 0.3 < kept.float().mean() < 0.7
    assert len(kept.unique(dim=0)) == 4  # both, none, the one, the other


def test_a_constant_image_stays_constant():
    made = views(torch.full((1, 50, 70), 0.4), prob=1.0, views=8)
    assert all(len(view.unique()) == 1 for view in made)


def test_a_seed_repeats_and_probability_changes_no_later_draw(image):
    assert torch.equal(views(image, 7), views(image, 7))
    assert not torch.equal(views(image, 7, prob=1.0), views(image, 8, prob=1.0))
    half, whole = views(image, 7, views=6), views(image, 7, views=6, prob=1.0)
    equalised = [not torch.equal(view, image) for view in half]
    assert any(equalised) and not all(equalised)
    assert all(torch.equal(a, b) for a, b, used in zip(half, whole, equalised, strict=True) if used)


def write_cases(folder, count=4):
    generator = np.random.default_rng(0)
    cases = []
    for number in range(count):
        path = folder / f"{number}.png"
        Image.fromarray(generator.integers(0, 256, (32, 32), dtype=np.uint8)).save(path)
        cases.append({"image": str(path)})
    return cases


def read(path):
    return torch.from_numpy(np.asarray(Image.open(path), dtype=np.float32) / 255)[None]


@pytest.mark.parametrize("workers", [0, 2])
def test_in_the_loader_after_the_cache(tmp_path, workers):
    steps = [Lambdad("image", read), EnsureTyped("image", track_meta=False), ClaheViewsd("image")]
    cases = write_cases(tmp_path)

    def batches():
        dataset = CaseCacheDataset(cases, steps, tmp_path / "cache")
        return [batch["image"] for batch in training_loader(dataset, 2, 4, seed=1, num_workers=workers)]

    first = batches()
    assert all(batch.shape == (2, 2, 1, 32, 32) and type(batch) is torch.Tensor for batch in first)
    assert len({batch.sum().item() for batch in first}) == 4  # not the same draws for every batch
    assert all(torch.equal(a, b) for a, b in zip(first, batches(), strict=True))
    stored = CaseCacheDataset(cases, steps, tmp_path / "cache").prepared(0)["image"]
    assert torch.equal(stored, read(cases[0]["image"]))  # the random part is not in the cache


def test_errors():
    with pytest.raises(FedMedError, match="prob is 2"):
        ClaheViewsd("image", prob=2)
    with pytest.raises(FedMedError, match=r"tiles is \[0, 4\]"):
        ClaheViewsd("image", tiles=(0, 4))
    with pytest.raises(FedMedError, match="clip_limit"):
        ClaheViewsd("image", clip_limit=(4, 1))
    with pytest.raises(DataError, match=r"\(3, 8, 8\)"):
        views(torch.rand(3, 8, 8))
