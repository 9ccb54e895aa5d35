"""Optimizers at the server: numbers worked out by hand, and what they leave alone."""

import copy
import math

import pytest
import torch
from torch import tensor

from fedmed.aggregation.robust import RobustAggregator
from fedmed.aggregation.server_optimizers import ServerAdam, ServerAdamW, ServerSGD, ServerYogi
from fedmed.aggregation.tensor_means import BLOCK
from fedmed.aggregation.weighted_mean import SampleWeighting, UniformWeighting, WeightedMean
from fedmed.errors import JobError, StateError
from fedmed.messages.answers import Update

from .conftest import on_threads

OPTIMIZERS = {
    "sgd": lambda: ServerSGD(0.5, 0.9),
    "adam": lambda: ServerAdam(1e-2),
    "adamw": lambda: ServerAdamW(1e-2),
    "yogi": lambda: ServerYogi(1e-2),
}
each = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)


def f64(*values):
    return tensor(values, dtype=torch.float64)


def update(site="a", n_samples=1, **tensors):
    return Update(site, 0, {name.replace("__", "."): value for name, value in tensors.items()}, 1, n_samples)


def path(optimizer, start, *gradients):
    """Points of one parameter of which one site sends these pseudo-gradients in turn."""
    rule, model, points = WeightedMean(step=optimizer), {"w": start}, []
    for gradient in gradients:
        model = rule.aggregate(model, [update(w=-gradient)]).tensors
        points.append(model["w"].tolist())
    return points


def near(*values):
    return pytest.approx(list(values), abs=1e-9)


def test_adamw_worked_out_by_hand():
    """Rate 1e-3, decay 1e-2: the first step goes by the rate against the gradient's sign, after the decay."""
    gradients = f64(0.01, -0.004), f64(0.01, 0.004)
    first, second = path(ServerAdamW(), f64(1.0, -2.0), *gradients)
    assert first == near(0.998990001, -1.998980002) and second == near(0.997980012, -1.999012644)
    (plain,) = path(ServerAdam(), f64(1.0, -2.0), gradients[0])
    assert plain == near(0.999000001, -1.999000002) == path(ServerAdamW(decay=0), f64(1.0, -2.0), gradients[0])[0]


def test_momentum_worked_out_by_hand():
    """b: 1, then 0.5 · 1 + 2 = 2.5, then 0.5 · 2.5 - 1 = 0.25; θ moves by 0.1 of it."""
    assert path(ServerSGD(0.1, 0.5), f64(1.0), f64(1.0), f64(2.0), f64(-1.0)) == [near(0.9), near(0.65), near(0.625)]


def test_yogi_worked_out_by_hand():
    """β 0.5, 0.75; τ 0.1, so v begins with 0.01. g = 0.2: v = 0.01 + 0.25 · 0.04 = 0.02, m = 0.1.

    Then g = 0.1, whose square is below v: v = 0.02 - 0.25 · 0.01 = 0.0175, m = 0.05 + 0.05 = 0.1.
    """
    first = 1 - 0.3 * 0.1 / (math.sqrt(0.02) + 0.1)
    second = first - 0.3 * 0.1 / (math.sqrt(0.0175) + 0.1)
    assert path(ServerYogi(0.3, 0.5, 0.75, 0.1), f64(1.0), f64(0.2), f64(0.1)) == [near(first), near(second)]


def slow(name, theta, gradients):
    """The equations of the docstrings, number by number."""
    first, second = 0.0, 1e-6 if name == "yogi" else 0.0
    for t, g in enumerate(gradients, start=1):
        if name == "sgd":
            first = 0.9 * first + g
            theta -= 0.5 * first
        elif name == "yogi":
            first = 0.9 * first + (1 - 0.9) * g
            second -= (1 - 0.99) * g * g * math.copysign(1, second - g * g)
            theta -= 1e-2 * first / (math.sqrt(second) + 1e-3)
        else:
            theta *= 1 - 1e-2 * 1e-2 * (name == "adamw")
            first, second = 0.9 * first + (1 - 0.9) * g, 0.999 * second + (1 - 0.999) * g * g
            theta -= 1e-2 * first / (1 - 0.9**t) / (math.sqrt(second / (1 - 0.999**t)) + 1e-8)
    return theta


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("size", [1, 7, 100])
def test_every_optimizer_equals_its_equations(name, size):
    generator = torch.Generator().manual_seed(size)
    start, *gradients = torch.randn(6, size, dtype=torch.float64, generator=generator)
    last = path(OPTIMIZERS[name](), start, *gradients)[-1]
    columns = torch.stack(gradients).T.tolist()
    expected = [slow(name, *numbers) for numbers in zip(start.tolist(), columns, strict=True)]
    assert last == pytest.approx(expected, rel=1e-10)


