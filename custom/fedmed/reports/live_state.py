"""The state of a run while it goes on, built from the lines of its files."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median_high
from typing import Any

from fedmed.data.patients import TrainedOn
from fedmed.methods.declarations import LOSS, Scalar
from fedmed.methods.find_method import study_of_run
from fedmed.reports.run import error_text, known_method, score_of
from fedmed.reports.run_files import number
from fedmed.reports.training_scalars import declared, leading

SCORE = "score"  # its key in a site's lines, and its name until the run's records name another
SERVER = "server"  # which has progress as a site has, where it trains too


@dataclass
class LiveSite:
    """What one site does now; ``numbers`` are its last ones, by :meth:`LiveState.headings`."""

    task: str = ""
    round: int | None = None
    step: int = 0
    steps: int = 0
    numbers: dict[str, float] = field(default_factory=dict)
    busy: bool = False
    error: str = ""
    trains_on: TrainedOn | None = None


@dataclass
class LiveState:
    """A run as far as its files tell. Times are seconds since the epoch.

    Attributes:
        label: of the score; a neutral word until the run's records name it.
        validated: whether labelled sites score the models of the rounds.
        scalars: of its training that are shown.
        then: what follows the run, in words.
    """

    job: str
    sites: dict[str, LiveSite]
    started: float = field(default_factory=time.time)
    total_rounds: int = 0
    rounds_done: int = 0
    round_seconds: list[float] = field(default_factory=list)
    last_round_end: float | None = None
    best_score: float | None = None
    label: str = SCORE
    validated: bool = True
    scalars: Sequence[Scalar] = (LOSS,)
    refused: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    then: str = ""

    def run_event(self, facts: dict[str, Any]) -> None:
        """Take the ``run.json`` of the run."""
        self.label, self.scalars = score_of(facts).label, leading(declared(known_method(facts)))
        self.validated = study_of_run(facts).get("select") != "last"
        self.total_rounds = int(facts.get("rounds") or self.total_rounds)

    def headings(self) -> dict[str, str]:
        """Key of a number of a site -> what a person reads."""
        return {scalar.name: scalar.label for scalar in self.scalars} | {SCORE: self.label}

    def numbers(self, line: dict[str, Any]) -> dict[str, float]:
        """The numbers in a site's line, whose names have ``train_`` in them only at the end of a round."""
        found = {key: number(line.get(key.removeprefix("train_"), line.get(key))) for key in self.headings()}
        return {key: value for key, value in found.items() if value is not None}

    def site_event(self, name: str, line: dict[str, Any]) -> None:
        """Take one line of a site's ``progress.jsonl``, or of the server's where it trains."""
        site, event = self.sites.setdefault(name, LiveSite()), line.get("event")
        self.total_rounds = int(line.get("total_rounds") or self.total_rounds)
        site.round, site.task = line.get("round", site.round), str(line.get("task") or site.task)
        site.steps = int(line.get("steps") or site.steps)
        site.numbers |= self.numbers(line)
        if event == "start":
            site.step, site.busy, site.error, site.steps = 0, True, "", int(line.get("steps") or 0)
        elif event == "step":
            site.step = int(line.get("step") or 0)
        elif event == "data":
            site.trains_on = TrainedOn.read(line)
        elif event == "end":
            site.step, site.busy = site.steps, False
        elif event == "error":
            site.busy, site.error = False, error_text(line)

    def round_event(self, line: dict[str, Any], now: float) -> None:
        """Take one line of ``rounds.jsonl``."""
        self.rounds_done = int(line.get("round", self.rounds_done)) + 1
        self.last_round_end, where = now, f"round {self.rounds_done}"
        seconds, score = number(line.get("seconds")), number(line.get("score"))
        self.round_seconds += [] if seconds is None else [seconds]
        if score is not None:
            self.best_score = max(score, self.best_score if self.best_score is not None else score)
        self.refused += [f"{where}: {r.get('site')} refused: {r.get('reason')}" for r in line.get("refused") or ()]
        self.warnings += [f"warning, {where}: {w.get('site')}: {w.get('message')}" for w in line.get("warnings") or ()]

    def seconds_left(self, now: float) -> float | None:
        """Estimate from the last five rounds; in the first round, from the steps done. None: nothing to go by yet."""
        remaining = self.total_rounds - self.rounds_done
        if self.round_seconds:
            typical = median_high(self.round_seconds[-5:])
            spent = min(now - (self.last_round_end or now), typical)
            return max(0.0, remaining * typical - spent) if remaining > 0 else 0.0
        share = fmean([s.step / s.steps for name, s in self.sites.items() if s.steps and name != SERVER] or [0.0])
        return (now - self.started) * (self.total_rounds / share - 1) if share > 0.1 and self.total_rounds else None
