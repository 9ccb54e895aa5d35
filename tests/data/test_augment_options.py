"""Scale and shift, and Table 2, block 2: noise, cutout, weak and strong views, and their names."""

import pytest
import torch

from fedmed.data.augment import (
    Augment,
    Compose,
    Cutout,
    FixMatch,
    GaussianNoise,
    ScaleShift,
    build_augment,
    weak_view,
)
from fedmed.errors import FedMedError

NAMES = ["scale_shift", "gauss_0.01", "cutout_1", "cutout_2", "fix_0.1"]


def patches(count=2, size=(24, 24, 6), seed=0):
    """Voxels strictly between 0 and 1."""
    return torch.rand(count, 1, *size, generator=torch.Generator().manual_seed(seed)) * 0.9 + 0.05


class Add(Augment):
    """Stands for a method with a weak and a strong view."""

    def __init__(self, weak, strong):
        self.small, self.large = weak, strong

    def __call__(self, batch):
        return batch + self.large

    def weak(self, batch):
        return batch + self.small


# --- scale and shift


def test_one_scale_and_one_shift_a_patch_within_the_level():
    batch = 0.2 + 0.5 * patches(64, (4, 4, 2))  # too far from 0 and 1 to be clipped
    changed = ScaleShift(0.1, seed=1)(batch)
    scales, shifts = [], []
    for patch, new in zip(batch.double(), changed.double(), strict=True):
        system = torch.stack([patch.flatten(), torch.ones(patch.numel(), dtype=torch.float64)], 1)
        solution = torch.linalg.lstsq(system, new.flatten()[:, None]).solution
        assert torch.allclose(system @ solution, new.flatten()[:, None], atol=1e-6)
        scales.append(solution[0].item() - 1)
        shifts.append(solution[1].item())
    for drawn in (torch.tensor(scales), torch.tensor(shifts)):
        assert drawn.abs().max() <= 0.1 + 1e-6
        assert drawn.min() < -0.05 and drawn.max() > 0.05
        assert len(drawn.unique()) == 64


def test_clips_to_the_input_range_and_leaves_the_batch_alone():
    batch = torch.tensor([0.0, 0.5, 1.0]).repeat(32, 1, 1)
    before = batch.clone()
    changed = ScaleShift(1.0, seed=2)(batch)
    assert changed.min() == 0 and changed.max() == 1 and torch.equal(batch, before)
    assert changed.shape == batch.shape and changed.dtype == batch.dtype


def test_compose_chains_student_and_weak_views():
    batch = torch.zeros(1, 1, 2)
    both = Compose([Add(1, 10), lambda x: x * 2, Add(3, 30)])
    assert both(batch).unique().item() == 50
    assert both.weak(batch).unique().item() == 4  # a plain callable has no weak view of its own


def test_weak_view_is_the_patch_itself_by_default():
    batch = patches()
    assert weak_view(ScaleShift(), batch) is weak_view(lambda x: x + 1, batch) is batch
    assert torch.equal(weak_view(Add(1, 2), batch), batch + 1)


# --- noise


@pytest.mark.parametrize(("variance", "deviation"), [(0.0001, 0.01), (0.001, 0.0316228), (0.01, 0.1)])
def test_noise_has_the_variance(variance, deviation):
    batch = torch.full((4, 1, 32, 32, 16), 0.5)  # far from 0 and 1, where it is clipped
    noise = (GaussianNoise(variance, seed=1)(batch) - batch).double()
    assert noise.std().item() == pytest.approx(deviation, rel=0.02)
    assert noise.mean().item() == pytest.approx(0, abs=0.02 * deviation)
    rows = noise.flatten(1)
    assert torch.corrcoef(rows).fill_diagonal_(0).abs().max() < 0.05  # each patch has its own noise


def test_noise_is_clipped_to_the_input_range():
    batch = patches()
    before = batch.clone()
    clipped = GaussianNoise(0.1, seed=2)(batch)
    assert clipped.min() == 0 and clipped.max() == 1 and torch.equal(batch, before)


@pytest.mark.parametrize("kind", [GaussianNoise, ScaleShift])
def test_no_noise_and_level_zero_are_the_identity(kind):
    assert torch.equal(kind(0.0)(patches()), patches())


# --- cutout


def hidden(augment, batch):
    """Voxels that became 0, (B, X, Y, Z); all others must be as they were."""
    changed = augment(batch)
    gone = changed == 0
    assert torch.equal(changed[~gone], batch[~gone])
    return gone[:, 0]


