"""The server's side of a round: who is asked, what is taken, what comes out."""

import itertools
import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from fedmed.bundles.score import DICE
from fedmed.errors import JobError, RoundFailed, StateError, UpdateRefused
from fedmed.federation.server import Server
from fedmed.federation.workflow import Closing
from fedmed.messages.answers import Update
from fedmed.messages.task import Task
from fedmed.systems.fedmoco.method import SELF_ADAPTIVE

SITES = {"a": "supervised", "b": "supervised", "u": "unsupervised", "e": "evaluate"}
MODEL = {
    "encoder.weight": torch.tensor([1.0, -2.0]),
    "decoder.weight": torch.tensor([[0.5]]),
    "norm.num_batches_tracked": torch.tensor(3),
}


class Store(SimpleNamespace):
    """Stands for a bundle's model: three tensors and one partial group."""

    def __init__(self, checkpoint=None):
        noted = {"score": DICE, "calibration": None, "overlays": [], "parser": dict}
        bundle = SimpleNamespace(name="b_segmentation", digest="d1", version="1", kind="segmentation_3d", **noted)
        groups = {"full": [], "head": [r"^decoder\."]}
        initial = {name: tensor.clone() for name, tensor in MODEL.items()}
        facts = {
            "seed": 0,
            "checkpoint": checkpoint,
            "taken": list(MODEL) if checkpoint else [],
            "folder": "nowhere",
            "saved": [],
            "classes_learnt": (),
        }
        super().__init__(bundle=bundle, groups=groups, initial=initial, **facts)

    def describe(self):
        return {}

    def save(self, tensors, meta, best):
        self.saved.append((dict(tensors), dict(meta), best))


@pytest.fixture
def make(job_of, tmp_path):
    """Return a function: values of a study -> a server."""

    def make(store=None, **said):
        job = job_of(**{"name": "x", "sites": SITES, "rounds": 3, "steps": 4, **said})
        return Server(job, store or Store(), tmp_path)

    return make


def update(site, round=0, value=0.1, n_steps=4, names=tuple(MODEL), dice=None, **others):
    tensors = {n: torch.full_like(MODEL[n], 1 if MODEL[n].dtype == torch.int64 else value) for n in names}
    metrics = {} if dice is None else {"val_dice": dice}
    return Update(site, round, {**tensors, **others}, n_steps, 10, metrics)


def play(server, round, updates):
    server.train_tasks(round)
    for each in updates:
        server.accept(each)
    server.finish_round()


def test_roles_get_their_tasks(make):
    server = make(warm_start={"rounds": 1})
    tasks = server.train_tasks(0)
    assert list(tasks) == ["a", "b"] and tasks["a"].validate and tasks["a"].private_round is None
    assert set(tasks["a"].tensors) == set(MODEL) and tasks["a"].steps == 4 and tasks["a"].bundle_digest == "d1"
    tasks = server.train_tasks(1)
    assert list(tasks) == ["a", "b", "u"] and not tasks["u"].validate


def test_task_survives_the_wire():
    task = Task("train", 1, 2, {}, steps=3, keep_rounds=[0], private_round=0, validate=True)
    assert Task.from_config(json.loads(json.dumps(task.config())), {}) == task


def test_result_does_not_depend_on_arrival_order(make):
    updates = [update("a", value=0.1), update("b", value=0.3), update("u", value=-0.7, n_steps=1)]
    results = []
    for order in itertools.permutations(updates):
        server = make()
        play(server, 0, order)
        results.append(server.tensors)
    for other in results[1:]:
        assert all(torch.equal(results[0][name], other[name]) for name in MODEL)
    assert results[0]["norm.num_batches_tracked"] == 4


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (update("b", **{"encoder.weight": torch.tensor([float("nan"), 0.0])}), "'b'.*'encoder.weight'.*NaN"),
        (update("b", round=1), "'b'.*round 1"),
        (update("b", **{"other": torch.zeros(1)}), "'b'.*'other'"),
        (update("a"), "'a'.*already"),
        (update("e"), "'e'.*does not train"),
        (update("stranger"), "'stranger'.*does not train"),
    ],
)
def test_a_refused_update_is_named_and_changes_nothing(make, bad, message, caplog):
    server = make(min_clients=1)
    server.train_tasks(0)
    server.accept(update("a"))
    with pytest.raises(UpdateRefused, match=message):
        server.accept(bad)
    assert bad.site in caplog.text
    assert all(torch.equal(server.tensors[name], MODEL[name]) for name in MODEL)
    server.finish_round()
    assert torch.allclose(server.tensors["encoder.weight"], MODEL["encoder.weight"] + 0.1)


