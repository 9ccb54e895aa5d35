"""Failed rounds: one is survived, two in a row or the last one end the job."""

import logging
from types import SimpleNamespace

import pytest

from fedmed.errors import RoundFailed
from fedmed.federation import workflow as flow
from fedmed.federation.workflow import run_federation


class Server:
    """Counts calls; rounds in ``bad`` fail."""

    def __init__(self, rounds, bad):
        closing = {"evaluate_last": False, "evaluate_first": False, "evaluate": True}
        self.study = SimpleNamespace(rounds=rounds, max_failed_rounds=2, **closing)
        self.bad, self.failed_in_a_row, self.calls, self.first_round = bad, 0, [], 0
        self.end = rounds

    def __getattr__(self, name):
        return lambda *args: self.calls.append((name, *args)) or {}

    def ends_before(self, round):
        return round == self.end

    def train_tasks(self, round):
        self.round = round
        return {}

    def finish_round(self):
        self.failed_in_a_row = self.failed_in_a_row + 1 if self.round in self.bad else 0
        if self.round in self.bad:
            raise RoundFailed(f"round {self.round}")


@pytest.fixture(autouse=True)
def no_closing(monkeypatch):
    """The end of a run is the fake server's own."""
    monkeypatch.setattr(flow, "Closing", lambda server: server)


def test_one_failed_round_is_survived_and_said(caplog):
    server = Server(4, bad={1})
    run_federation(server, lambda tasks: {})
    assert [call[0] for call in server.calls][-1] == "finish"
    assert (logging.ERROR, "round 1") in [(record.levelno, record.message) for record in caplog.records]


@pytest.mark.parametrize(("bad", "last"), [({1, 2}, 2), ({3}, 3), ({0, 1, 2, 3}, 1)])
def test_two_in_a_row_or_the_last_end_the_job(bad, last):
    server = Server(4, bad)
    with pytest.raises(RoundFailed, match=f"round {last}"):
        run_federation(server, lambda tasks: {})
    assert not any(call[0] == "finish" for call in server.calls)


def test_a_run_that_ends_early_is_closed_as_any_other():
    server = Server(4, bad={2, 3})
    server.end = 2
    run_federation(server, lambda tasks: {})
    assert server.round == 1 and server.calls[-1][0] == "finish"
