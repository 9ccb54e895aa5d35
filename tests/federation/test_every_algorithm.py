"""Properties of every algorithm and method, through real client, engine and server."""

import functools
import json

import pytest
import torch
from torch import nn

from fedmed.errors import RoundFailed
from fedmed.federation import loop
from fedmed.federation.client import Client
from fedmed.federation.open_round import TaskMaker
from fedmed.federation.server import Server
from fedmed.privacy.limits import read_ledger
from fedmed.training import trainer as schedules
from tests.federation.run_folder import kept_of, rounds_of

ADAMW = {"by": "adamw", "decay": 0}  # it decays what has changed, also by rounding
CLASSES = ["layers", "classes"]
FEDST = {"path": "fedmed.systems.fedst.method.FedST", "args": {"group": "head", "server": "mean"}}
ALGORITHMS = {
    "FedAvg": {},
    "FedProx": {"algorithm": "fedprox"},
    "FedDyn": {"algorithm": "feddyn"},
    "FedDyn with AdamW": {"algorithm": "feddyn", "server_step": ADAMW},
    "SCAFFOLD": {"algorithm": "scaffold"},
    "FedRep": {"algorithm": "fedrep", "server_step": ADAMW},
    "FedBN": {"algorithm": "fedbn"},
    "FedDG": {"algorithm": {"name": "feddg", "args": {"bank_images": 3}}, "overlays": ["layers", "pictures"]},
    "MOON, a file of one's own": {"algorithm": "moon.Moon"},
    "one cycle": {"overlays": ["layers", "one_cycle"]},
    "FedAS": {"method": {"path": "fedmed.systems.fedas.method.FedAS"}, "overlays": CLASSES},
    "FedLD": {"method": {"path": "fedmed.systems.fedld.method.FedLD"}, "overlays": CLASSES},
    "FedST": {"method": FEDST, "overlays": CLASSES},
}
PRIVATE = {"FedRep": ("head.",), "FedBN": ("body.1.",), "FedAS": ("head.",), "FedST": ("head.",)}
BY_WORK = ("FedAS", "FedLD")  # in which a site that has learned nothing counts nothing
each = pytest.mark.parametrize("name", ALGORITHMS)
STILL = {"supervised": {"batch_size": 2, "learning_rate": 0.1, "momentum": 0.9, "dropout": 0.0}}


def outcome(server, workspace):
    """Everything that goes on into another round."""
    last = server.model_round
    return [dict(server.tensors), server.applied.rule.state(), *(kept_of(workspace, site, last) for site in "abc")]


# FedDyn with AdamW keeps all that FedAvg and FedDyn do.
@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in ("FedAvg", "FedDyn")])
def test_neither_another_try_nor_the_order_of_answers_nor_a_kill_changes_a_bit(
    name, small, same, killed_before, tmp_path, monkeypatch
):
    """Also of what server and sites keep; the other try is killed before the second and before the third round."""
    spec = {"data": "abc", "rounds": 3, "steps": 2, **ALGORITHMS[name]}
    whole = outcome(small(**spec, name="whole"), tmp_path / "whole")
    monkeypatch.setattr(loop, "sorted", lambda items: sorted(items, reverse=True), raising=False)
    for round in (1, 2):
        with killed_before(round):
            small(**spec, name="other", resume=round > 1)
    assert same(outcome(small(**spec, name="other", resume=True), tmp_path / "other"), whole)


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "FedDG"])  # each site draws its own mixtures
def test_identical_sites_are_as_one_and_what_they_count_sums_to_one(name, small, tmp_path):
    rows = [([0.5, -1.0, 2.0], [1.0]), ([1.5, 0.3, -0.7], [-1.0]), ([0.1, 0.2, 0.9], [0.5]), ([-1.0, 1.0, 0.4], [0.2])]
    spec = {"overrides": STILL, **ALGORITHMS[name]}
    one = small({"a": rows}, "one", **spec).tensors
    three = small(dict.fromkeys("abc", rows), "three", **spec).tensors
    for key, tensor in one.items():
        assert torch.allclose(tensor, three[key], atol=1e-9), key
    for shares in (line["coefficients"] for line in rounds_of(tmp_path / "three")):
        assert sum(shares.values()) == pytest.approx(1) and len(set(shares.values())) == 1


