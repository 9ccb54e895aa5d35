"""A server that trains after averaging, through real client, engine and server."""

import json
import pickle
from types import SimpleNamespace

import pytest
import torch
import yaml

from fedmed.durable_files import load_tensors
from fedmed.engines import penalised
from fedmed.engines.kept_training import on_cpu
from fedmed.errors import Aborted, DataError, FedMedError, JobError, RoundFailed, SiteConfigError, StateError
from fedmed.federation.server import Server
from fedmed.messages.task import Task

PRIVATE = {"encoder.query.weight", "encoder.query.bias", "selection.weight", "selection.bias"}
UNTOUCHED = ("temporal.", "selection.")


def folder(tmp_path, name="ws"):
    return tmp_path / name / "server/simulate_job/fedmed"


def lines(tmp_path, name="ws", file="rounds.jsonl"):
    return [json.loads(text) for text in (folder(tmp_path, name) / file).read_text().splitlines()]


def rewrite(tmp_path, **changes):
    path = tmp_path / "sites" / "server.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **changes}))


@pytest.fixture
def whole(serving, tmp_path):
    """A run of three rounds that nobody interrupts: (server, what its training keeps)."""
    server = serving("whole", rounds=3)
    return server, server.applied.training.state()


@pytest.fixture
def nth_step(monkeypatch):
    """Return a function: calls an action before the n-th step of the server, counted from 1 over all rounds."""

    def nth_step(number, action):
        step, done = penalised.PenalisedEngine._iteration, []

        def counted(self, engine, batch):
            done.append(None)
            if len(done) == number:
                action(self)
            return step(self, engine, batch)

        monkeypatch.setattr(penalised.PenalisedEngine, "_iteration", counted)

    return nth_step


def test_a_round_is_described(serving, tmp_path):
    found = []
    original = Server.__init__
    with pytest.MonkeyPatch.context() as patch:

        def init(self, *args, **kwargs):
            original(self, *args, **kwargs)
            self.stream = lambda *scalar: found.append(scalar)

        patch.setattr(Server, "__init__", init)
        serving(rounds=1)
    (line,) = lines(tmp_path)
    names = ["server_seconds", "server_loss_pre", "server_loss", "descriptor_gap", "feature_gap", "domain_norm"]
    assert all(line[name] > 0 for name in names)
    assert [(f"server/{name}", line[name], 0) for name in names] == [s for s in found if s[0].startswith("server/")]
    events = lines(tmp_path, file="progress.jsonl")
    assert [e["event"] for e in events] == ["start", *["step"] * 6, "end"] and events[0]["steps"] == 6
    assert [e["step"] for e in events[1:7]] == [1, 2, 3, 4, 5, 6] and events[-1]["server_loss"] == line["server_loss"]
    assert [e["phase"] for e in events[1:7]] == ["pre-trained network"] * 3 + ["averaged network"] * 3


def test_what_is_private_stays_at_the_server_and_what_needs_no_training_keeps_its_bits(whole, serving, seen, tmp_path):
    start = serving("start", rounds=1, args={"trains": False}).store.initial
    server, kept = whole
    assert set(kept["private"]) == PRIVATE
    assert all(torch.equal(kept["private"][n], start[n]) for n in PRIVATE if n.startswith(UNTOUCHED))
    assert not torch.equal(kept["private"]["encoder.query.weight"], start["encoder.query.weight"])
    assert all(torch.equal(server.tensors[name], start[name]) for name in PRIVATE)  # of the sites nothing was sent
    pre = kept["state"]["separation"]["pre"]
    assert all(torch.equal(pre[n], start[n]) for n in start if n.startswith(UNTOUCHED))
    assert not torch.equal(pre["head.weight"], start["head.weight"])


def test_temporal_layers_of_the_next_model_are_the_mean_of_the_sites(serving, monkeypatch):
    train, means = __import__("fedmed.federation.server_training", fromlist=[""]).ServerTraining.train, []

    def spy(self, mean, round):
        means.append(dict(mean))
        return train(self, mean, round)

    monkeypatch.setattr("fedmed.federation.server_training.ServerTraining.train", spy)
    server = serving(rounds=1)
    same = {name for name in means[0] if torch.equal(means[0][name], server.tensors[name])}
    assert same == PRIVATE | {"temporal.weight", "temporal.bias"}