def test_one_box_hides_exactly_its_voxels():
    """Cutout_1 (Yang et al. 2021, Table 2): 20 x 20 x 3 = 1200 voxels."""
    gone = hidden(Cutout(1, seed=3), patches(16, (40, 36, 8)))
    assert gone.flatten(1).sum(1).tolist() == [1200] * 16
    for patch in gone:
        extent = [int(n) for n in patch.nonzero().amax(0) - patch.nonzero().amin(0) + 1]
        assert extent == [20, 20, 3]  # one solid box


def test_five_boxes_may_overlap():
    """Cutout_2 (Yang et al. 2021, Table 2): at most 5 x 1200 = 6000 voxels."""
    counts = hidden(Cutout(5, seed=3), patches(16, (40, 36, 8))).flatten(1).sum(1)
    assert counts.max() <= 6000 and counts.min() >= 1200 and counts.float().mean() > 2400


def test_boxes_are_uniform_and_fully_inside():
    gone = hidden(Cutout(1, (2, 1), seed=4), patches(3000, (4, 2)))
    starts = [tuple(patch.nonzero()[0].tolist()) for patch in gone]
    counts = {start: starts.count(start) for start in set(starts)}
    assert set(counts) == {(x, y) for x in range(3) for y in range(2)}
    assert all(400 < count < 600 for count in counts.values())


def test_all_channels_are_hidden_at_the_same_places():
    changed = Cutout(2, (3, 3, 3), seed=5)(torch.ones(3, 2, 8, 8, 8))
    assert torch.equal(changed[:, 0] == 0, changed[:, 1] == 0) and (changed == 0).any()


def test_a_box_as_large_as_the_patch():
    assert not Cutout(1, (4, 4, 3))(torch.ones(2, 1, 4, 4, 3)).any()


@pytest.mark.parametrize("size", [(24, 19, 6), (24, 24), (24, 24, 2)])
def test_a_box_that_does_not_fit(size):
    with pytest.raises(FedMedError, match=r"a box of \[20, 20, 3\] voxels does not fit .* 'cutout_size'"):
        Cutout()(torch.ones(1, 1, *size))


# --- weak and strong


def test_fixmatch_has_a_weak_and_a_strong_view():
    batch = torch.full((512, 1, 2), 0.5)
    named = build_augment("Fix_0.25")
    assert (named.for_label.level, named.for_student.level) == (0.25, 0.75)
    augment = FixMatch(0.1, seed=6)
    weak, strong = ((view - batch).abs().amax().item() for view in (augment.weak(batch), augment(batch)))
    assert 0.1 < weak <= 0.15 + 1e-6  # half of the scale's level, and the shift's
    assert 1.2 < strong <= 1.35 + 1e-6  # not clipped
    assert (augment.for_label.level, augment.for_student.level) == (0.1, 0.9)


@pytest.mark.parametrize(("low", "high"), [(0.1, 0.9), (0.3, 1.0), (0.0, 1.0)])
def test_no_view_of_fixmatch_makes_a_patch_a_single_grey_value(low, high):
    """Clipped to [0, 1] many strong views would be one: all black or all white."""
    batch = torch.linspace(low, high, 32).expand(4000, 1, 32)
    for level in (0.1, 0.25):
        augment = FixMatch(level, seed=4)
        for view in (augment(batch), augment.weak(batch)):
            spread = view.amax((1, 2)) - view.amin((1, 2))
            assert (spread > level * (high - low) - 1e-6).all()  # 1 + a is at least 1 - (1 - y) = y
    strong = FixMatch(0.1, seed=4)(batch).clamp(0, 1)
    flat = (strong.amax((1, 2)) == strong.amin((1, 2))).float().mean()
    assert 0.01 < flat < 0.25


def test_fixmatch_at_one_half_is_symmetric():
    """Fix_0.5 (Yang et al. 2021, Table 2): both views have level 0.5."""
    augment = FixMatch(0.5)
    assert augment.for_label.level == augment.for_student.level == 0.5
    assert not torch.equal(augment(patches()), augment.weak(patches()))  # equal levels, but independent draws


def test_views_do_not_disturb_each_other():
    both, student_alone = FixMatch(0.25, seed=7), FixMatch(0.25, seed=7)
    both.weak(patches())
    assert torch.equal(both(patches()), student_alone(patches()))


