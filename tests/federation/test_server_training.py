"""A server that trains after averaging, through real client, engine and server."""

import copy
from contextlib import contextmanager

import pytest
import torch
import yaml

from fedmed.durable_files import load_tensors, save_tensors
from fedmed.errors import Aborted, DataError, JobError, RoundFailed, SiteConfigError, StateError
from fedmed.federation import loop
from fedmed.federation.client import Client
from fedmed.federation.server import Server
from fedmed.federation.server_training import ServerTraining
from fedmed.recovery import checkpoint
from fedmed.systems.fedst.separation import Separation
from fedmed.systems.fedst.server import PenalisedEngine
from fedmed.training.server_engine import on_cpu
from tests.federation.run_folder import kept_of, read_lines, records

PRIVATE = {"encoder.query.weight", "encoder.query.bias", "selection.weight", "selection.bias"}
UNTOUCHED = ("temporal.", "selection.")


def lines(tmp_path, name="ws", file="rounds.jsonl"):
    return read_lines(records(tmp_path / name) / file)


def rewrite(tmp_path, **changes):
    path = tmp_path / "sites" / "server.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **changes}))


@contextmanager
def before_step(number, action):
    """An action before the n-th step of the server, counted from 1 over all rounds."""
    step, done = PenalisedEngine._iteration, []

    def counted(self, engine, batch):
        done.append(None)
        if len(done) == number:
            action(self)
        return step(self, engine, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PenalisedEngine, "_iteration", counted)
        yield


def raising(error):
    def action(engine):
        raise error

    return action


def kept_by_the_sites(tmp_path, name="ws"):
    """Private state of each site after the second round."""
    return {site: kept_of(tmp_path / name, site, 1)["private"] for site in "ab"}


@pytest.fixture(scope="module")
def whole(served):
    """A run of two rounds that nobody interrupts: (its model, what its training keeps). Do not change it."""
    _, server = served
    return dict(server.tensors), on_cpu(server.applied.training.state())


@pytest.fixture
def start(serving, tmp_path, monkeypatch):
    """A checkpoint ``start.pt``, which a study may name: its tensors."""
    tensors, draw = serving("start", rounds=1, args={"trains": False}).store.initial, torch.Generator().manual_seed(3)
    tensors = {name: t + 0.01 * torch.randn(t.shape, generator=draw) for name, t in tensors.items()}
    torch.save(tensors, tmp_path / "start.pt")
    monkeypatch.setenv("FEDMED_MODELS", str(tmp_path))
    return tensors


def test_a_round_is_described(serving, streamed, tmp_path):
    serving(rounds=1)
    (line,) = lines(tmp_path)
    names = ["server_seconds", "server_loss_pre", "server_loss", "descriptor_gap", "feature_gap", "domain_norm"]
    assert all(line[name] > 0 for name in names)
    assert [s for s in streamed if s[0].startswith("server/")] == [(f"server/{name}", line[name], 0) for name in names]
    events = lines(tmp_path, file="progress.jsonl")
    assert [e["event"] for e in events] == ["start", *["step"] * 6, "end"] and events[0]["steps"] == 6
    assert [e["step"] for e in events[1:7]] == [1, 2, 3, 4, 5, 6] and events[-1]["server_loss"] == line["server_loss"]
    assert [e["phase"] for e in events[1:7]] == ["pre-trained network"] * 3 + ["averaged network"] * 3


def test_private_and_untouched_layers(start, serving, monkeypatch):
    means, train = [], ServerTraining.train

    def spy(self, mean, round):
        means.append(dict(mean))
        return train(self, mean, round)

    monkeypatch.setattr(ServerTraining, "train", spy)
    server = serving(rounds=1, checkpoint="start.pt")
    state, mean = server.applied.training.state(), means[0]
    assert {name for name in mean if torch.equal(mean[name], server.tensors[name])} == {
        *PRIVATE,
        *(name for name in mean if name.startswith("temporal.")),
    }
    private, pre = state["private"], state["state"]["separation"]["pre"]
    assert set(private) == PRIVATE and all(torch.equal(server.tensors[name], start[name]) for name in PRIVATE)
    assert all(torch.equal(private[n], start[n]) == n.startswith(UNTOUCHED) for n in PRIVATE)
    assert all(torch.equal(pre[name], start[name]) == name.startswith(UNTOUCHED) for name in start)


