import math

import pytest
import torch

from fedmed.errors import FedMedError
from fedmed.systems.fedcy.loss import CycleConsistencyLoss, feature_spread

U = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]], dtype=torch.float64)
V = torch.tensor([[0.6, 0.8], [1.0, 0.0]], dtype=torch.float64)


def loss_of(u, v, times=None, **said):
    made = CycleConsistencyLoss(**{"floor": 1e-8, **said})
    return made.there_and_back(u[None], v[None], times).loss


def terms(u, v, tau=0.05, weight=0.001, floor=1e-8, similar="cosine", index=None):
    """Of each start frame, by loops: (1) and (2) word by word."""

    def alike(a, b):
        if similar == "cosine":
            return float(a @ b / (a.norm() * b.norm()))
        return -float((a - b).square().sum()) / len(a)

    index = torch.arange(1, len(u) + 1).double() if index is None else index
    losses = []
    for k, start in enumerate(u):
        alpha = torch.softmax(torch.tensor([alike(start, row) / tau for row in v], dtype=torch.float64), 0)
        near = sum(a * row for a, row in zip(alpha, v, strict=True))
        beta = torch.softmax(torch.tensor([alike(near, row) / tau for row in u], dtype=torch.float64), 0)
        mu = sum(b * j for b, j in zip(beta, index, strict=True))
        var = max(float(sum(b * (j - mu) ** 2 for b, j in zip(beta, index, strict=True))), floor)
        losses.append(float((index[k] - mu) ** 2) / var + weight * math.log(var))
    return losses


def test_one_pair():
    assert terms(U, V, tau=0.5) == pytest.approx([0.956270, 0.059855, 1.883342], abs=1e-6)
    assert loss_of(U, V, temperature=0.5).item() == pytest.approx(0.9664888594, abs=1e-9)
    assert loss_of(V, U, temperature=0.5).item() == pytest.approx(0.6739765171, abs=1e-9)
    assert loss_of(U, V).item() == pytest.approx(8.0400923811, abs=1e-8), "a bad match dominates at a low temperature"


def test_the_way_of_one_frame():
    """α, ṽ, β, μ and σ² of the first frame, from the similarity that the loss uses."""
    made = CycleConsistencyLoss(temperature=0.5)
    alpha = (made._similar(U[None], V[None]) / 0.5).softmax(dim=2)
    near = alpha @ V
    beta = (made._similar(near, U[None]) / 0.5).softmax(dim=2)[0, 0]
    mean = sum(share * place for place, share in enumerate(beta.tolist(), 1))
    variance = sum(share * (place - mean) ** 2 for place, share in enumerate(beta.tolist(), 1))
    assert alpha[0, 0].tolist() == pytest.approx([0.31002552, 0.68997448], abs=1e-8)
    assert near[0, 0].tolist() == pytest.approx([0.87598979, 0.24802042], abs=1e-8)
    assert beta.tolist() == pytest.approx([0.45550069, 0.42984887, 0.11465044], abs=1e-8)
    assert (mean, variance) == (pytest.approx(1.659150, abs=1e-6), pytest.approx(0.45397223, abs=1e-8))


def test_normalised_indices_differ_by_a_constant():
    loss = loss_of(U, V, temperature=0.5, index="normalised").item()
    assert loss == pytest.approx(0.9642916349, abs=1e-9)
    assert loss == pytest.approx(0.9664888594 - 0.001 * math.log(9), abs=1e-9)


def test_clips_that_match_exactly():
    eye = torch.eye(4).double()
    cycles = CycleConsistencyLoss().there_and_back(eye[None], eye[None])
    assert cycles.loss.item() == pytest.approx(-0.0138155, abs=1e-7) and cycles.error < 1e-9 and cycles.variance < 1e-6
    assert cycles.loss.item() - 0.001 * math.log(1e-6) == pytest.approx(1.5e-10, abs=1e-10)
    assert loss_of(eye, eye, temperature=0.5, floor=1e-6).item() == pytest.approx(0.2641916, abs=1e-7)
    assert loss_of(eye, eye.flip(0), floor=1e-6).item() == pytest.approx(-0.0138155, abs=1e-7)  # order is not seen