def test_too_few_updates_leave_the_model_and_the_next_round_starts_from_the_same_state(make, tmp_path):
    server = make()
    play(server, 0, [update("a"), update("b"), update("u")])
    before = dict(server.tensors)
    server.train_tasks(1)
    server.accept(update("a", round=1))
    server.fail("b", "answered EXECUTION_EXCEPTION")
    with pytest.raises(RoundFailed, match="1 of 3 updates accepted, 3 needed"):
        server.finish_round()
    assert all(server.tensors[name] is before[name] for name in MODEL)
    tasks = server.train_tasks(2)
    assert {task.private_round for task in tasks.values()} == {0}
    lines = [json.loads(line) for line in (tmp_path / "rounds.jsonl").read_text().splitlines()]
    refused = {entry["site"]: entry["reason"] for entry in lines[1]["refused"]}
    assert refused == {"b": "answered EXECUTION_EXCEPTION", "u": "no answer"} and not lines[1]["aggregated"]


def test_selection_keeps_the_scored_model_and_tells_sites_to_keep_its_state(make):
    server = make()
    play(server, 0, [update("a", dice=0.1), update("b", dice=0.1), update("u")])
    after_first = server.tensors
    play(server, 1, [update("a", 1, dice=0.6), update("b", 1, dice=0.8), update("u", 1)])
    assert server.train_tasks(2)["a"].keep_rounds == [0, 1]  # with those of the last round and of the one before
    for each in [update("a", 2, dice=0.5), update("b", 2, dice=0.5), update("u", 2)]:
        server.accept(each)
    server.finish_round()
    closing = Closing(server)
    assert closing.validation_tasks()["a"].private_round == 2
    closing.finish_validation({"a": {"val_dice": 0.2}, "b": {"val_dice": 0.3}})
    assert server.selection.best_round == 0 and server.selection.best_score == pytest.approx(0.7)
    assert all(server.tensors[name] is after_first[name] for name in MODEL)
    assert set(closing.evaluation_tasks()) == set(SITES)
    closing.finish({"e": {"dice_mean": 0.5, "dice_std": 0.0, "n_cases": 1}})
    best = [meta for _, meta, is_best in server.store.saved if is_best]
    assert [meta["round"] for meta in best] == [-1, 0]


def test_private_layers_never_travel(make):
    server = make(sharing="head")
    shared = {"encoder.weight", "norm.num_batches_tracked"}
    assert all(set(task.tensors) == shared for task in server.train_tasks(0).values())
    with pytest.raises(UpdateRefused, match="decoder.weight"):
        server.accept(update("a"))
    play(server, 0, [update(site, names=sorted(shared)) for site in "abu"])
    assert server.tensors["decoder.weight"] is server.store.initial["decoder.weight"]
    closing = Closing(server)
    closing.finish_validation({})
    assert set(closing.evaluation_tasks()) == {"a", "b"}


def test_warm_start_hands_trained_private_layers_to_each_site_once(make):
    server = make(sharing="head", warm_start={"rounds": 1, "sharing": "full"})
    assert set(server.train_tasks(0)["a"].tensors) == set(MODEL)
    play(server, 0, [update("a"), update("b")])
    warm = server.tensors["decoder.weight"]
    tasks = server.train_tasks(1)
    assert all(task.tensors["decoder.weight"] is warm for task in tasks.values())
    shared = ["encoder.weight", "norm.num_batches_tracked"]
    play(server, 1, [update(site, 1, names=shared) for site in "abu"])
    assert all(set(task.tensors) == set(shared) for task in server.train_tasks(2).values())


