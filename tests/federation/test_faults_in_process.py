"""Whatever a site answers, the federation goes on: executors, filter and aggregator of FLARE, without its processes."""

import logging

import pytest
import torch
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.signal import Signal
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from fedmed.durable_files import load_tensors
from fedmed.errors import RoundFailed
from fedmed.federation.server import Server
from fedmed.federation.workflow import run_federation
from fedmed.flare.aggregators import IterationWeightedAggregator
from fedmed.flare.convert import task_to_model
from fedmed.flare.filters import SiteLimitsFilter
from fedmed.jobs.job_folder import read_job
from fedmed.recovery.model_store import ModelStore
from tests.federation.run_folder import read_lines
from tests.flare.wire import site_context

TWO = {"ct_north": "supervised", "ct_east": "unsupervised"}
ERRORS = ("raise", "memory", "out of memory", "disk full")
REFUSED = {
    "nan": "NaN or infinite",
    "infinite": "NaN or infinite",
    "shape": "shape",
    "type": "dtype",
    "wrong key": "nobody.knows",
    "missing key": "missing",
    "100 times": "norm",
    "stale round": "it was computed for round",
    "later round": "it was computed for round",
    "many steps": "1000000 steps reported",
}


@pytest.fixture
def federation(tiny_job, lively, unscored, faulty_executor):
    """Return a function that plays a job with faulty sites.

    It gives the server, every task that was sent, and of every round the model, accepted updates and next model.
    """

    def play(root, faults, rounds, **changes):
        settings = {"sites": TWO, "steps": 1, "min_clients": 1, "validate_every": 100, "overrides": lively}
        made = tiny_job(root.name, **{**settings, "rounds": rounds, **changes})
        job = read_job(made)
        folder = root / "server" / "job" / "fedmed"
        server = Server(job, ModelStore(job, root / "app"), folder)
        gate = IterationWeightedAggregator()
        gate.server = server
        sites = {site: (faulty_executor({site: faults.get(site, {})}), SiteLimitsFilter()) for site in job.study.sites}
        sent, rounds_done = [], []

        def ask(tasks):
            for site, task in tasks.items():
                sent.append((site, task))
                if task.name != "train":
                    continue
                context = site_context(site, root, root / site / "job", made / f"app_{job.role(site)}", task="train")
                shareable = FLModelUtils.to_shareable(task_to_model(task))
                executor, filter = sites[site]
                reply = filter.process(executor.execute("train", shareable, context, Signal()), context)
                if (code := reply.get_return_code()) != ReturnCode.OK:
                    server.fail(site, f"answered {code}")
                    continue
                model = FLModelUtils.from_shareable(reply)
                model.meta["client_name"] = site
                gate.accept_model(model)
            return {}

        def finish():
            before, updates = server.tensors, list(server.round.updates.values())
            gate.aggregate_model()
            rounds_done.append((before, updates, server.tensors))

        run_federation(server, ask, finish)
        return server, sent, rounds_done

    return play


def test_a_site_that_fails_in_every_way_there_is_changes_nothing_and_stays_in_the_federation(
    federation, tmp_path, caplog
):
    """It is good in its first and last round; between them only the other site moves the model."""
    kinds = [*ERRORS, *REFUSED]
    faults = {"ct_east": {str(round): kind for round, kind in enumerate(kinds, start=1)}}
    rounds = len(kinds) + 2
    with caplog.at_level(logging.WARNING):
        server, sent, rounds_done = federation(tmp_path / "ws", faults, rounds, max_norm=4.0)
    lines = read_lines(tmp_path / "ws/server/job/fedmed/rounds.jsonl")
    assert all(line["aggregated"] and "ct_north" in line["accepted"] for line in lines)
    noted = {line["round"]: {entry["site"]: entry["reason"] for entry in line["refused"]} for line in lines}
    for round, kind in enumerate(kinds, start=1):
        expected = "EXECUTION_EXCEPTION" if kind in ERRORS else REFUSED[kind]
        if kind == "stale round":
            expected = f"it was computed for round {round - 1}, this is round {round}"
        assert expected in noted[round]["ct_east"], kind
    assert noted[0] == noted[rounds - 1] == {}
    tasks = [task for site, task in sent if site == "ct_east" and task.name == "train"]
    assert [task.private_round for task in tasks] == [None] + [0] * (rounds - 1)
    assert "CUDA out of memory" in caplog.text and "'ct_east'" in caplog.text
    for round, (before, updates, after) in enumerate(rounds_done):
        accepted = ["ct_east", "ct_north"] if round in (0, rounds - 1) else ["ct_north"]
        assert sorted(update.site for update in updates) == accepted
        alone = server.applied.rule.aggregate(before, updates).tensors
        assert all(torch.equal(after[name], alone[name]) for name in after)
    states = sorted(path.name for path in (tmp_path / "ws/ct_east/job/fedmed/state").iterdir())
    assert states == ["round_0.pt", f"round_{rounds - 1}.pt"]


def test_without_the_site_the_round_fails_and_the_model_stays(federation, tmp_path):
    faults = {"ct_east": {"1": "nan"}}
    with pytest.raises(RoundFailed, match="round 1: 1 of 2 updates accepted, 2 needed.*NaN"):
        federation(tmp_path / "strict", faults, 2, min_clients=2)
    kept = load_tensors(tmp_path / "strict/app/FL_global_model.pt")
    assert kept["meta"] == {"round": 0} and all(torch.isfinite(t).all() for t in kept["model"].values())


def test_a_full_disk_at_a_site_keeps_its_old_state_and_says_where(federation, tmp_path, monkeypatch, caplog):
    save, calls = torch.save, []

    def full(content, stream):
        calls.append("optimizer" in content)
        if calls.count(True) == 4 and calls[-1]:  # two sites: the second round's second state
            stream.write(b"half")
            raise OSError(28, "No space left on device")
        save(content, stream)

    monkeypatch.setattr(torch, "save", full)
    server, sent, _ = federation(tmp_path / "disk", {}, 3)
    lines = read_lines(tmp_path / "disk/server/job/fedmed/rounds.jsonl")
    assert [len(line["accepted"]) for line in lines] == [2, 1, 2]
    lost = lines[1]["refused"][0]["site"]
    assert "EXECUTION_EXCEPTION" in lines[1]["refused"][0]["reason"]
    folder = tmp_path / "disk" / lost / "job/fedmed/state"
    assert f"cannot write {folder / 'round_1.pt'}: [Errno 28] No space left on device. Free space" in caplog.text
    assert [task.private_round for site, task in sent if site == lost and task.name == "train"] == [None, 0, 0]
    assert sorted(path.name for path in folder.iterdir()) == ["round_0.pt", "round_2.pt"]
    assert server.last_round == {"ct_north": 2, "ct_east": 2}
