"""The phases of the server's training, of a network of a few numbers, against plain loops over the equations."""

import copy

import pytest
import torch
from torch import nn

from fedmed.errors import Aborted, DataError, JobError, StateError
from fedmed.systems.fedst.separation import plain_feature
from fedmed.systems.fedst.server import AVERAGED, PRE, RepresentationTraining
from fedmed.training.trainer import plain_batch

from .conftest import bits, equal

STEPS, RATE = 4, 0.05


class Net(nn.Module):
    """Without ``plain_feature``, which a network need not have."""

    def __init__(self):
        super().__init__()
        self.encoder, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 2, 1)
        self.temporal, self.selection = nn.Conv2d(4, 4, 1), nn.Linear(2, 4)

    def forward_plain(self, image):
        feature = torch.tanh(self.encoder(image))
        return self.head(feature), feature


def network(seed):
    torch.manual_seed(seed)
    return Net()


def pictures(side=4, sides=None):
    draw = torch.Generator().manual_seed(5)
    made = [torch.randn(2, 3, side, each, generator=draw) for each in sides or [side] * STEPS]
    return [{"image": image, "label": (image[:, 0] > 0).long()} for image in made]


def training(averaged, batches=None, **settings):
    given = {"loss_function": nn.CrossEntropyLoss(), "loader": batches or pictures(), "prepare_batch": plain_batch}
    return RepresentationTraining(averaged, **given, **{"steps": STEPS, "rate": RATE, **settings})


def run(engine, seen=None):
    def phase(trainer, steps, name):
        if seen:
            seen(name)
        result = []
        trainer.add_event_handler("ITERATION_COMPLETED", lambda e: result.append(dict(e.state.output)))
        trainer.run()
        assert len(result) == steps
        return {f"train_{key}": float(sum(o[key] for o in result)) / steps for key in result[0]}

    return engine.run(phase, lambda: None)


def by_hand(averaged, pre, domain, average, batches):
    """One round by the equations; returns what is left of each, and the means that are told."""
    loss, feature = nn.CrossEntropyLoss(), lambda net, batch: net.forward_plain(batch["image"])[1]
    with torch.no_grad():
        local = sum(feature(averaged, batch).sum(0) for batch in batches) / (2 * len(batches))
    average = local if average is None else 0.5 * average + 0.5 * local
    reported = {"descriptor_gap": [], "feature_gap": []}
    domain = nn.Parameter(domain)
    adam = torch.optim.Adam([*pre.encoder.parameters(), *pre.head.parameters(), domain], RATE)
    for batch in batches:
        adam.zero_grad()
        logits, f_sy = pre.forward_plain(batch["image"])
        gap = (f_sy - domain - average).square().mean()
        (loss(logits, batch["label"]) + 0.3 * gap).backward()
        adam.step()
        reported["descriptor_gap"].append(gap.item())
    adam = torch.optim.Adam([*averaged.encoder.parameters(), *averaged.head.parameters()], RATE)
    for batch in batches:
        adam.zero_grad()
        logits, f_g = averaged.forward_plain(batch["image"])
        with torch.no_grad():
            instruments = feature(pre, batch) - domain
        gap = (f_g - instruments).square().mean()
        (loss(logits, batch["label"]) + 0.3 * gap).backward()
        adam.step()
        reported["feature_gap"].append(gap.item())
    return average, domain.detach(), {name: sum(values) / STEPS for name, values in reported.items()}


def test_a_round_is_that_of_the_equations():
    averaged, start, batches = network(0), network(1), pictures()
    plain, pre = copy.deepcopy(averaged), copy.deepcopy(start)
    engine = training(averaged, batches, seed=7)
    engine.load_state_dict({}, start.state_dict())
    reported = run(engine)
    first = 0.02 * torch.randn(4, 4, 4, generator=torch.Generator().manual_seed(7))
    average, domain, wanted = by_hand(plain, pre, first, None, batches)
    kept = engine.state_dict()["separation"]
    assert equal(averaged, plain) and equal(kept["pre"], pre)
    assert torch.allclose(kept["average"], average, atol=1e-7) and torch.allclose(kept["domain"], domain, atol=1e-6)
    assert {name: reported[name] for name in wanted} == pytest.approx(wanted, rel=1e-5)
    assert reported["domain_norm"] == pytest.approx(float(domain.norm()), rel=1e-6)