@pytest.mark.parametrize(("n", "expected"), [(4, 1.0002231436), (16, 1.0030563569)])
def test_equal_features(n, expected):
    same = torch.ones(n, 3).double()
    cycles = CycleConsistencyLoss().there_and_back(same[None], same[None])
    assert cycles.loss.item() == pytest.approx(expected, abs=1e-9)
    assert cycles.loss.item() == pytest.approx(1 + 0.001 * math.log((n * n - 1) / 12), abs=1e-12)
    assert cycles.variance.item() == pytest.approx((n * n - 1) / 12) and cycles.back.item() == pytest.approx(2 / n)
    assert feature_spread(same[None]).item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("similar", ["cosine", "l2_scaled"])
@pytest.mark.parametrize(("clips", "size", "dim"), [(2, 16, 32), (3, 4, 5), (5, 2, 7)])
def test_equals_a_slow_reference_over_all_pairs(clips, size, dim, similar):
    rows = torch.randn(clips, size, dim, generator=torch.Generator().manual_seed(dim), dtype=torch.float64)
    pairs = [(a, b) for a in range(clips) for b in range(a + 1, clips)]
    mean = lambda u, v: sum(terms(u, v, tau=0.3, similar=similar)) / size  # noqa: E731
    expected = sum(mean(rows[a], rows[b]) + mean(rows[b], rows[a]) for a, b in pairs) / len(pairs)
    made = CycleConsistencyLoss(temperature=0.3, similarity=similar, floor=1e-8)
    assert made(rows).loss.item() == pytest.approx(expected, rel=1e-9)
    assert made(rows.float()).loss.item() == pytest.approx(expected, rel=1e-3)


def test_frame_times_are_an_index():
    times = torch.tensor([[0.1, 0.3, 0.9]], dtype=torch.float64)
    expected = sum(terms(U, V, tau=0.5, index=times[0], floor=1e-8 / 9)) / 3
    assert loss_of(U, V, times, temperature=0.5, index="frame_time").item() == pytest.approx(expected, abs=1e-9)
    with pytest.raises(FedMedError, match="needs the times of 3 frames a clip, none came"):
        loss_of(U, V, index="frame_time")