def shared_only(sites, round):
    return [update(site, round, names=["encoder.weight", "norm.num_batches_tracked"]) for site in sites]


def test_private_layers_that_were_private_in_the_warm_start_too_are_the_sites_own(make):
    server = make(sharing="head", warm_start={"rounds": 1})
    play(server, 0, shared_only("ab", 0))
    tasks = server.train_tasks(1)
    assert all("decoder.weight" not in task.tensors for task in tasks.values())


def test_checkpoint_starts_private_layers_at_once_and_is_scored_with_them(make):
    server = make(Store(checkpoint="model.pt"), sharing="head", warm_start={"rounds": 1})
    assert all("decoder.weight" in task.tensors for task in server.train_tasks(0).values())
    scored = shared_only("ab", 0)
    for each in scored:
        each.metrics["val_dice"] = 0.9
        server.accept(each)
    server.finish_round()
    assert "decoder.weight" not in server.train_tasks(1)["a"].tensors
    assert "decoder.weight" in server.train_tasks(1)["u"].tensors
    closing = Closing(server)
    closing.finish_validation({"a": {"val_dice": 0.1}, "b": {"val_dice": 0.1}})
    assert server.selection.best_round == -1
    assert all("decoder.weight" in task.tensors for task in closing.evaluation_tasks().values())


def test_after_a_warm_start_a_new_site_gets_its_layers_too_and_not_only_the_checkpoints(make):
    store = Store(checkpoint="model.pt")
    store.taken = ["encoder.weight"]  # `checkpoint_tensors`
    server = make(store, sharing="head", warm_start={"rounds": 1, "sharing": "full"})
    play(server, 0, [update(site) for site in "ab"])
    sent = server.train_tasks(1)["u"].tensors["decoder.weight"]
    assert torch.equal(sent, server.tensors["decoder.weight"]) and not torch.equal(sent, MODEL["decoder.weight"])


def test_evaluation_names_the_private_state_that_was_scored(make):
    """Site b misses round 1; the aggregate of round 1 is the best, and b was scored with its state of round 0."""
    server = make(sharing="head", min_clients=1)
    play(server, 0, shared_only("abu", 0))
    play(server, 1, shared_only("a", 1))
    scored = shared_only("ab", 2)
    for each in scored:
        each.metrics["val_dice"] = 0.5
    play(server, 2, scored)
    closing = Closing(server)
    closing.finish_validation({"a": {"val_dice": 0.1}, "b": {"val_dice": 0.1}})
    assert server.selection.best_round == 1
    assert {site: task.private_round for site, task in closing.evaluation_tasks().items()} == {"a": 1, "b": 0}
    assert {site: task.private_round for site, task in closing.evaluation_tasks("last").items()} == {"a": 2, "b": 2}
    first = closing.evaluation_tasks("first")
    assert {(task.model, task.round, task.private_round) for task in first.values()} == {("first", -1, None)}
    assert all(torch.equal(tensor, MODEL[name]) for task in first.values() for name, tensor in task.tensors.items())
    assert {site: task.keep_rounds for site, task in closing.validation_tasks().items()} == {"a": [1, 2], "b": [0, 2]}


def test_a_round_in_which_no_site_counts_fails_and_nothing_else(make):
    server = make(user_weights={"b": 0.0}, min_clients=1)
    server.train_tasks(0)
    server.accept(update("b"))
    with pytest.raises(RoundFailed, match="no site has a weight above 0"):
        server.finish_round()


def test_more_steps_than_asked_for_are_refused(make):
    server = make()
    server.train_tasks(0)
    with pytest.raises(UpdateRefused, match="'a'.*1000000000 steps reported, 4 asked for"):
        server.accept(update("a", n_steps=10**9))


def test_a_full_disk_leaves_the_round_uncounted(make):
    def full(*arguments):
        raise StateError("no space")

    server = make()
    server.train_tasks(0)
    for each in (update("a"), update("b"), update("u")):
        server.accept(each)
    server.store.save = full
    with pytest.raises(StateError):
        server.finish_round()
    assert all(torch.equal(server.tensors[name], MODEL[name]) for name in MODEL) and not server.last_round