def test_the_pseudo_gradient_is_that_of_the_weighted_mean():
    """(100 · [1, 2] + 300 · [3, 6]) / 400 = [2.5, 5]; half a step from [0, 0] leads half the way."""
    updates = [update("a", 100, w=f64(1.0, 2.0)), update("b", 300, w=f64(3.0, 6.0))]
    for rate, expected in ((1.0, [2.5, 5.0]), (0.5, [1.25, 2.5])):
        rule = WeightedMean(SampleWeighting(), step=ServerSGD(rate))
        assert rule.aggregate({"w": f64(0.0, 0.0)}, updates).tensors["w"].tolist() == expected


def sent(generator, dtype, shift):
    tensors = {"w": torch.randn(3, 5, generator=generator) * 10.0**shift, "b": torch.randn(1, generator=generator)}
    return {name: value.to(dtype) for name, value in tensors.items()}


def test_the_pseudo_gradient_is_taken_before_the_mean_is_rounded():
    """A difference below float32's resolution of the parameter would vanish in a rounded mean."""
    model = {"w": torch.ones(3)}
    update = Update("a", 0, {"w": torch.tensor([1e-9, -3e-9, 0.0])}, 1, 1)
    moved = WeightedMean(step=ServerSGD(rate=1e4)).aggregate(model, [update]).tensors["w"]
    assert moved.dtype == torch.float32 and moved.tolist() == pytest.approx([1 + 1e-5, 1 - 3e-5, 1.0], abs=1e-7)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_rate_one_without_momentum_is_the_mean_bit_for_bit(dtype):
    generator = torch.Generator().manual_seed(0)
    for shift in (-4, 0, 3):
        model = sent(generator, dtype, -shift)
        updates = [update(site, **sent(generator, dtype, shift)) for site in "abc"]
        stepped = WeightedMean(step=ServerSGD()).aggregate(model, updates).tensors
        assert all(torch.equal(stepped[n], t) for n, t in WeightedMean().aggregate(model, updates).tensors.items())


@pytest.mark.parametrize(("policy", "variance"), [("average", 1.0), ("pooled", 1.75)])
@each
def test_statistics_follow_their_own_policy(make, policy, variance):
    """Means 0 and 2, variances 1, shares 1/4 and 3/4 (a mean of 1.5); the counter is the largest."""
    model = {"bn.weight": f64(1.0), "bn.running_mean": f64(0.0), "bn.running_var": f64(1.0)}
    model["bn.num_batches_tracked"] = tensor(3)

    def of(site, share, mean, steps):
        tensors = {"bn__weight": f64(0.1), "bn__running_mean": f64(mean), "bn__running_var": f64(0.0)}
        return update(site, share, bn__num_batches_tracked=tensor(steps), **tensors)

    rule = WeightedMean(SampleWeighting(), step=make(), buffers=policy)
    moved = rule.aggregate(model, [of("a", 25, 0.0, 1), of("b", 75, 2.0, 2)]).tensors
    assert moved["bn.running_mean"].item() == 1.5 and moved["bn.running_var"].item() == variance
    assert moved["bn.num_batches_tracked"].item() == 5 and set(rule.step.state()) == {"bn.weight"}
    assert moved["bn.weight"].item() not in (1.0, 1.1)


@each
def test_what_nobody_sent_stays_and_takes_up_where_it_was(make):
    """In a round without "head" neither it nor its moments change: the next step is what it would have been."""
    rule, without = WeightedMean(step=make()), WeightedMean(step=make())
    model = both = {"w": f64(1.0), "head": f64(-2.0)}
    for _ in range(2):
        both = without.aggregate(both, [update(w=f64(0.1), head=f64(0.3))]).tensors
    model = rule.aggregate(model, [update(w=f64(0.1), head=f64(0.3))]).tensors
    between = rule.aggregate(model, [update(w=f64(0.1))]).tensors
    assert between["head"] is model["head"] and between["w"].item() != model["w"].item()
    last = rule.aggregate(between, [update(w=f64(0.1), head=f64(0.3))]).tensors
    assert torch.equal(last["head"], both["head"])


def test_decay_begins_with_the_first_change_and_then_goes_on():
    """Frozen: 4. Then · 0.95 - 0.1 = 3.7; and without a change: · 0.95, and 0.1 · (0.9/1.9) / √(0.999/1.999)."""
    frozen, first, second = path(ServerAdamW(0.1, decay=0.5), f64(4.0), f64(0.0), f64(1.0), f64(0.0))
    last = 3.7 * 0.95 - 0.1 * (0.9 / 1.9) / math.sqrt(0.999 / 1.999)
    assert frozen == [4.0] and [*first, *second] == pytest.approx([3.7, last], abs=1e-8)