def test_nothing_of_the_servers_own_is_on_the_wire(serving, seen, monkeypatch, tmp_path):
    """Also where a site joins late, and gets what it did not receive before."""
    fail = Server.accept

    def refuse_first(self, update):
        if (update.site, update.round) == ("b", 0):
            return self.fail("b", "was away")
        return fail(self, update)

    monkeypatch.setattr(Server, "accept", refuse_first)
    torch.save(torch.load(_checkpoint(serving, tmp_path)), tmp_path / "v0.pt")
    monkeypatch.setenv("FEDMED_MODELS", str(tmp_path))
    states, keep = [], []
    restore = __import__("fedmed.federation.server_training", fromlist=[""]).ServerTraining.restore

    def spy(self, state):
        states.append(on_cpu(state))
        restore(self, state)

    monkeypatch.setattr("fedmed.federation.server_training.ServerTraining.restore", spy)
    seen.clear()
    serving("late", rounds=3, min_clients=1, checkpoint="v0.pt")
    sent = [pickle.dumps({name: t.numpy().tobytes() for name, t in task.tensors.items()}) for _, task, _ in seen]
    late = next(task for site, task, _ in seen if site == "b" and task.round == 1)
    assert set(late.tensors) > PRIVATE and not any(task.extras for _, task, _ in seen)
    for state in states:
        kept, start = state["state"]["separation"], torch.load(tmp_path / "v0.pt")
        keep += [kept["domain"], kept["average"], *kept["pre"].values(), *state["private"].values()]
        keep = [t for t in keep if not any(torch.equal(t, s) for s in start.values() if t.shape == s.shape)]
    assert len(keep) > 20
    assert not [t for t in keep if any(t.numpy().tobytes() in task for task in sent)]


def _checkpoint(serving, tmp_path):
    tensors = serving("start", rounds=1, args={"trains": False}).store.initial
    draw = torch.Generator().manual_seed(3)
    torch.save({n: t + 0.01 * torch.randn(t.shape, generator=draw) for n, t in tensors.items()}, tmp_path / "start.pt")
    return tmp_path / "start.pt"


def test_the_pre_trained_network_starts_from_the_checkpoint(serving, tmp_path, monkeypatch):
    path = _checkpoint(serving, tmp_path)
    monkeypatch.setenv("FEDMED_MODELS", str(tmp_path))
    found = serving("from", rounds=1, checkpoint="start.pt", args={"rate": 1e-12}).applied.training.state()
    start, pre = torch.load(path), found["state"]["separation"]["pre"]
    assert all(torch.allclose(pre[name], start[name], atol=1e-9) for name in start)
    assert all(torch.allclose(found["private"][name], start[name], atol=1e-9) for name in PRIVATE)


def test_without_penalties_it_is_training_with_labels(serving):
    args = {"lambda2": 0.0, "lambda3": 0.0}
    plain = serving("plain", args={"separates": False}, overrides={"supervised": {"dropout": 0.5}})
    both = serving("both", args=args, overrides={"supervised": {"dropout": 0.5}})
    assert all(torch.equal(plain.tensors[name], both.tensors[name]) for name in plain.tensors)
    assert set(plain.applied.training.state()["state"]) == {"optimizer"}
    drawn = serving("drawn", args={"lambda2": 0.0}, overrides={"supervised": {"dropout": 0.5}})
    assert not torch.equal(plain.tensors["head.weight"], drawn.tensors["head.weight"])


@pytest.mark.parametrize("step", [7, 9, 11, 18])
def test_a_run_killed_while_the_server_trains_goes_on_as_if_nothing_had_been(
    whole, serving, nth_step, monkeypatch, same, tmp_path, step
):
    with monkeypatch.context() as patch:
        step_of = penalised.PenalisedEngine._iteration
        done = []

        def killed(self, engine, batch):
            done.append(None)
            if len(done) == step:
                raise KeyboardInterrupt
            return step_of(self, engine, batch)

        patch.setattr(penalised.PenalisedEngine, "_iteration", killed)
        with pytest.raises(KeyboardInterrupt):
            serving("ws", rounds=3)
    server = serving("ws", rounds=3, resume=True)
    assert same(dict(server.tensors), dict(whole[0].tensors)) and same(server.applied.training.state(), whole[1])
    numbers = [
        [{k: v for k, v in x.items() if "seconds" not in k} for x in lines(tmp_path, n)] for n in ("ws", "whole")
    ]
    assert [x["server_loss"] for x in numbers[0]] == [x["server_loss"] for x in numbers[1]]


def test_a_full_disk_while_the_state_is_written_leaves_the_older_one(whole, serving, monkeypatch, same, tmp_path):
    import fedmed.recovery.server_state as server_state

    save = server_state.save_tensors

    def full(path, content):
        if "rule" in str(path) and content["meta"]["round"] == 1:
            raise StateError(f"cannot write {path}: No space left on device. Free space")
        save(path, content)

    with monkeypatch.context() as patch, pytest.raises(StateError, match="cannot write .*rule/round_1.pt"):
        patch.setattr(server_state, "save_tensors", full)
        serving("ws", rounds=3)
    assert load_tensors(folder(tmp_path) / "rule/round_0.pt")["training"]["private"]
    server = serving("ws", rounds=3, resume=True)
    assert same(dict(server.tensors), dict(whole[0].tensors)) and same(server.applied.training.state(), whole[1])


