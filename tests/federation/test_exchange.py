"""Sites that learn from one another: what is sent to whom, by what the sites are weighed, and that a run resumes."""

import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from fedmed.checks.part_in_job import job_of_bundle
from fedmed.durable_files import load_tensors
from fedmed.errors import FedMedError, JobError, StateError
from fedmed.federation.client import Client
from fedmed.federation.loop import run_job
from fedmed.federation.server import Server
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import write_job
from fedmed.messages.answers import Extras, extras_bytes
from fedmed.messages.task import Task
from fedmed.privacy.limits import read_ledger
from fedmed.settings.site import load_file
from tests.federation.run_folder import Killed, model_of, read_lines, records, result_of, rounds_of

HERE = Path(__file__).parent
IMAGES = {"a": 5, "b": 3, "c": 8, "small": 1}
ALLOWED = {"allowed_extras": ["rsa", "mu", "n"]}
METHOD = "exchanging.Exchanging"  # not FedMed's own: server and sites must list it
SPEC = {"rounds": 4, "epochs": 1.0, "bundle": "exchanging_bundle", "select": "last", "evaluate": False}


@pytest.fixture(autouse=True)
def bundle(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDMED_BUNDLES", str(HERE))
    monkeypatch.setenv("FEDMED_SITE_CONFIGS", str(tmp_path))
    (tmp_path / "server.yaml").write_text(f"allowed_classes: [{METHOD}]")
    monkeypatch.syspath_prepend(str(HERE / "exchanging_bundle"))
    yield
    sys.modules.pop("exchanging", None)


@pytest.fixture
def federation(tmp_path):
    """Return a function: write a job and run it; gives the workspace. ``privacy`` holds site -> its limits."""

    def federation(name="ws", names="abc", privacy=None, resume=False, method=None, **changes):
        sites = {site: settings(tmp_path, site, (privacy or {}).get(site, ALLOWED)) for site in names}
        study = {**SPEC, "name": name, "sites": dict.fromkeys(names, "unsupervised"), **changes}
        study["method"] = {"path": METHOD, "args": method or {}}
        job = write_job(Job.of(study, [METHOD]), tmp_path / "jobs" / name, replace=True)
        run_job(job, tmp_path / name, sites, resume)
        return tmp_path / name

    return federation


def settings(folder, site, privacy):
    data = folder / f"data_{site}"
    data.mkdir(exist_ok=True)
    generator = torch.Generator().manual_seed(ord(site[0]))
    images = torch.randn(IMAGES["small" if privacy == "small" else site], 3, generator=generator).tolist()
    (data / "datalist.json").write_text(json.dumps({"unlabeled": images}))
    path = folder / f"{site}.yaml"
    privacy = {"account": "account.json", **(ALLOWED if privacy == "small" else privacy)}
    values = {"data_root": str(data), "device": "cpu", "allowed_classes": [METHOD]}
    path.write_text(yaml.safe_dump({**values, "privacy": privacy}))
    return load_file(path)


def test_before_the_first_such_round_nothing_is_exchanged_and_then_each_gets_the_others(federation, seen):
    workspace = federation()
    order = [(task.round, task.name) for _, task, _ in seen]
    tasks = [["train"], ["train"], ["metadata", "train"], ["metadata", "train"]]
    assert order == [(round, name) for round, names in enumerate(tasks) for name in names for _ in "abc"]
    sent = {(site, task.round): answer.values for site, task, answer in seen if task.name == "metadata"}
    for site, task, answer in seen:
        if task.name == "metadata":
            assert task.tensors.keys() == {"weight", "bias", "queue"} and not task.validate
            continue
        others = [sent[other, task.round]["mu"] for other in "abc" if other != site] if task.round >= 2 else []
        got = task.extras.get("others", [])
        assert [list(values) for values in got] == [["mu"]] * len(others), "numbers and names stay at the server"
        assert all(torch.equal(values["mu"], mu) for values, mu in zip(got, others, strict=True))
        assert (task.reuse, bool(task.tensors)) == (task.round >= 2, task.round < 2)
        assert answer.n_steps == math.ceil(IMAGES[site] / 2) and answer.n_samples == IMAGES[site]
    for line in rounds_of(workspace):
        assert math.fsum(line["coefficients"].values()) == pytest.approx(1)
        assert all(coefficient >= 0 for coefficient in line["coefficients"].values())
        gaps = {site: 1 - line["extras"][site]["rsa"] for site in "abc"}
        shares = {site: gap / sum(gaps.values()) for site, gap in gaps.items()}
        assert line["coefficients"] == pytest.approx(shares) and not line["warnings"]
        assert {site: values.get("n") for site, values in line["extras"].items()} == (
            {site: IMAGES[site] for site in "abc"} if line["round"] >= 2 else dict.fromkeys("abc")
        )
    params = 3 * 4 * (3 * 2 + 2 + 1)  # three sites, float32
    early, late = rounds_of(workspace)[1], rounds_of(workspace)[2]
    assert (early["bytes_down"], early["bytes_up"], early["bytes_extras"]) == (params, params + 24, 24)
    assert late["bytes_down"] == params + 3 * 2 * 8 and late["bytes_up"] == params + 24 + 3 * (8 + 8)
    assert late["bytes_extras"] == 24 + 3 * 16 + 3 * 2 * 8


def test_the_last_aggregate_is_the_result_without_labels_or_a_choice(federation, seen):
    workspace = federation(rounds=2)
    app = workspace / "server/simulate_job/app_server"
    assert (app / "FL_global_model.pt").is_file() and not (app / "best_FL_global_model.pt").exists()
    reported = result_of(workspace)
    assert reported["best_round"] is None and reported["best_score"] is None and reported["selected_by"] == []
    assert reported["test"] == {} and reported["validation"] == {}
    assert load_tensors(app / "FL_global_model.pt")["meta"]["round"] == 1
    facts = json.loads((workspace / "server/simulate_job/fedmed/run.json").read_text())
    assert facts["score"] == {
        "name": "auroc", "label": "AUROC", "test": "auroc", "low": "auroc_low", "high": "auroc_high"
    }  # fmt: skip
    progress = [line for site in "abc" for line in read_lines(records(workspace, site) / "progress.jsonl")]
    assert "validated" not in {line["event"] for line in progress}


def test_without_exchange_the_run_is_another_and_up_to_its_first_round_the_same(federation):
    with_it, without = federation("with"), federation("without", method={"from_round": None})
    assert not torch.equal(model_of(with_it)["bias"], model_of(without)["bias"])
    early = [federation(n, rounds=2, method={"from_round": start}) for n, start in (("early", 2), ("never", None))]
    assert all(torch.equal(t, model_of(early[1])[n]) for n, t in model_of(early[0]).items())


@pytest.mark.parametrize(
    ("privacy", "reason"),
    [
        ({"b": "small"}, "it sent nothing: too few images"),
        ({"b": {"allowed_extras": ["rsa"]}}, "it sent nothing: too few images, or 'privacy.allowed_extras'"),
        ({"b": {"allowed_extras": ["rsa", "mu"]}}, "it sent no 'n'"),
        ({"b": {**ALLOWED, "max_bytes": 5, "allowed_metrics": []}}, "PrivacyError"),
    ],
)
def test_a_site_that_sends_nothing_trains_all_the_same_and_it_is_told_once(federation, seen, privacy, reason):
    few = "max_bytes" in privacy["b"]
    workspace = federation(privacy=privacy, min_clients=1)
    warnings = [(line["round"], warning) for line in rounds_of(workspace) for warning in line["warnings"]]
    assert [(round, warning["site"]) for round, warning in warnings if reason in warning["message"]] == [(2, "b")]
    for site, task, _ in seen:
        if task.name == "train" and task.round >= 2:
            assert len(task.extras["others"]) == (2 if site == "b" else 1)
            assert task.reuse != (few and site == "b"), "the model is sent again to a site that gave no answer"
    expected = ["a", "c"] if few else ["a", "b", "c"]  # its updates are too large, too
    assert all(line["accepted"] == expected for line in rounds_of(workspace))
    lines = [line for line in read_ledger(workspace / "b") if line["answer"] == "metadata"]
    allowed = privacy["b"]["allowed_extras"] if privacy["b"] != "small" else []
    assert all(line["extras"].keys() == {"mu", "n"} & set(allowed) for line in lines) and (few or len(lines) == 2)


def test_a_similarity_that_stays_at_home_makes_rounds_weigh_by_samples_then_uniformly(federation):
    workspace = federation(privacy={"b": {"allowed_extras": []}}, rounds=1)
    (line,) = rounds_of(workspace)
    assert line["coefficients"] == {site: IMAGES[site] / 16 for site in "abc"}
    assert [w["site"] for w in line["warnings"]] == ["b"] and "weighs by 'samples'" in line["warnings"][0]["message"]
    silent = {"allowed_extras": [], "allowed_metrics": ["train_loss"]}
    (line,) = rounds_of(federation("silent", privacy={"b": silent, "c": silent}, rounds=1))
    assert line["coefficients"] == dict.fromkeys("abc", 1 / 3)
    assert [w["site"] for w in line["warnings"]] == ["b, c", "b, c"] and "'uniform'" in line["warnings"][1]["message"]


def test_the_ledger_names_what_left_and_noise_is_added(federation, seen):
    noise = {**ALLOWED, "extras_noise": 0.5, "noise_seed": 7}
    workspace = federation(privacy={"b": noise}, rounds=3)
    (line,) = [line for line in read_ledger(workspace / "b") if line["answer"] == "metadata"]
    assert line["extras"] == {"mu": "float32 2", "n": 3} and line["extras_noise"] == 0.5 and line["bytes"] == 9
    values = {site: answer.values["mu"] for site, task, answer in seen if task.name == "metadata"}
    got = {site: task.extras["others"] for site, task, _ in seen if task.name == "train" and task.extras}
    moved = got["a"][0]["mu"] - values["b"]
    assert torch.equal(got["c"][1]["mu"], got["a"][0]["mu"]) and 0.01 < moved.abs().max() < 3
    assert torch.equal(got["b"][0]["mu"], values["a"])
    (clean,) = [line for line in read_ledger(workspace / "a") if line["answer"] == "metadata"]
    assert "extras_noise" not in clean


@pytest.mark.parametrize(
    ("owner", "name", "at", "sharing"),
    [(Client, "train", 8, "queue"), (Client, "metadata", 5, "full"), (Server, "finish_round", 3, "full")],
)
def test_a_run_killed_in_a_round_with_exchange_ends_where_a_whole_one_does(
    federation, monkeypatch, owner, name, at, sharing
):
    whole = federation("whole", sharing=sharing)
    original, calls = getattr(owner, name), []

    def kill(*arguments):
        calls.append(None)
        if len(calls) == at:
            raise Killed
        return original(*arguments)

    monkeypatch.setattr(owner, name, kill)
    with pytest.raises(Killed):
        federation("cut", sharing=sharing)
    assert 2 <= len(rounds_of(whole.parent / "cut")) < 4
    again = federation("cut", sharing=sharing, resume=True)
    for key, tensor in model_of(whole).items():
        assert torch.equal(tensor, model_of(again)[key]), key
    assert [line["coefficients"] for line in rounds_of(whole)] == [line["coefficients"] for line in rounds_of(again)]
    assert [line["extras"] for line in rounds_of(whole)] == [line["extras"] for line in rounds_of(again)]
    assert not list(again.glob("*/simulate_job/fedmed/state/received.pt")), "the held model is deleted"


ONCE = {"once": True, "from_round": 0}


def test_what_is_told_once_goes_to_each_site_until_its_first_accepted_update(federation, seen, monkeypatch):
    """Site b fails in the first round, and gets the values with its second task."""
    original = Client.train

    def fail(self, task):
        if self.site.site == "b" and not task.round:
            raise FedMedError("the disk is full")
        return original(self, task)

    monkeypatch.setattr(Client, "train", fail)
    workspace = federation(method=ONCE, min_clients=1, rounds=3)
    assert {task.round for _, task, _ in seen if task.name == "metadata"} == {0}
    got = {(site, task.round) for site, task, _ in seen if task.name == "train" and task.extras}
    assert got == {("a", 0), ("c", 0), ("b", 1)}
    first, *later = rounds_of(workspace)
    assert first["bytes_told"] == dict.fromkeys("abc", 16) and not any("bytes_told" in line for line in later)


def test_a_resumed_run_asks_again_where_a_site_has_nothing(federation, seen, monkeypatch):
    original, calls = Client.train, []

    def fail(self, task):
        if len(calls) == 4:  # a and c have trained twice
            raise Killed
        if self.site.site == "b" and len(calls) < 4:
            raise FedMedError("the disk is full")
        calls.append(None)
        return original(self, task)

    monkeypatch.setattr(Client, "train", fail)
    with pytest.raises(Killed):
        federation(method=ONCE, min_clients=1)
    calls.append(None)
    seen.clear()
    federation(method=ONCE, min_clients=1, resume=True)
    assert [(site, task.round) for site, task, _ in seen if task.name == "metadata"] == [(s, 2) for s in "abc"]
    assert [(site, task.round) for site, task, _ in seen if task.name == "train" and task.extras] == [("b", 2)]


def test_what_nobody_told_is_an_error_where_it_is_told_once(federation, tmp_path):
    none = {"allowed_extras": ["rsa"]}
    message = r"no site sent mu, n, without which .*'a': it sent nothing.*allowed_extras: \[mu, n\]"
    with pytest.raises(JobError, match=message):
        federation(method=ONCE, privacy=dict.fromkeys("abc", none))
    assert not list(tmp_path.glob("ws/*/simulate_job/fedmed/state/round_*.pt")), "before anything trains"


TABLE = torch.rand(5, 2, 3).half()


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (TABLE[:, :, :2], "another form than those of others: 'spectra' float16 × 2 × 2, not float16 × 2 × 3"),
        (TABLE.float(), "another form.*'spectra' float32 × 2 × 3"),
        (TABLE / 0, "'spectra' is neither a finite number nor a table"),
        (-TABLE, "'spectra' has numbers below 0, which 'privacy.extras_noise'"),
        (TABLE[0, 0], "'spectra' is neither"),
        (TABLE[:0], "'spectra' is neither"),
        (None, "it sent nothing"),
    ],
)
def test_tables_of_any_length_fit_together_if_their_entries_do(exchange_of, wrong, reason):
    said = {"names": ("spectra",), "once": True, "entries": True}
    exchange, again = (exchange_of(dict.fromkeys("abc", "supervised"), **said) for _ in range(2))
    values = {"a": TABLE, "b": wrong, "c": TABLE[:2]}
    answers = {site: Extras(site, 0, {} if v is None else {"spectra": v}) for site, v in values.items()}
    exchange.take(answers, 0, list("abc"))
    assert exchange.values.keys() == {"a", "c"} and re.search(reason, exchange.missing["b"])
    filled = [exchange.fill(Task("train", 0, 1, {}), site).extras["others"] for site in "ab"]
    shapes = [[tuple(other["spectra"].shape) for other in others] for others in filled]
    assert shapes == [[(2, 2, 3)], [(5, 2, 3), (2, 2, 3)]]
    assert all(list(other) == ["spectra"] for others in filled for other in others), "no names"
    again.take(dict(reversed(answers.items())), 0, list("cba"))
    assert [list(exchange.values), list(again.values)] == [["a", "c"]] * 2, "whatever the order of arrival"