@each
def test_neither_the_order_of_answers_nor_the_number_of_threads_changes_a_bit(make):
    generator = torch.Generator().manual_seed(1)
    sizes = {"w": 2 * BLOCK + 33_001, "b": 7}
    draw = lambda: {name: torch.randn(size, generator=generator) for name, size in sizes.items()}  # noqa: E731
    model, rounds = draw(), [[update(s, **draw()) for s in "abc"] for _ in range(2)]

    def run(order):
        rule, tensors = WeightedMean(step=make()), model
        for updates in rounds:
            tensors = rule.aggregate(tensors, updates[::order]).tensors
        return [*tensors.values(), *(x for kept in rule.state()["step"].values() for x in kept.values())]

    results = [*on_threads(lambda: run(1), (1, 3)), *on_threads(lambda: run(-1), (1,))]
    for other in results[1:]:
        assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(results[0], other, strict=True))


@each
def test_going_on_from_a_kept_state_changes_no_bit(make):
    gradients = torch.randn(6, 5, generator=torch.Generator().manual_seed(2))
    whole = path(make(), torch.ones(5), *gradients)
    for stop in range(1, 6):
        rule, model = WeightedMean(step=make()), {"w": torch.ones(5)}
        for number, gradient in enumerate(gradients):
            if number == stop:
                rule, kept = WeightedMean(step=make()), copy.deepcopy(rule.state())
                rule.restore(kept)
            model = rule.aggregate(model, [update(w=-gradient)]).tensors
        assert model["w"].tolist() == whole[-1]


def test_no_argument_changes_and_identical_sites_are_as_one():
    model, change = {"w": torch.ones(3)}, torch.full((3,), 0.5)
    one, three = (WeightedMean(step=ServerAdamW()) for _ in range(2))
    alone = one.aggregate(model, [update(w=change)]).tensors["w"]
    together = three.aggregate(model, [update(s, w=change) for s in "abc"]).tensors["w"]
    torch.testing.assert_close(together, alone, rtol=2e-7, atol=0)  # thirds do not sum to 1 exactly
    assert model["w"].tolist() == [1.0] * 3 and change.tolist() == [0.5] * 3


def test_it_acts_on_a_robust_middle_and_on_scalars_too():
    updates = [update(site, w=tensor(value)) for site, value in zip("abc", (1.0, 2.0, 900.0), strict=True)]
    rule = WeightedMean(middle=RobustAggregator("median"), step=ServerSGD(0.5))
    assert rule.aggregate({"w": tensor(1.0)}, updates).tensors["w"].item() == 2.0


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (ServerSGD, {"rate": 0}, "'rate' of the server's optimizer is 0; give a number above 0"),
        (ServerAdam, {"rate": -1e-3}, "'rate' .* is -0.001"),
        (ServerYogi, {"rate": math.nan}, "'rate' .* is nan"),
        (ServerAdamW, {"rate": math.inf}, "'rate' .* is inf"),
        (ServerAdamW, {"rate": True}, "'rate' .* is True"),
        (ServerAdamW, {"rate": "1e-3"}, "'rate' .* is '1e-3' .in YAML write 1.0e-3, not 1e-3.; give"),
        (ServerSGD, {"momentum": 1.0}, "'momentum' .* is 1.0; give a number of at least 0 and below 1"),
        (ServerAdam, {"beta1": 1}, "'beta1' .* is 1;"),
        (ServerAdamW, {"beta2": 1.5}, "'beta2' .* is 1.5;"),
        (ServerYogi, {"beta2": -0.1}, "'beta2' .* is -0.1;"),
        (ServerAdam, {"epsilon": 0}, "'epsilon' .* is 0; give a number above 0"),
        (ServerAdamW, {"decay": -1e-4}, "'decay' .* is -0.0001; give a number of at least 0"),
    ],
)
def test_settings_out_of_range(kind, settings, message):
    with pytest.raises(JobError, match=message):
        kind(**settings)


def test_a_state_that_does_not_fit():
    rule = WeightedMean(step=ServerAdamW())
    rule.aggregate({"w": torch.ones(3)}, [update(w=torch.ones(3))])
    with pytest.raises(StateError, match="what is kept of 'w' is not a state of ServerSGD"):
        WeightedMean(step=ServerSGD(0.5)).restore(rule.state())


def test_what_is_not_a_step():
    with pytest.raises(JobError, match="UniformWeighting is no ServerOptimizer"):
        WeightedMean(step=UniformWeighting())