# --- names


@pytest.mark.parametrize(
    ("name", "kind", "values"),
    [
        ("identity", Augment, {}),
        ("scale_shift", ScaleShift, {"level": 0.2}),
        ("Gauss_0.001", GaussianNoise, {"variance": 0.001}),
        ("gauss_1e-1", GaussianNoise, {"variance": 0.1}),
        ("Cutout_1", Cutout, {"boxes": 1, "size": (3, 3, 2)}),
        ("cutout_2", Cutout, {"boxes": 5, "size": (3, 3, 2)}),
    ],
)
def test_names_of_the_paper(name, kind, values):
    augment = build_augment(name, shift_level=0.2, cutout_size=[3, 3, 2])
    assert type(augment) is kind
    assert {key: getattr(augment, key) for key in values} == values


def test_a_list_is_applied_in_its_order():
    batch = patches()
    both = build_augment(["fix_0.1", "cutout_1"], seed=8)
    assert isinstance(both, Compose)
    single = [build_augment(name, seed=8) for name in ("fix_0.1", "cutout_1")]
    assert torch.equal(both(batch), single[1](single[0](batch)))
    assert torch.equal(both.weak(batch), single[0].weak(batch))  # cutout leaves the pseudo-label's view alone


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_alone_decides(name):
    batch, state = patches(), torch.get_rng_state()
    first, again = build_augment(name, seed=9), build_augment(name, seed=9)
    one = first(batch)
    assert torch.equal(one, again(batch)) and not torch.equal(one, batch)
    assert not torch.equal(first(batch), one)  # the second call draws anew
    assert not torch.equal(build_augment(name, seed=10)(batch), one)
    assert torch.equal(torch.get_rng_state(), state)  # so sampling draws what it drew before


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("others", [["gauss_0.1"], ["cutout_2", "scale_shift"]])
def test_another_augmentation_changes_no_draw(name, others):
    alone, among = build_augment(name, seed=11), build_augment([*others, name], seed=11)
    kinds = [other.split("_")[0] for other in others]
    changed = name.split("_")[0] in kinds  # the second of a kind draws its own numbers
    assert torch.equal(among.augments[-1](patches()), alone(patches())) is not changed


def test_arms_that_differ_in_a_number_draw_the_same():
    batch = torch.full((2, 1, 24, 24, 6), 0.5)
    small, large = (build_augment(f"gauss_{x}", seed=12)(batch) - batch for x in (0.0001, 0.0004))
    assert torch.allclose(2 * small, large, atol=1e-6)
    default = build_augment("scale_shift", seed=13)(patches())
    assert torch.equal(default, ScaleShift(seed=13)(patches())), "as before there was a choice"


@pytest.mark.parametrize("name", ["blur", "gauss", "gauss_x", "cutout_3", "fix_", "scale_shift_0.1", ""])
def test_an_unknown_name_lists_the_known(name):
    with pytest.raises(FedMedError, match=r"unknown; use one of identity, scale_shift, gauss_<variance>, cutout_1"):
        build_augment(["scale_shift", name])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: build_augment([]), "the list is empty"),
        (lambda: build_augment("gauss_-0.1"), "variance is -0.1"),
        (lambda: build_augment("gauss_nan"), "variance is nan"),
        (lambda: build_augment("fix_0.75"), "level is 0.75"),
        (lambda: build_augment("cutout_1", cutout_size=[20, 0, 3]), r"size is \[20, 0, 3\]"),
        (lambda: build_augment("cutout_1", cutout_size=20), "size is 20; give integers"),
        (lambda: build_augment(0.1), "augmentation '0.1' is unknown"),
        (lambda: Cutout(0), "boxes is 0"),
        *((lambda level=level: ScaleShift(level), "ScaleShift: level is") for level in (-0.1, 1.5, float("nan"))),
    ],
)
def test_bad_values(make, message):
    with pytest.raises(FedMedError, match=message):
        make()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", NAMES)
def test_on_a_gpu(name):
    batch = patches()
    changed = build_augment(name, seed=14)(batch.cuda())
    assert changed.device.type == "cuda"
    assert torch.equal(changed, build_augment(name, seed=14)(batch.cuda()))
    if not name.startswith("gauss"):  # noise is drawn on the device
        assert torch.allclose(changed.cpu(), build_augment(name, seed=14)(batch), atol=1e-6)