def test_nothing_of_the_servers_own_is_in_a_task(start, serving, seen, monkeypatch):
    """Also not where a site joins late, and gets the private tensors that the job began with."""
    accept, restore, states = Server.accept, ServerTraining.restore, []

    def away_at_first(self, update):
        return self.fail("b", "away") if (update.site, update.round) == ("b", 0) else accept(self, update)

    def spy(self, state):
        states.append(on_cpu(state))
        restore(self, state)

    monkeypatch.setattr(Server, "accept", away_at_first)
    monkeypatch.setattr(ServerTraining, "restore", spy)
    seen.clear()
    serving("late", rounds=3, min_clients=1, checkpoint="start.pt")
    sent = [b"|".join(t.numpy().tobytes() for t in task.tensors.values()) for _, task, _ in seen]
    late = next(task for site, task, _ in seen if (site, task.round) == ("b", 1))
    assert all(torch.equal(late.tensors[name], start[name]) for name in PRIVATE)
    assert len(sent) == 6 and not any(task.extras for _, task, _ in seen)
    local = []
    for state in states:
        kept = state["state"]["separation"]
        local += [kept["domain"], kept["average"], *kept["pre"].values(), *state["private"].values()]
    begun = {tensor.numpy().tobytes() for tensor in start.values()}
    secret = [data for data in (tensor.detach().numpy().tobytes() for tensor in local) if data not in begun]
    assert len(secret) > 20 and not [data for data in secret if any(data in task for task in sent)]


def test_without_penalties_it_is_training_with_labels(serving, same):
    noisy = {"overrides": {"supervised": {"dropout": 0.5}}}
    plain = serving("plain", args={"separates": False}, **noisy)
    both = serving("both", args={"lambda2": 0.0, "lambda3": 0.0}, **noisy)
    assert same(dict(plain.tensors), dict(both.tensors))
    assert set(plain.applied.training.state()["state"]) == {"optimizer"}
    drawn = serving("drawn", args={"lambda2": 0.0}, **noisy)
    assert not torch.equal(plain.tensors["head.weight"], drawn.tensors["head.weight"])


def test_the_order_of_answers_changes_no_bit(whole, serving, same, monkeypatch):
    monkeypatch.setattr(loop, "sorted", lambda items: sorted(items, reverse=True), raising=False)
    server = serving()
    assert same(dict(server.tensors), whole[0]) and same(server.applied.training.state(), whole[1])


def test_a_run_killed_while_the_server_trains_goes_on_as_if_nothing_had_been(served, whole, serving, same, tmp_path):
    """In either phase of either round, one after the other, each of which has three steps.

    Also what the sites keep to themselves is as in a run that nobody interrupts.
    """
    for number, step in enumerate((2, 5, 6 + 2, 5)):  # the last goes on after the first round
        with before_step(step, raising(KeyboardInterrupt)), pytest.raises(KeyboardInterrupt):
            serving(resume=number > 0)
    assert [line["aggregated"] for line in lines(tmp_path)] == [True, False]
    server = serving(resume=True)
    assert same(dict(server.tensors), whole[0]) and same(server.applied.training.state(), whole[1])
    places = ((tmp_path, "ws"), (served[0], "whole"))
    both = [[line for line in lines(*place) if line["aggregated"]] for place in places]
    numbers = [[line["server_loss"] for line in result] for result in both]
    assert numbers[0] == numbers[1] and len(numbers[0]) == 2
    sites = kept_by_the_sites(tmp_path)
    assert same(sites, kept_by_the_sites(served[0], "whole")) and not same(sites["a"], sites["b"])
    assert all(set(private) == PRIVATE for private in sites.values())