def test_each_phase_leaves_the_other_network_alone_and_both_their_untouched_layers():
    averaged = network(0)
    engine, before, seen = training(averaged), bits(averaged), {}
    engine.load_state_dict({}, before)
    parts = engine.separation

    def look(name):
        seen[name] = (bits(averaged), bits(parts.pre), parts.domain.detach().clone())

    run(engine, look)
    assert equal(seen[PRE][0], before) and equal(seen[AVERAGED][0], before)  # the first phase is over by then
    assert equal(seen[AVERAGED][1], bits(parts.pre)) and torch.equal(seen[AVERAGED][2], parts.domain)
    assert not torch.equal(seen[PRE][2], parts.domain)
    for net in (averaged, parts.pre):
        moved = {name.partition(".")[0] for name, tensor in bits(net).items() if not torch.equal(tensor, before[name])}
        assert moved == {"encoder", "head"}
        assert all(net.get_parameter(f"{part}.weight").grad is None for part in ("temporal", "selection"))


def test_kept_states_go_on_bit_by_bit_and_are_not_changed():
    averaged, start, kept = network(0), network(1).state_dict(), {}
    whole = training(averaged)
    whole.load_state_dict({}, start)
    again = copy.deepcopy(averaged)
    for _ in range(2):
        run(whole)
        engine = training(again)
        engine.load_state_dict(kept, start)
        before = copy.deepcopy(kept)
        run(engine)
        assert str(before) == str(kept)
        kept = engine.state_dict()
    assert equal(averaged, again) and str(kept) == str(whole.state_dict())


def test_an_aborted_job_ends_before_the_next_batch_of_the_average():
    """Of Eq. 10; neither network has moved by then, and there is no average of a part of the images."""
    averaged, requested = network(0), []
    engine, before = training(averaged), bits(averaged)
    engine.load_state_dict({}, before)

    def ask():
        requested.append(None)
        if len(requested) == 3:
            raise Aborted("the job was aborted")

    with pytest.raises(Aborted):
        engine.run(lambda *_: pytest.fail("a phase has begun"), ask)
    assert len(requested) == 3 < STEPS and engine.separation.average is None and engine.separation.domain is None
    assert equal(averaged, before) and equal(engine.separation.pre, before)


def test_one_descriptor_for_all_places_serves_images_of_several_sizes():
    batches = pictures(sides=[4, 6, 4, 8])
    engine = training(network(0), batches, pooled=True)
    engine.load_state_dict({}, network(1).state_dict())
    engine.check()
    run(engine)
    assert engine.separation.domain.shape == engine.separation.average.shape == (4, 1, 1)
    engine = training(network(0), batches)
    with pytest.raises(DataError, match=r"have several sizes, \[\(3, 4, 4\), \(3, 4, 6\), \(3, 4, 8\)\]; use one"):
        engine.check()


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"mu": 1.5}, "'mu' is 1.5; give a number from 0 to 1"), ({"lambda2": -1}, "'lambda2'"), ({"rate": 0}, "'rate'")],
)
def test_a_number_outside_its_range_is_told(settings, message):
    with pytest.raises(JobError, match=message):
        training(network(0), **settings)


def test_a_state_of_other_settings_or_another_network_is_told():
    engine, start = training(network(0)), network(1).state_dict()
    engine.load_state_dict({}, start)
    run(engine)
    kept = engine.state_dict()
    with pytest.raises(StateError, match="'separates' differs"):
        training(network(0), separates=False).load_state_dict(kept, start)
    other = {**kept, "separation": {**kept["separation"], "pre": {**kept["separation"]["pre"], "more": torch.zeros(1)}}}
    with pytest.raises(StateError, match=r"another network: tensor 'more' is \(1,\), here missing"):
        training(network(0)).load_state_dict(other, start)
    groups = [{**kept["optimizer"]["param_groups"][0], "params": [0]}]
    with pytest.raises(StateError, match="kept optimizer is of another network"):
        training(network(0)).load_state_dict(
            {**kept, "optimizer": {**kept["optimizer"], "param_groups": groups}}, start
        )


def test_features_alone_are_those_of_the_forward_pass():
    net, image = network(0), pictures()[0]["image"]
    assert torch.equal(plain_feature(net, image), net.forward_plain(image)[1])