def test_a_task_whose_model_is_not_here_is_an_error(federation, seen, tmp_path):
    workspace = federation(rounds=1)
    job = job_of_bundle("exchanging_bundle", "unsupervised")
    client = Client(job, load_file(tmp_path / "a.yaml"), workspace / "a" / "x", "unsupervised")
    _, task, _ = seen[0]
    task.reuse, task.tensors = True, {}
    with pytest.raises(StateError, match="received.pt"):
        client.train(task)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"mu": torch.ones(3), "n": 4}, "another form than those of others: 'mu' float32 × 3, not float32 × 2"),
        ({"mu": torch.tensor([1.0, math.nan]), "n": 4}, "'mu' is neither"),
        ({"mu": torch.ones(1, 2), "n": 4}, "'mu' is neither"),
        ({"mu": torch.ones(2).long(), "n": 4}, "'mu' is neither"),
        ({"mu": torch.empty(0), "n": 4}, "'mu' is neither"),
        ({"mu": torch.tensor([0.0, -2e6]), "n": 4}, "'mu' goes beyond 1e+06"),
        ({"mu": torch.ones(2), "n": math.inf}, "'n' is neither"),
        ({"mu": torch.ones(2), "n": True}, "'n' is neither"),
        ({"mu": torch.ones(2), "n": torch.ones(2)}, "'n' float32 × 2, not number"),
        ({"mu": torch.ones(2), "n": 3, "names": 1}, "it sent 'names'"),
        ({"mu": torch.ones(2), "n": 3, 1: 1, "x": 2}, "it sent '1'"),
        ({"mu": torch.ones(2), "n": 2**64 - 1}, "'n' goes beyond"),
        ({"mu": torch.ones(2), "n": 10**400}, "'n' is neither"),
        ({"mu": torch.ones(2).to(torch.float8_e4m3fn), "n": 4}, "'mu' is neither"),
        ({"mu": "far away", "n": 4}, "'mu' is neither"),
    ],
)
def test_answers_that_do_not_fit_are_left_out(exchange_of, change, reason):
    exchange = exchange_of(dict.fromkeys("abcd", "unsupervised"), names=("mu", "n"), first_round=2)
    answers = {site: Extras(site, 0, {"mu": torch.ones(2), "n": 4}) for site in "ac"}
    exchange.take({**answers, "b": Extras("b", 0, change), "d": Extras("d", 1, {})}, 0, list("abcd"))
    assert exchange.values.keys() == {"a", "c"} and exchange.answered == {"a", "b", "c"}
    assert reason in exchange.missing["b"] and exchange.missing["d"] == "it answered something else"
    assert [warning["site"] for warning in exchange.warnings()] == ["b", "d"] and not exchange.warnings()