def test_a_full_disk_while_the_state_is_written_leaves_the_older_one(whole, serving, same, monkeypatch, tmp_path):
    save = checkpoint.save_tensors

    def full(path, content):
        if path.parent.name == "checkpoints" and content["server"]["round"] == 1:
            raise StateError(f"cannot write {path}: No space left on device")
        save(path, content)

    with monkeypatch.context() as patch, pytest.raises(StateError, match="cannot write .*checkpoints/round_1.pt"):
        patch.setattr(checkpoint, "save_tensors", full)
        serving()
    assert (
        set(load_tensors(records(tmp_path / "ws") / "checkpoints/round_0.pt")["rule"]["training"]["private"]) == PRIVATE
    )
    server = serving(resume=True)
    assert same(dict(server.tensors), whole[0]) and same(server.applied.training.state(), whole[1])


@pytest.mark.parametrize("step", [8, 11])
def test_a_loss_that_is_not_a_number_fails_the_round_and_leaves_the_model(serving, tmp_path, step):
    def spoil(engine):
        engine.network.head.weight.data.fill_(torch.nan)

    with before_step(step, spoil), pytest.raises(RoundFailed, match=r"round 1: the loss is nan at step 2 of 3"):
        serving()
    assert [line["aggregated"] for line in lines(tmp_path)] == [True, False]
    assert "server_loss" not in lines(tmp_path)[1] and lines(tmp_path, file="progress.jsonl")[-1]["event"] == "error"
    kept = load_tensors(records(tmp_path / "ws") / "checkpoints/round_0.pt")["rule"]["training"]["state"]["separation"]
    assert bool(torch.isfinite(kept["pre"]["head.weight"]).all())


def test_an_answer_that_is_not_a_number_changes_neither_the_model_nor_what_the_training_keeps(
    serving, same, tmp_path, monkeypatch, caplog
):
    train, finish, result = Client.train, Server.finish_round, []

    def spoilt(self, task):
        update = train(self, task)
        if (update.site, update.round) == ("b", 1):
            update.tensors["head.bias"][0] = torch.nan
        return update

    def finish_round(self):
        before = on_cpu({"model": self.tensors, "training": self.applied.training.state()})
        try:
            finish(self)
        except RoundFailed:
            result.append(same(before, on_cpu({"model": self.tensors, "training": self.applied.training.state()})))
            result.append(sorted(before["training"]["state"]["separation"]))
            raise

    monkeypatch.setattr(Client, "train", spoilt)
    monkeypatch.setattr(Server, "finish_round", finish_round)
    with pytest.raises(RoundFailed, match="1 of 2 updates accepted"):
        serving(max_failed_rounds=1)
    assert result == [True, ["average", "domain", "optimizer", "pre"]]
    assert "site 'b' refused: tensor 'head.bias': 1 of 2 values are NaN" in caplog.text
    assert {event["round"] for event in lines(tmp_path, file="progress.jsonl")} == {0}, "the server did not train on"


def test_a_failed_round_leaves_no_trace_in_what_is_kept(serving, same):
    """The next round goes on from the last good one, as the first after it."""
    kept, train = [], ServerTraining.train

    def spy(self, mean, round):
        kept.append(on_cpu(self.state()))
        return train(self, mean, round)

    with pytest.MonkeyPatch.context() as patch, before_step(11, raising(RuntimeError("out of memory"))):
        patch.setattr(ServerTraining, "train", spy)
        serving(rounds=3)
    assert same(kept[1], kept[2]) and kept[1] and not kept[0]


@pytest.fixture
def aborted(monkeypatch):
    """A list; with anything in it the job is aborted."""
    made, aborted = Server.__init__, []

    def init(self, *args, **named):
        made(self, *args, **named)
        self.abort_by(lambda: bool(aborted))

    monkeypatch.setattr(Server, "__init__", init)
    return aborted


def test_an_aborted_job_ends_while_features_are_averaged(serving, aborted, tmp_path, monkeypatch):
    """Before a batch of Fang et al. 2025, Eq. 10, and not only at the first step after it."""
    take, ended = Separation.take_average, []

    def spy(self, *args):
        aborted.append(True)
        try:
            take(self, *args)
        except Aborted:
            ended.append(self.average)
            raise

    monkeypatch.setattr(Separation, "take_average", spy)
    with pytest.raises(Aborted):
        serving(rounds=2)
    assert ended == [None] and [line["aggregated"] for line in lines(tmp_path)] == [False]