@pytest.mark.parametrize("floor", [1e-6, 0.5])
def test_floor_acts_on_the_same_frames_whatever_the_index(floor):
    grads, squares = [], []
    even = (torch.arange(1, 17).double() / 16).expand(2, 16)
    for index in ("position", "normalised", "frame_time"):
        rows = torch.randn(2, 16, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
        cycles = CycleConsistencyLoss(index=index, floor=floor)(rows, even)
        cycles.loss.backward()
        grads.append(rows.grad)
        squares.append((cycles.error.item(), cycles.variance.item(), cycles.back.item()))
    for other, numbers in zip(grads[1:], squares[1:], strict=True):
        assert torch.allclose(grads[0], other, rtol=1e-6, atol=1e-9) and numbers == pytest.approx(squares[0])


def test_order_of_the_clip_between_does_not_count():
    u, v = torch.randn(2, 9, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    mixed = v[torch.randperm(9, generator=torch.Generator().manual_seed(3))]
    assert loss_of(u, mixed).item() == pytest.approx(loss_of(u, v).item(), rel=1e-9)


def test_what_scaling_changes():
    u, v = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    one = torch.ones(5, 1).double()
    one[2] = 7.0
    before = loss_of(u, v, temperature=0.5).item()
    assert loss_of(u * one, v, temperature=0.5).item() == pytest.approx(before, rel=1e-9)
    assert loss_of(u, 7 * v, temperature=0.5).item() == pytest.approx(before, rel=1e-9)
    assert abs(loss_of(u, v * one, temperature=0.5).item() - before) > 1e-3


@pytest.mark.parametrize(("clips", "size", "dim"), [(2, 16, 4), (3, 5, 64)])
def test_the_chance_level_is_what_clips_in_a_random_order_have(clips, size, dim):
    """Against many clips whose frames were shuffled."""
    draw = torch.Generator().manual_seed(size)
    rows, loss = torch.randn(clips, size, dim, generator=draw, dtype=torch.float64), CycleConsistencyLoss()
    shuffled = [
        loss(torch.stack([clip[torch.randperm(size, generator=draw)] for clip in rows])).back for _ in range(300)
    ]
    assert loss(rows).chance.item() == pytest.approx(torch.stack(shuffled).mean().item(), abs=0.02)


def test_the_chance_level_of_features_that_say_nothing():
    assert CycleConsistencyLoss()(torch.ones(2, 16, 3)).chance.item() == pytest.approx(0.18, abs=0.001)
    drawn = torch.randn(2, 16, 128, generator=torch.Generator().manual_seed(0))
    assert 0.4 < CycleConsistencyLoss()(drawn).chance.item() < 0.9, "unrelated features find their own place again"


def test_separated_frames_come_back():
    rows = torch.eye(16)
    cycles = CycleConsistencyLoss()(torch.stack([rows, rows]))
    assert cycles.back == 1 and cycles.error < 1e-6
    assert feature_spread(torch.stack([rows, rows])).item() == pytest.approx(1)


@pytest.mark.parametrize("index", ["position", "normalised", "frame_time"])
def test_only_features_have_gradients_and_zero_vectors_do_no_harm(index):
    rows = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
    rows[0, 1] = 0
    rows.requires_grad_()
    times = torch.rand(3, 4, generator=torch.Generator().manual_seed(1)).sort(dim=1).values.requires_grad_()
    cycles = CycleConsistencyLoss(index=index)(rows, times)
    cycles.loss.backward()
    assert times.grad is None and torch.isfinite(rows.grad).all() and rows.grad.abs().sum() > 0
    assert not (cycles.error.requires_grad or cycles.variance.requires_grad or cycles.back.requires_grad)
    assert not cycles.chance.requires_grad


@pytest.mark.parametrize("index", ["position", "normalised", "frame_time"])
def test_gradients_are_those_of_features_with_fixed_indices(index):
    """By differences of the loss in one feature after another, the indices being what they were."""
    rows = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64).requires_grad_()
    times = torch.tensor([[0.0, 0.2, 0.5, 0.6], [0.1, 0.4, 0.7, 0.9]], dtype=torch.float64)
    loss = CycleConsistencyLoss(temperature=0.5, index=index)
    assert torch.autograd.gradcheck(lambda features: loss(features, times).loss, rows)


def test_low_temperatures_stay_finite_in_half_precision():
    rows = torch.randn(2, 16, 64, generator=torch.Generator().manual_seed(0)).half()
    cycles = CycleConsistencyLoss(temperature=0.01)(rows)
    assert cycles.loss.dtype == torch.float32 and cycles.loss.isfinite()
    assert cycles.loss.item() == pytest.approx(CycleConsistencyLoss(temperature=0.01)(rows.float()).loss.item())


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ({"temperature": 0}, "'temperature'"),
        ({"floor": 0.0}, "'floor'"),
        ({"variance_weight": -1}, "'variance_weight'"),
        ({"similarity": "dot"}, "similarity is 'dot'; use cosine or l2_scaled"),
        ({"index": "frame"}, "index is 'frame'; use position"),
    ],
)
def test_wrong_settings(said, match):
    with pytest.raises(FedMedError, match=match):
        CycleConsistencyLoss(**said)


def test_one_clip_has_nothing_to_be_compared_with():
    with pytest.raises(FedMedError, match="at least 2 clips.*max_batch_size"):
        CycleConsistencyLoss()(torch.rand(1, 16, 4))
