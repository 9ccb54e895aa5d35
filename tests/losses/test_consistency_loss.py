import math

import pytest
import torch

from fedmed.errors import FedMedError
from fedmed.systems.covid_fssl.loss import KINDS, SCOPES, ConsistencyLoss


def row(*values, **kwargs):
    return torch.tensor(values, dtype=torch.float64, **kwargs).view(1, 1, -1)


P = row(0.97, 0.92, 0.60, 0.30, 0.05)
Q = row(0.80, 0.50, 0.90, 0.40, 0.20)


def reference(kind, scope, threshold, p, q):
    """Voxel by voxel, in plain Python."""
    total = 0.0
    for sample_p, sample_q in zip(p, q, strict=True):
        pairs = list(zip(sample_p.flatten().tolist(), sample_q.flatten().tolist(), strict=True))
        if scope == "foreground":
            pairs = [(a, b) for a, b in pairs if a > threshold]
        elif scope == "two_sided":
            pairs = [(a, b) for a, b in pairs if max(a, 1 - a) > threshold]
        if not pairs:
            continue
        pairs = [(a if kind == "dice_soft" else float(a > 0.5), b) for a, b in pairs]
        if kind.startswith("dice"):
            total += 1 - 2 * sum(t * b for t, b in pairs) / (sum(t * t + b * b for t, b in pairs) + 1e-8)
            continue
        term = {
            "l1": lambda t, b: abs(t - b),
            "l2": lambda t, b: (t - b) ** 2,
            "ce": lambda t, b: -(t * math.log(b) + (1 - t) * math.log(1 - b)),
        }[kind]
        total += sum(term(t, b) for t, b in pairs) / len(pairs)
    return total / len(p)


@pytest.mark.parametrize(
    ("kind", "scope", "value"),
    [
        ("l1", "whole", 0.280000),
        ("l1", "foreground", 0.350000),
        ("l2", "whole", 0.100000),
        ("l2", "foreground", 0.145000),
        ("ce", "whole", 0.351124),
        ("ce", "foreground", 0.458145),
        ("dice_hard", "whole", 0.102041),
        ("dice_hard", "foreground", 0.100346),
        ("dice_soft", "whole", 0.079183),
        ("dice_soft", "foreground", 0.076682),
        ("dice_hard", "two_sided", 0.112628),
        ("ce", "two_sided", 0.379811),
    ],
)
def test_every_loss_worked_out_by_hand(kind, scope, value):
    """Yang et al. 2021, Table 2."""
    assert ConsistencyLoss(kind, scope, 0.9)(P, Q).item() == pytest.approx(value, abs=1e-6)


def test_gradient_of_the_default():
    """It is 0 wherever p <= τ (Yang et al. 2021, Eq. 6)."""
    q = Q.clone().requires_grad_()
    ConsistencyLoss()(P, q).backward()
    assert torch.allclose(q.grad, row(-0.19396319, -0.38074257, 0, 0, 0), atol=1e-6, rtol=0)
    assert not q.grad[..., 2:].any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("shape", [(1, 1, 4), (3, 1, 5, 4), (2, 1, 4, 3, 5)])
@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.95])
def test_equals_slow_reference(kind, scope, shape, threshold):
    torch.manual_seed(3)
    p, q = torch.rand(shape, dtype=torch.float64), torch.rand(shape, dtype=torch.float64)
    p[0] *= 0.6  # at 0.7 and above, this sample has no confident foreground
    loss = ConsistencyLoss(kind, scope, threshold)(p, q).item()
    assert loss == pytest.approx(reference(kind, scope, threshold, p, q), abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scope", SCOPES)
def test_gradient_is_zero_outside_the_region_and_never_reaches_p(kind, scope):
    torch.manual_seed(4)
    p = torch.rand(2, 1, 6, 6, dtype=torch.float64, requires_grad=True)
    q = torch.rand(2, 1, 6, 6, dtype=torch.float64, requires_grad=True)
    criterion = ConsistencyLoss(kind, scope, 0.8)
    criterion(p, q).backward()
    outside = ~criterion.region(p)
    assert not q.grad[outside].any() and (scope == "whole" or outside.any())
    assert p.grad is None
    assert torch.autograd.gradcheck(lambda x: criterion(p.detach(), x), q)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scope", ["foreground", "two_sided"])
def test_empty_region_gives_zero_loss_and_zero_gradient_on_the_graph(kind, scope):
    q = torch.rand(2, 1, 4, 4, 4, requires_grad=True)
    loss = ConsistencyLoss(kind, scope, 0.9)(torch.full_like(q, 0.55), q)
    loss.backward()
    assert loss.item() == 0 and not q.grad.any()


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_without_region_counts_as_zero(kind):
    torch.manual_seed(5)
    p, q = torch.rand(1, 1, 8, dtype=torch.float64) * 0.2 + 0.8, torch.rand(1, 1, 8, dtype=torch.float64)
    criterion = ConsistencyLoss(kind, "foreground", 0.8)
    both = criterion(torch.cat([p, p * 0.1]), torch.cat([q, q]))
    assert both.item() == pytest.approx(criterion(p, q).item() / 2, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scope", SCOPES)
def test_threshold_one_is_never_exceeded(kind, scope):
    p = torch.tensor([1.0, 0.0, 0.5]).view(1, 1, 3)
    assert ConsistencyLoss(kind, scope, 1.0).region(p).any() == (scope == "whole")


def test_certain_prediction_agreeing_with_itself_has_no_dice_loss():
    p = torch.tensor([1.0, 0, 1, 1, 0]).view(1, 1, 5)
    assert ConsistencyLoss("dice_hard", "whole", 0.5)(p, p).item() == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_saturated_predictions_stay_finite(kind):
    q, p = torch.tensor([0.0, 1.0, 0.0, 1.0], requires_grad=True), torch.tensor([1.0, 0.0, 0.0, 1.0])
    loss = ConsistencyLoss(kind, "whole")(p.view(1, 1, 4), q.view(1, 1, 4))
    loss.backward()
    assert loss.isfinite() and q.grad.isfinite().all()


def test_works_under_autocast_and_in_half_precision():
    p, q = torch.rand(2, 1, 1, 8, generator=torch.Generator().manual_seed(0)).half()
    for kind in KINDS:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = ConsistencyLoss(kind, "two_sided", 0.6)(p, q)
        assert loss.dtype == torch.float32
        exact = ConsistencyLoss(kind, "two_sided", 0.6)(p.double(), q.double()).item()
        assert loss.item() == pytest.approx(exact, abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "kl"}, "kind is 'kl'; use one of l1"),
        ({"scope": "channel"}, "scope is 'channel'; use one of whole"),
        ({"threshold": 0.4}, "threshold is 0.4.*from 0.5 to 1"),
        ({"threshold": 1.01}, "threshold is 1.01"),
        ({"threshold": math.nan}, "threshold is nan"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(FedMedError, match=message):
        ConsistencyLoss(**arguments)


def test_two_channel_outputs_are_refused():
    with pytest.raises(FedMedError, match=r"\(1, 2, 4, 4\).*inferer"):
        ConsistencyLoss()(torch.rand(1, 2, 4, 4), torch.rand(1, 2, 4, 4))