@each
def test_private_tensors_travel_neither_way_and_bytes_are_those_of_what_is_shared(name, small, answers, tmp_path):
    server = small("ab", **ALGORITHMS[name])
    stays = {key for key in server.tensors if key.startswith(PRIVATE.get(name, ()))}
    shared = {key: tensor for key, tensor in server.tensors.items() if key not in stays}
    assert bool(stays) == (name in PRIVATE) and shared
    for task, update in answers:
        came = {} if name == "FedDG" and not task.round else shared  # it had come when amplitudes were asked for
        assert update.tensors.keys() == shared.keys() and task.tensors.keys() == came.keys()
        assert not stays & set(update.extras.get("control_difference", ()))
    received = [task.tensors for task, _ in answers if task.round == 1]
    assert all(torch.equal(received[0][key], received[1][key]) for key in shared)
    size = sum(tensor.numel() * tensor.element_size() for tensor in shared.values())
    sent = [line for line in read_ledger(tmp_path / "ws/a") if line["answer"] == "update"]
    assert [line["tensors"].keys() for line in sent] == [shared.keys()] * 2
    for record in rounds_of(tmp_path / "ws"):
        further = record.get("bytes_extras", 0)
        assert record["bytes_up"] + record["bytes_down"] - further == 2 * 2 * size
    local = [kept_of(tmp_path / "ws", site, 1)["private"] for site in "ab"]
    assert local[0].keys() == stays and all(not torch.equal(local[0][key], local[1][key]) for key in stays
                                          if not key.endswith("num_batches_tracked"))  # fmt: skip


@each
def test_a_site_without_a_step_changes_nothing(name, small, answers, same, tmp_path, monkeypatch):
    """In the second round site b has none; what it kept stays."""
    made = TaskMaker.make

    def idle(self, kind, site, round, *rest, **more):
        task = made(self, kind, site, round, *rest, **more)
        task.steps = 0 if (site, round) == ("b", 1) else task.steps
        return task

    monkeypatch.setattr(TaskMaker, "make", idle)
    small("ab", min_clients=1, **ALGORITHMS[name])
    (update,) = [update for task, update in answers if (update.site, task.round) == ("b", 1)]
    assert update.n_steps == 0 and update.tensors and not any(tensor.any() for tensor in update.tensors.values())
    assert name not in BY_WORK or not rounds_of(tmp_path / "ws")[1]["coefficients"].get("b", 0)
    assert same(*(kept_of(tmp_path / "ws", "b", round)["private"] for round in (0, 1)))


@each
def test_a_value_that_is_not_a_number_is_refused_by_site_and_name_and_nothing_changes(
    name, small, same, monkeypatch, tmp_path, caplog
):
    train, kept = Client.train, []

    def spoilt(self, task):
        update = train(self, task)
        if (update.site, task.round) == ("b", 1):
            update.tensors["body.0.bias"][0] = torch.nan
        return update

    def note(self):
        before = {key: tensor.clone() for key, tensor in self.tensors.items()}, repr(self.applied.rule.state())
        try:
            end(self)
        except RoundFailed:
            kept.append(same(before[0], self.tensors) and before[1] == repr(self.applied.rule.state()))
            raise

    end = Server.finish_round
    monkeypatch.setattr(Client, "train", spoilt)
    monkeypatch.setattr(Server, "finish_round", note)
    with pytest.raises(RoundFailed, match="1 of 2 updates accepted"):
        small("ab", max_failed_rounds=1, **ALGORITHMS[name])
    assert kept == [True] and "site 'b' refused: tensor 'body.0.bias': 1 of 4 values are NaN" in caplog.text