def test_of_epochs_only_the_site_knows_the_steps(make):
    server = make(steps=None, epochs=2)
    task = server.train_tasks(0)["a"]
    assert (task.steps, task.epochs) == (0, 2)
    server.accept(update("a", n_steps=10**5))


def test_a_similarity_out_of_range_is_refused_and_a_diverging_site_is_still_bounded(make):
    adaptive = {"by": SELF_ADAPTIVE, "name": "rsa", "form": "gap"}
    server = make(rule={"args": {"weighting": adaptive}}, max_norm=1.0, min_clients=1)
    server.train_tasks(0)
    wild = update("a")
    wild.extras["rsa"] = float("nan")
    with pytest.raises(UpdateRefused, match="'rsa' is nan"):
        server.accept(wild)
    far = update("b", value=9.0)
    far.extras["rsa"] = -1.0
    with pytest.raises(UpdateRefused, match="norm of its differences"):
        server.accept(far)
    with pytest.raises(JobError, match="round 0: 'floor' is 0.5; 3 sites"):
        make(rule={"args": {"weighting": {**adaptive, "floor": 0.5}}})


@pytest.mark.parametrize(
    ("metric", "first"),
    [("val_temperature", 1e308), ("val_temperature", 1e-300), ("val_temperature", -1.0), ("val_dice", 1e308)],
)
def test_an_absurd_score_or_temperature_ends_no_run(make, tmp_path, metric, first):
    store = Store()
    store.bundle.calibration = "decoder.weight"
    server = make(store=store)
    play(server, 0, [update(site, dice=0.1) for site in "ab"] + [update("u")])
    updates = [update(site, 1, dice=0.5) for site in "ab"] + [update("u", 1)]
    updates[0].metrics[metric] = updates[1].metrics[metric] = first
    play(server, 1, updates)
    assert server.model_round == 1 and server.selection.temperature is None
    assert server.selection.best_score == (0.1 if metric == "val_dice" else 0.5)
    assert len((tmp_path / "rounds.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize("failed", [False, True])
def test_a_kept_classifier_is_calibrated_and_training_goes_on_without(make, tmp_path, failed):
    """``failed``: the model of the last good round is the selected one, and both are one file of the state."""
    store = Store()
    store.bundle.calibration = "decoder.weight"  # stands for a temperature

    def scored(round, dice, temperatures):
        updates = [update(site, round, dice=dice) for site in "ab"] + [update("u", round)]
        for each, temperature in zip(updates, temperatures, strict=False):
            each.metrics |= {} if temperature is None else {"val_temperature": temperature}
        return updates

    server = make(store=store, rounds=5)
    play(server, 0, scored(0, 0.1, (None, None)))
    assert all(torch.equal(tensor, MODEL[name]) for name, tensor in store.saved[0][0].items())
    if failed:
        server.train_tasks(1)
        for each in scored(1, 0.9, (1.5, 2.5))[:2]:
            server.accept(each)
        with pytest.raises(RoundFailed):
            server.finish_round()
    else:
        play(server, 1, scored(1, 0.9, (1.5, 2.5)))
    (best, meta, _), trained = [kept for kept in store.saved if kept[2]][-1], server.train_tasks(2)["a"].tensors
    assert meta["round"] == 0 and best["decoder.weight"].item() == 2.0 and best["decoder.weight"].shape == (1, 1)
    assert trained["decoder.weight"].item() != 2.0
    store.folder = tmp_path / "none"
    server.keep()
    (tmp_path / "resumed").mkdir()
    for part in ("models", "checkpoints"):
        shutil.copytree(tmp_path / part, tmp_path / "old" / "resume" / part)
    job = server.job.changed({"resume": {"job": "old"}})
    again = Server(replace(job, app=tmp_path / "old"), store, tmp_path / "resumed")
    assert again.selection.best_tensors["decoder.weight"].item() == 2.0
    assert torch.equal(again.tensors["decoder.weight"], server.tensors["decoder.weight"])