@pytest.mark.parametrize("phase", [8, 11])
def test_a_step_that_gives_no_number_fails_the_round_and_leaves_the_model(serving, nth_step, phase, tmp_path):
    def spoil(engine):
        next(iter(engine.network.parameters())).data.fill_(torch.nan)

    nth_step(phase, spoil)  # of the second round
    with pytest.raises(RoundFailed, match=r"round 1: the loss is nan at step 2 of 3.*model is unchanged"):
        serving(max_failed_rounds=1)
    assert [line["aggregated"] for line in lines(tmp_path)] == [True, False]
    assert "server_loss" not in lines(tmp_path)[1] and lines(tmp_path, file="progress.jsonl")[-1]["event"] == "error"
    kept = load_tensors(folder(tmp_path) / "rule/round_0.pt")["training"]
    assert bool(torch.isfinite(kept["state"]["separation"]["pre"]["head.weight"]).all())


def test_a_failed_round_leaves_no_trace_in_the_next(serving, nth_step, same, monkeypatch):
    undisturbed = serving("undisturbed", rounds=1)

    def spoil(engine):
        raise RuntimeError("out of memory")

    nth_step(9, spoil)
    server = serving("ws", rounds=2, max_failed_rounds=3, min_clients=2) if False else None
    with pytest.raises(RoundFailed, match="training at the server failed: out of memory"):
        server = serving("ws", rounds=2)
    assert server is None
    kept = undisturbed.applied.training.state()
    assert kept["private"]


def test_an_aborted_job_ends_at_the_next_step(serving, monkeypatch, tmp_path):
    asked = []

    def stop(self):
        asked.append(None)
        return len(asked) > 12

    original = Server.from_args.__func__

    def from_args(cls, *args, **kwargs):
        server = original(cls, *args, **kwargs)
        server.abort_by(lambda: stop(server))
        return server

    monkeypatch.setattr(Server, "from_args", classmethod(from_args))
    with pytest.raises(Aborted):
        serving(rounds=2)
    events = lines(tmp_path, file="progress.jsonl")
    assert len([e for e in events if e["event"] == "step"]) < 6 and lines(tmp_path)[-1]["aggregated"] is False


def test_what_it_lacks_is_told_before_anything_trains(serving, seen, tmp_path):
    rewrite(tmp_path, data_root=None)
    with pytest.raises(SiteConfigError, match="server's settings name no images"):
        serving()
    rewrite(tmp_path, data_root="server")
    (tmp_path / "sites/server/datalist.json").write_text('{"training": []}')
    with pytest.raises(DataError, match="the server has no images to train with"):
        serving()
    assert not seen


def test_images_that_show_nothing_are_told(serving, seen, tmp_path, monkeypatch):
    import serving as package

    batches = package.batches
    monkeypatch.setattr(package, "batches", lambda *a, **k: batches(*a, **{**k, "blank": True}))
    with pytest.raises(DataError, match="no mask of the server's images shows any class"):
        serving()
    assert not seen


def test_a_resumed_run_with_images_of_another_size_is_told(serving, killed_before, monkeypatch):
    import serving as package

    with killed_before(1):
        serving()
    batches = package.batches
    monkeypatch.setattr(package, "batches", lambda *a, **k: batches(*a, **{**k, "side": 8}))
    with pytest.raises(
        DataError, match=r"have shape \(4, 8, 8\), those before, .*, \(4, 6, 6\); use images of one size"
    ):
        serving(resume=True)


def test_a_kept_state_of_another_network_is_told(serving, killed_before, tmp_path):
    with killed_before(1):
        serving()
    path = folder(tmp_path) / "rule/round_0.pt"
    content = load_tensors(path)
    for change, message in (
        (lambda t: t["state"]["separation"]["pre"].pop("head.bias"), "'head.bias' is missing, here"),
        (lambda t: t.clear(), "holds nothing of the server's training"),
    ):
        changed = load_tensors(path)
        change(changed["training"])
        torch.save(changed, path)
        with pytest.raises(StateError, match=message):
            serving(resume=True)
        (tmp_path / "ws").rename(tmp_path / f"gone-{len(message)}")
        (next((tmp_path / f"gone-{len(message)}").parent.glob("ws.before-*"))).rename(tmp_path / "ws")
        torch.save(content, path)


def test_results_do_not_depend_on_the_threads_of_the_process(whole, serving, same):
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert same(dict(serving("ws", rounds=3).tensors), dict(whole[0].tensors))
    finally:
        torch.set_num_threads(threads)


def test_a_bundle_without_such_an_overlay_is_told_when_the_job_is_written(serving, monkeypatch):
    import serving as package

    monkeypatch.setattr(package.Serving, "server_training", lambda self: {"overlay": "nothing"})
    with pytest.raises(JobError, match="trains at the server: bundle 'serving_bundle' has no overlay 'nothing'"):
        serving()