def in_one_go(server, folder, schedule=None):
    """Tensors after twelve steps at site a, from where the server began, with the bundle's network and data alone."""
    import small as bundle  # the fixture has put it on the path

    rows = json.loads((folder / "sites/a/datalist.json").read_text())["training"]
    network = bundle.Layers(0.0)
    network.load_state_dict(server.store.initial)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    cycle = schedule and schedule(optimizer)
    network.train()
    for batch in bundle.batches(rows, 2) * 3:
        optimizer.zero_grad()
        nn.functional.mse_loss(network(batch["image"]), batch["label"]).div(2).backward()
        optimizer.step()
        if cycle:
            cycle.step()
    return network.state_dict()


@pytest.mark.parametrize("algorithm", [None, {"name": "fedprox", "args": {"mu": 0.0}}, "scaffold", "fedbn"], ids=str)
def test_one_site_is_local_training(algorithm, small, tmp_path):
    """Three rounds of four steps are twelve steps in one go; also with control variates that cancel each other."""
    server = small("a", rounds=3, overrides=STILL, algorithm=algorithm)
    result = {**server.tensors, **kept_of(tmp_path / "ws", "a", 2)["private"]}
    for key, tensor in in_one_go(server, tmp_path).items():
        assert torch.allclose(result[key], tensor, atol=1e-9), key


@pytest.mark.parametrize("killed", [1, 2])
def test_one_cycle_over_rounds_is_that_of_one_training(killed, small, killed_before, tmp_path):
    """Three rounds of four steps: PyTorch's cycle over twelve, where the second or third round is a new process.

    The other rounds go on in one. Neither its start nor its momentum begins anew with a round.
    """
    spec = {"rounds": 3, "overrides": STILL, "overlays": ["layers", "one_cycle"]}
    with killed_before(killed):
        small("a", **spec)
    server = small("a", **spec, resume=True)
    cycle = functools.partial(torch.optim.lr_scheduler.OneCycleLR, max_lr=0.1, total_steps=12, cycle_momentum=False)
    expected = in_one_go(server, tmp_path, cycle)
    assert not torch.allclose(expected["head.weight"], in_one_go(server, tmp_path)["head.weight"], atol=1e-3)
    for key, tensor in expected.items():
        assert torch.allclose(server.tensors[key], tensor, atol=1e-9), key


@pytest.mark.parametrize("name", PRIVATE)
def test_private_layers_are_not_changed_by_the_server_whose_optimizer_moves_what_is_shared(
    name, small, same, tmp_path, monkeypatch
):
    opened, iterate = {}, Client._iterate

    def spy(self, task, model, engine):
        opened[self.site.site, task.round] = model.tensors
        return iterate(self, task, model, engine)

    monkeypatch.setattr(Client, "_iterate", spy)
    server = small("ab", **{**ALGORITHMS[name], "server_step": "adamw"})
    stays = {key for key in server.tensors if key.startswith(PRIVATE[name])}
    for site in "ab":
        left = kept_of(tmp_path / "ws", site, 0)["private"]
        assert left.keys() == stays and same(left, {key: opened[site, 1][key] for key in left})
    assert all(torch.equal(server.tensors[key], server.store.initial[key]) for key in stays)
    moved = set(server.applied.rule.state()["step"])
    assert moved and moved <= server.tensors.keys() - stays


def test_both_parts_of_a_round_count_as_steps_and_in_the_cycle_of_the_rate(small, answers, monkeypatch):
    """FedRep with ``epochs: 2``: eight pairs in batches of two are eight steps, four of each part."""
    cycles, cycle = [], schedules.one_cycle
    monkeypatch.setattr(schedules, "one_cycle", lambda *args, **facts: cycles.append(facts) or cycle(*args, **facts))
    small("a", steps=None, epochs=2, algorithm="fedrep", overlays=["layers", "one_cycle"])
    assert [update.n_steps for _, update in answers] == [8, 8]
    assert [(facts["steps_before"], facts["total_steps"]) for facts in cycles] == [(0, 16), (8, 16)]
