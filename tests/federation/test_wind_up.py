"""FedDyn with an optimizer at the server winds up, through real client, engine and server: Markert 2022's FedDyn."""

import pytest
import torch

from fedmed.durable_files import load_tensors
from fedmed.errors import FedMedError
from fedmed.federation.client import Client
from tests.federation.run_folder import rounds_of

LOSSES = {"a": (1.0, 1.0), "b": (3.0, -1.0)}  # curvature and place of the minimum; both together: -0.5
ALPHA, RATE, STEPS, FIRST = 0.01, 0.01, 10, 2.0
ADAMW = {"by": "adamw", "rate": 0.05, "decay": 0}
KINDS = pytest.mark.parametrize(
    ("dynamic", "adam", "distance"),
    [(False, False, 0.0339), (True, False, 0.0233), (False, True, 0.0339), (True, True, 3.42)],
    ids=["FedAvg", "FedDyn", "FedAvg with AdamW", "FedDyn with AdamW"],
)


def run(small, dynamic, adam, rounds):
    algorithm = {"name": "feddyn", "args": {"alpha": ALPHA}} if dynamic else None
    step = {"server_step": ADAMW} if adam else {}
    return small(rounds=rounds, steps=STEPS, algorithm=algorithm, **step)


def by_equations(dynamic, adam, rounds):
    """The model after each round, and both g and h at the end, number by number."""
    w, g, h, first, second, path = FIRST, dict.fromkeys(LOSSES, 0.0), 0.0, 0.0, 0.0, []
    for t in range(1, rounds + 1):
        ends = {}
        for site, (curve, place) in LOSSES.items():
            end = w
            for _ in range(STEPS):
                end -= RATE * (curve * (end - place) + (ALPHA * (end - w) - g[site] if dynamic else 0))
            ends[site] = end
        if dynamic:
            g = {site: g[site] - ALPHA * (end - w) for site, end in ends.items()}
            h -= ALPHA / 2 * sum(end - w for end in ends.values())
        new = sum(ends.values()) / 2 - h / ALPHA
        if adam:
            slope = w - new
            first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
            new = w - 0.05 * first / (1 - 0.9**t) / ((second / (1 - 0.999**t)) ** 0.5 + 1e-8)
        w = new
        path.append(w)
    return path, g, h


def kept(workspace, site, rounds):
    """State g that a site has kept of its last round, or of an earlier one."""
    paths = (workspace / site / f"simulate_job/fedmed/state/round_{round}.pt" for round in reversed(range(rounds)))
    state = load_tensors(next(path for path in paths if path.is_file()))["engine"]
    return state["corrections"][0]["state"]["g"]["w"].item()


@KINDS
def test_the_first_rounds_are_those_of_the_equations(small, dynamic, adam, distance, tmp_path):
    """And h is the mean of all g."""
    rounds = 6
    server = run(small, dynamic, adam, rounds)
    path, g, h = by_equations(dynamic, adam, rounds)
    assert server.tensors["w"].item() == pytest.approx(path[-1], abs=1e-12)
    if dynamic:
        step = server.applied.rule.step
        result = {site: kept(tmp_path / "ws", site, rounds) for site in LOSSES}
        assert result == pytest.approx(g, abs=1e-12) and step.h["w"].item() == pytest.approx(h, abs=1e-12)
        assert step.h["w"].item() == pytest.approx(sum(result.values()) / 2, abs=1e-15)
    assert [line["coefficients"] for line in rounds_of(tmp_path / "ws")] == [{"a": 0.5, "b": 0.5}] * rounds


@pytest.mark.parametrize("missed", [{1}, {2, 3}, {0}], ids=str)
@pytest.mark.parametrize("refused", [False, True], ids=["it fails", "its update is refused"])
def test_a_site_that_misses_rounds_is_waited_for_by_what_the_server_keeps(
    missed, refused, small, monkeypatch, tmp_path
):
    """h is divided by both sites in every round, so it stays the mean of both g."""
    train = Client.train

    def fail(self, task):
        if self.site.site != "b" or task.round not in missed:
            return train(self, task)
        if not refused:
            raise FedMedError("the disk is full")
        update = train(self, task)
        update.tensors["w"].fill_(torch.nan)
        return update

    monkeypatch.setattr(Client, "train", fail)
    server = small(rounds=5, steps=STEPS, min_clients=1, algorithm={"name": "feddyn", "args": {"alpha": ALPHA}})
    assert [line["accepted"] == ["a"] for line in rounds_of(tmp_path / "ws")] == [round in missed for round in range(5)]
    result = [kept(tmp_path / "ws", site, 5) for site in LOSSES]
    assert all(result) and server.applied.rule.step.h["w"].item() == pytest.approx(sum(result) / 2, abs=1e-15)


@KINDS
def test_the_equations_after_400_rounds(dynamic, adam, distance):
    path, _, _ = by_equations(dynamic, adam, 400)
    assert abs(path[-1] + 0.5) == pytest.approx(distance, abs=5e-3 if distance < 1 else 5e-2)
    assert abs(path[-1] + 0.5) > 1 if dynamic and adam else abs(path[-1] + 0.5) < 0.05


def test_the_swing_does_not_end():
    path, _, _ = by_equations(dynamic=True, adam=True, rounds=800)
    assert abs(path[-1] + 0.5) == pytest.approx(2.16, abs=5e-2)
    assert max(path[600:]) > 1.5 and min(path[600:]) < -2.5, "to both sides of the minimum, at -0.5"


@pytest.mark.slow
@KINDS
def test_after_400_rounds(small, dynamic, adam, distance):
    result = abs(run(small, dynamic, adam, 400).tensors["w"].item() + 0.5)
    assert result == pytest.approx(distance, abs=5e-3 if distance < 1 else 5e-2)