@pytest.mark.parametrize(("sizes", "kept"), [({"a": 2, "b": 3}, ""), ({"a": 2, "b": 3, "c": 3}, "bc"), ({"a": 2}, "a")])
def test_without_a_majority_nobody_is_believed(exchange_of, sizes, kept):
    exchange = exchange_of(dict.fromkeys("abc", "supervised"), names=("mu",))
    exchange.take({s: Extras(s, 0, {"mu": torch.ones(size)}) for s, size in sizes.items()}, 0, sorted(sizes))
    assert exchange.values.keys() == set(kept) and all("another form" in reason for reason in exchange.missing.values())


@pytest.mark.parametrize("round", [np.zeros(3), "0", 0.0, False, None])
def test_an_answer_to_something_that_is_no_round_is_left_out(exchange_of, round):
    exchange = exchange_of(dict.fromkeys("abc", "supervised"), names=("mu",))
    exchange.take({"a": Extras("a", round, {"mu": torch.ones(1)})}, 0, ["a"])
    assert not exchange.values and not exchange.answered and exchange.missing == {"a": "it answered something else"}


def test_numbers_alone_are_no_news_for_the_others(federation, seen):
    federation(rounds=1, method={"from_round": 0, "names": ["n"]})
    trained = [task for _, task, _ in seen if task.name == "train"]
    assert len(trained) == 3 and not any(task.extras for task in trained)


def test_bytes_count_elements_and_numbers():
    assert extras_bytes({"others": [{"mu": torch.zeros(4)}, {"mu": torch.zeros(2).double()}], "n": 3, "ok": True}) == 40
