"""A server with a rule of its own: what it leaves for the next round, and that a round counts whole or not at all."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fedmed.aggregation.rule import Outcome
from fedmed.bundles.score import DICE
from fedmed.errors import JobError, RoundFailed, StateError, UpdateRefused
from fedmed.federation.server import Server
from fedmed.messages.answers import Update
from fedmed.settings.server import ALLOWED

SITES = {"a": "supervised", "b": "supervised", "u": "unsupervised", "e": "evaluate"}
MODEL = {"encoder.w": torch.tensor([0.5, -1.5]), "decoder.w": torch.tensor([[0.25]])}
CUSTOM = {"path": "momentum_rule.ServerMomentum", "args": {"beta": 0.5}}


class Store(SimpleNamespace):
    def __init__(self):
        reported = {"score": DICE, "calibration": None, "overlays": [], "parser": dict}
        bundle = SimpleNamespace(name="b_segmentation", digest="d1", version="1", kind="segmentation_3d", **reported)
        facts = {"seed": 0, "checkpoint": None, "taken": [], "folder": "nowhere", "full": False, "classes_learnt": ()}
        super().__init__(bundle=bundle, groups={"full": []}, initial=dict(MODEL), **facts)

    def describe(self):
        return {}

    def save(self, tensors, meta, best):
        if self.full:
            raise StateError("no space")


class Fixed:
    """A rule that returns what it is told."""

    def __init__(self, **changes):
        self.changes = changes

    def check(self, senders):
        self.senders = senders

    def check_update(self, update):
        if "bad" in update.extras:
            raise UpdateRefused(update.site, "its 'bad' is there")

    def aggregate(self, model, updates, facts):
        return Outcome(**{"tensors": dict(model), **self.changes})

    def state(self):
        return {}

    def restore(self, state):
        pass


@pytest.fixture
def make(job_of, tmp_path, monkeypatch):
    """Return a function: a rule -> a server that keeps its state in memory only."""
    monkeypatch.syspath_prepend(Path(__file__).parent / "custom_parts")
    monkeypatch.setenv(ALLOWED, CUSTOM["path"])
    monkeypatch.setattr("fedmed.recovery.checkpoint.Checkpoints.save", lambda *a, **k: None)

    def make(rule=None, **said):
        job = job_of(**{"name": "x", "sites": SITES, "rounds": 4, "steps": 2, "rule": CUSTOM, **said})
        server = Server(job, Store(), tmp_path)
        if rule is not None:
            server.applied.rule = rule
        return server

    return make


def play(server, round, value=0.1, sites="abu"):
    tasks = server.train_tasks(round)
    for site in sites:
        server.accept(Update(site, round, {n: torch.full_like(t, value) for n, t in MODEL.items()}, 2, 1))
    server.finish_round()
    return tasks


def test_values_go_with_the_next_tasks_to_train_and_are_counted(make, monkeypatch):
    lines = []
    server = make()
    monkeypatch.setattr(server.record, "round", lines.append)
    assert all(not task.extras for task in play(server, 0).values())
    tasks = play(server, 1)
    speed = server.applied.outcome and lines[0]["speed"]
    assert all({"speed": speed, "round": 0}.items() <= task.extras.items() for task in tasks.values()) and speed > 0
    assert [line["bytes_extras"] for line in lines if "bytes_extras" in line] == [3 * (8 + 8 + 8)]
    assert not server.task("validate", "a", 1).extras and not server.task("evaluate", "e", 1).extras


def test_a_role_trains_from_its_own_model_and_everything_else_is_the_models(make):
    server = make()
    server.train_tasks(0)
    for site, value in (("a", 0.1), ("b", 0.1), ("u", 0.7)):
        server.accept(Update(site, 0, {n: torch.full_like(t, value) for n, t in MODEL.items()}, 2, 1))
    server.finish_round()
    tasks = server.train_tasks(1)
    local, shared = tasks["u"].tensors["encoder.w"], tasks["a"].tensors["encoder.w"]
    assert torch.allclose(local, MODEL["encoder.w"] + 0.1) and torch.allclose(shared, MODEL["encoder.w"] + 0.3)
    assert torch.equal(server.task("evaluate", "u", 1).tensors["encoder.w"], shared)


@pytest.mark.parametrize("failure", ["too few", "full disk", "wrong result"])
def test_a_failed_round_leaves_no_trace_in_the_rule(make, failure):
    server, undisturbed = make(min_clients=2), make(min_clients=2)
    for each in (server, undisturbed):
        play(each, 0)
    before = server.applied.values
    if failure == "too few":
        with pytest.raises(RoundFailed):
            play(server, 1, sites="a")
    elif failure == "full disk":
        server.store.full = True
        with pytest.raises(StateError, match="no space"):
            play(server, 1)
        server.store.full = False
    else:
        with pytest.raises(RoundFailed, match="NaN or infinite"), pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "momentum_rule.ServerMomentum._for_roles",
                lambda *a: {"unsupervised": {"encoder.w": torch.full((2,), torch.nan)}},
            )
            play(server, 1)
    assert server.applied.values is before and server.applied.outcome is None
    for each in (server, undisturbed):
        play(each, 2, value=0.2)
    assert all(torch.equal(server.tensors[n], undisturbed.tensors[n]) for n in MODEL)
    assert torch.equal(*(s.applied.rule.velocity["encoder.w"] for s in (server, undisturbed)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tensors": {}}, "another model: tensor 'decoder.w' is in one of the two alone"),
        ({"tensors": {**MODEL, "x": torch.zeros(1)}}, "another model: tensor 'x'"),
        ({"tensors": {**MODEL, "decoder.w": torch.zeros(1)}}, "'decoder.w' otherwise than it is in the model"),
        ({"tensors": {**MODEL, "encoder.w": torch.tensor([torch.nan, 0])}}, "'encoder.w' with values that are NaN"),
        ({"for_roles": {"supervised": MODEL}}, "role 'supervised', whose scores choose the model"),
        ({"for_roles": {"evaluate": MODEL}}, "role 'evaluate', which does not train"),
        ({"for_roles": {"unsupervised": {"y": torch.zeros(1)}}}, "'y' otherwise than it is in the model"),
        ({"values": {"stranger": {"x": 1}}}, "values for 'stranger'"),
        ({"values": {"a": {"others": []}}}, "values for 'a'"),
    ],
)
def test_an_outcome_that_does_not_fit_the_job_fails_the_round(make, changes, message):
    server = make(Fixed(**changes))
    with pytest.raises(RoundFailed, match=f"round 0: .*{message}.*the model is unchanged"):
        play(server, 0)
    assert all(torch.equal(server.tensors[name], MODEL[name]) for name in MODEL)


def test_where_no_scores_choose_labelled_sites_may_have_a_model_of_their_own(make):
    server = make(Fixed(for_roles={"supervised": {"encoder.w": torch.zeros(2)}}), select="last")
    play(server, 0)
    assert not server.train_tasks(1)["a"].tensors["encoder.w"].any()


def test_a_rule_may_refuse_an_update(make):
    server = make(Fixed(), min_clients=2)
    server.train_tasks(0)
    with pytest.raises(UpdateRefused, match="its 'bad' is there"):
        server.accept(Update("a", 0, {n: torch.zeros_like(t) for n, t in MODEL.items()}, 2, 1, {}, {"bad": 1}))
    assert server.round.refused == {"a": "its 'bad' is there"}


def test_a_rule_is_told_who_sends_what_in_each_kind_of_round(make):
    rule, server = Fixed(), make(warm_start={"rounds": 2}, max_norm=5.0)
    server.applied.rule = rule
    server.applied.check(server.policies, MODEL)
    assert rule.senders.roles == SITES and rule.senders.max_norm == 5.0
    assert {site: list(names) for site, names in rule.senders.sent.items()} == dict.fromkeys("abu", list(MODEL))


def test_a_class_that_this_machine_does_not_allow_starts_nothing(make, monkeypatch):
    monkeypatch.delenv(ALLOWED)
    with pytest.raises(JobError, match="a job may not name the class 'momentum_rule.ServerMomentum'"):
        make()