def test_an_aborted_job_ends_at_the_next_step(serving, aborted, tmp_path):
    with before_step(5, lambda engine: aborted.append(True)), pytest.raises(Aborted):
        serving(rounds=2)
    assert [e["step"] for e in lines(tmp_path, file="progress.jsonl") if e["event"] == "step"] == [1, 2, 3, 4, 5]
    assert [line["aggregated"] for line in lines(tmp_path)] == [False]


def test_what_the_server_lacks_is_told_before_anything_trains(serving, seen, tmp_path, monkeypatch):
    rewrite(tmp_path, data_root=None)
    with pytest.raises(SiteConfigError, match="server's settings name no images"):
        serving()
    rewrite(tmp_path, data_root="server")
    (tmp_path / "sites/server/datalist.json").write_text('{"training": []}')
    with pytest.raises(DataError, match="the server has no images to train with"):
        serving()
    (tmp_path / "sites/server/datalist.json").write_text('{"training": [1]}')
    changed(monkeypatch, blank=True)
    with pytest.raises(DataError, match="no mask of the server's images shows any class"):
        serving()
    assert not seen


def changed(monkeypatch, **settings):
    """Other pictures for all."""
    import serving as package

    batches = package.batches
    monkeypatch.setattr(package, "batches", lambda *args, **named: batches(*args, **{**named, **settings}))


def test_a_resumed_run_with_images_of_another_size_is_told(serving, killed_before, monkeypatch):
    with killed_before(1):
        serving()
    changed(monkeypatch, side=8)
    with pytest.raises(DataError, match=r"have shape \(4, 8, 8\), those before, .*, \(4, 6, 6\); use images of one"):
        serving(resume=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda training: training["state"]["separation"]["pre"].pop("head.bias"),
            "pre-trained network is of another network: tensor 'head.bias' is missing",
        ),
        (dict.clear, "holds nothing of the server's training"),
    ],
)
def test_a_kept_state_that_does_not_fit_is_told(serving, killed_before, tmp_path, change, message):
    with killed_before(1):
        serving()
    path = records(tmp_path / "ws") / "checkpoints/round_0.pt"
    content = load_tensors(path)
    change(content["rule"]["training"])
    save_tensors(path, content)
    with pytest.raises(StateError, match=message):
        serving(resume=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda kept: kept.update({"selection.bias": torch.ones(9)}), r"'selection.bias' is \(9,\), here \(\d+,\)"),
        (lambda kept: kept.update({"gate.bias": torch.ones(9)}), r"'gate.bias' is \(9,\), here missing"),
    ],
)
def test_private_tensors_of_another_network_are_told(whole, serving, change, said):
    """Before anything trains, and where a round begins."""
    model, state = copy.deepcopy(whole)
    server = serving("other", rounds=1)
    training = server.applied.training
    change(state["private"])
    training.restore(state)
    for work in (training.check, training.train):
        with pytest.raises(StateError, match=f"private part is of another network: tensor {said}; continue with the"):
            work(model, 1)


def test_results_do_not_depend_on_the_threads_of_the_process(whole, serving, same, monkeypatch):
    used, train, before = [], ServerTraining._train, torch.get_num_threads()

    def spy(self, mean, task):
        used.append(torch.get_num_threads())
        return train(self, mean, task)

    def with_two(self, mean, round):
        torch.set_num_threads(2)
        try:
            return plain(self, mean, round)
        finally:
            used.append(torch.get_num_threads())

    plain = ServerTraining.train
    monkeypatch.setattr(ServerTraining, "_train", spy)
    monkeypatch.setattr(ServerTraining, "train", with_two)
    try:
        assert same(dict(serving().tensors), whole[0]) and used == [1, 2, 1, 2]
    finally:
        torch.set_num_threads(before)


def test_a_bundle_without_such_an_overlay_is_told_when_the_job_is_written(serving, monkeypatch):
    import serving as package

    monkeypatch.setattr(package.Serving, "server_training", lambda self: {"overlay": "nothing"})
    with pytest.raises(JobError, match="trains at the server: bundle 'serving_bundle' has no overlay 'nothing'"):
        serving()
