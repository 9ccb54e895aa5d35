"""Display of a federation while it trains: round, sites, loss, score, time left."""

import json
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median_high
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedmed.data.patients import TrainedOn
from fedmed.methods.declarations import LOSS, Scalar
from fedmed.methods.find_method import study_of_run
from fedmed.plain_text import every_text, in_markup, in_terminal
from fedmed.reports.palette import DARK
from fedmed.reports.run import JOB_FOLDER, error_text, known_method, score_of
from fedmed.reports.run_files import compared, number, uncompared, uncompared_note
from fedmed.reports.training_scalars import declared, leading
from fedmed.reports.words import NOTHING, duration, fixed

SCORE = "score"  # its key in a site's lines, and its name until the run's records name another
SERVER = "server"  # which has progress as a site has, where it trains too
TASKS = {
    "train": "training",
    "validate": "validating",
    "evaluate": "evaluating",
    "release": "releasing",
    "metadata": "summarising",
    "fingerprint": "measuring",
}
ANSI = re.compile(r"\x1b\[[0-9;]*m")
# The last line of a traceback, and a line of NVFlare's log: "time - name - ERROR - message".
EXCEPTION = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception|RoundFailed|UpdateRefused|Aborted): (?P<what>.+)")
ABORTED = "Aborting current RUN due to FATAL_SYSTEM_ERROR"
LOGGED = re.compile(r"(?:^| - )(?:ERROR|CRITICAL) - (?P<what>.+)")


@dataclass
class LiveSite:
    """State of one site; ``numbers`` are its last ones, by :meth:`LiveState.headings`."""

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
        self.validated = study_of_run(facts.get("config") or {}).get("select") != "last"
        self.total_rounds = int(facts.get("rounds") or self.total_rounds)

    def headings(self) -> dict[str, str]:
        """Key of a number of a site -> what a person reads."""
        return {scalar.name: scalar.label for scalar in self.scalars} | {SCORE: self.label}

    def numbers(self, line: dict[str, Any]) -> dict[str, float]:
        """The numbers in a site's line, whose names have ``train_`` in them only at the end of a round."""
        read = {key: number(line.get(key.removeprefix("train_"), line.get(key))) for key in self.headings()}
        return {key: value for key, value in read.items() if value is not None}

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

    def compared_event(self, site: str, message: str) -> str:
        """Take one finding about a site's images; return it as a plain line."""
        self.warnings.append(f"warning, before round 1: {site}: {message}")
        return f"WARNING {site}, before round 1: {message}"

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


class Follower:
    """Follows a run folder that another process fills.

    Args:
        folder: the simulator's workspace. Files of an earlier run there are ignored until they are replaced.
        job: its name, for display.
        sites: names of the sites.
        who: stands before every line, and in place of the name, where it is another of the job's runs: ``control: ``.
        then: a sentence on what follows the run, since the time that is left is its own.
    """

    def __init__(self, folder: Path, job: str, sites: Iterable[str], who: str = "", then: str = "") -> None:
        self.state = LiveState(who.removesuffix(": ") or job, {name: LiveSite() for name in sites}, then=then)
        self.who = who
        self._run = Arrival(folder / "server" / JOB_FOLDER / "run.json")
        self._compared = Arrival(folder / "server" / JOB_FOLDER / "fingerprint.json")
        self._rounds = Tail(folder / "server" / JOB_FOLDER / "rounds.jsonl")
        names = (*self.state.sites, SERVER)  # the server has progress where it trains too
        self._sites = {name: Tail(folder / name / JOB_FOLDER / "progress.jsonl") for name in names}

    def poll(self, now: float | None = None) -> list[str]:
        """Read what is new; return one plain line for each finished round and each site event but steps."""
        for facts in self._run.poll():
            self.state.run_event(facts)
        news = [(name, line) for name, tail in self._sites.items() for line in tail.poll()]
        news.sort(key=lambda pair: number(pair[1].get("time")) or 0.0)
        finished = [(line, int(line.get("round") or 0)) for line in self._rounds.poll()]
        records = self._compared.poll()
        texts = [self.state.compared_event(*one) for record in records for one in compared(record)]
        texts += [f"note: {text}" for record in records if (text := uncompared_note(uncompared(record)))]
        for name, line in news:
            # A round's own line carries no time; it stands before the first site that is in a later round.
            while finished and int(line.get("round") or 0) > finished[0][1]:
                texts.append(self._finish(finished.pop(0)[0], now))
            self.state.site_event(name, line)
            texts.append(site_line(name, line, self.state))
        texts += [self._finish(line, now) for line, _ in finished]
        return [f"{self.who}{text}" for text in texts if text]

    def _finish(self, line: dict[str, Any], now: float | None) -> str:
        self.state.round_event(line, time.time() if now is None else now)
        return round_line(line, self.state)


def site_line(site: str, line: dict[str, Any], state: LiveState) -> str:
    """One event as a plain line; empty for a step."""
    event, task, headings = line.get("event"), str(line.get("task") or ""), state.headings()
    where = f"round {int(line.get('round') or 0) + 1}/{line.get('total_rounds', '?')} {site:<12}"
    if event == "step":
        return ""
    if event == "error":
        return f"{where} {task}: ERROR {error_text(line)}"
    if event == "data" and (counts := TrainedOn.read(line)):
        return f"{where} trains on {counts.words}"
    if event == "adapted":
        return f"{where} adapted: {line.get('words')}"
    events = {"start": f"{task} starts", "validated": "received model", "end": f"{task} done"}
    numbers = [f"{headings[key]} {value:.4f}" for key, value in state.numbers(line).items()]
    return " ".join([where, events.get(str(event), f"{task} {event}"), *numbers])


def round_line(line: dict[str, Any], state: LiveState) -> str:
    """A finished round as a plain line."""
    score = number(line.get("score"))
    parts = [f"round {state.rounds_done}/{state.total_rounds or '?'} finished"]
    parts += [f"in {duration(number(line.get('seconds')))}", f"accepted {len(line.get('accepted') or ())}"]
    parts += [f"refused {r.get('site')} ({r.get('reason')})" for r in line.get("refused") or ()]
    parts += [f"cut {site} to {100 * (number(left) or 0):.3g} %" for site, left in (line.get("clipped") or {}).items()]
    parts += [] if score is None else [f"validation {state.label} of the model it began with {score:.4f}"]
    warnings = [f"\nWARNING {w.get('site')}: {w.get('message')}" for w in line.get("warnings") or ()]
    return ", ".join(parts) + "".join(warnings)


def render(state: LiveState, now: float) -> RenderableType:
    best = [] if state.best_score is None else [Text(f"best validation {state.label} so far {state.best_score:.3f}")]
    notes = [Text(note, style="yellow", overflow="fold") for note in state.refused[-3:]]
    notes += [Text(warning, style="bold yellow", overflow="fold") for warning in state.warnings[-3:]]
    errors = [Text(f"{name}: {site.error}", style="red") for name, site in state.sites.items() if site.error]
    then = [Text(state.then, style="dim")] if state.then else []
    data = [Text(f"{name} trains on {on.words}", style="dim") for name, s in state.sites.items() if (on := s.trains_on)]
    return Group(_head(state, now), *then, *best, Text(), _site_table(state), *data, *notes, *errors)


def _head(state: LiveState, now: float) -> Table:
    total, done, left = state.total_rounds or 1, state.rounds_done, state.seconds_left(now)
    phase = f"round {min(done + 1, total)} of {state.total_rounds}" if state.total_rounds else "starting"
    if state.total_rounds and done >= total:
        phase = "final scores" if state.validated else "all rounds done"
    times = duration(now - state.started) + ("" if left is None else f", about {duration(left)} left")
    head = Table.grid(padding=(0, 2))
    bar = ProgressBar(total=total, completed=done, width=20, complete_style=DARK[0])
    head.add_row(Text(state.job, style="bold"), Text(phase), bar, Text(times, no_wrap=True))
    return head


def _site_table(state: LiveState) -> Table:
    """One row a site; no column that this run can never fill."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("site", "now", "round", "steps", ""):
        table.add_column(name, overflow="fold")
    always = {LOSS.name, *([SCORE] if state.validated else [])}
    keys = [key for key in state.headings() if key in always or any(key in s.numbers for s in state.sites.values())]
    for key in keys:
        table.add_column(in_markup(state.headings()[key]), justify="right", overflow="fold")
    for index, (name, site) in enumerate(state.sites.items()):
        colour = DARK[index % len(DARK)]
        now = "error" if site.error else TASKS.get(site.task, site.task) if site.busy else "waiting"
        table.add_row(
            Text(name, style=f"bold {colour}"),
            Text(now, style="red" if site.error else "" if site.busy else "dim"),
            NOTHING if site.round is None else str(site.round + 1),
            ProgressBar(total=site.steps or 1, completed=site.step, width=20, complete_style=colour),
            f"{site.step}/{site.steps}" if site.steps else "",
            *(fixed(site.numbers.get(key)) for key in keys),
        )
    return table


def identity(path: Path) -> tuple[int, int] | None:
    """Return numbers that tell a file from its successor of the same name; None for no file."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_ino, state.st_mtime_ns


class Tail:
    """Reads the complete new lines of a JSON-lines file that another process appends to.

    A file that was there before the run and has not changed belongs to an earlier run: it is not read.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._before, self._offset = path, identity(path), 0

    def poll(self) -> list[dict[str, Any]]:
        """The objects of the lines that are new since the last call."""
        new = self._unread()
        complete = new[: new.rfind(b"\n") + 1]
        self._offset += len(complete)
        return [line for text in complete.splitlines() if (line := _parsed(text))]

    def _unread(self) -> bytes:
        if self._before is not None and identity(self.path) == self._before:
            return b""
        self._before = None
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                return file.read()
        except OSError:
            return b""


class Arrival(Tail):
    """Reads a JSON file that another process writes once, whole."""

    def poll(self) -> list[dict[str, Any]]:
        """The file's object, the first time that it is there; otherwise nothing."""
        new = self._unread()
        content = _parsed(new)
        self._offset += len(new) if content else 0
        return [content] if content else []


def _parsed(text: bytes) -> dict[str, Any]:
    """The JSON object that a text is, its texts as a terminal may show them; empty for anything else."""
    try:
        content = every_text(json.loads(text))
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def is_aborted(log: Path) -> bool:
    """Tell whether NVFlare's server has ended the job for an error, after which its sites' processes end too."""
    return log.is_file() and ABORTED in log.read_text(encoding="utf-8", errors="replace")


def last_error(log: Path, state: LiveState) -> str:
    """Return a site's own message, else the last exception in the log, else the log's last error or last line.

    Args:
        log: everything that NVFlare printed.
        state: the run as far as its files tell.
    """
    if messages := [f"{name}: {site.error}" for name, site in state.sites.items() if site.error]:
        return in_terminal("; ".join(messages))
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    lines = [line.strip() for line in ANSI.sub("", text).splitlines() if line.strip()]
    for pattern in (EXCEPTION, LOGGED):
        texts = [match["what"] for line in lines if (match := pattern.search(line))]
        if texts:
            return in_terminal(texts[-1])
    return in_terminal(lines[-1]) if lines else "NVFlare wrote nothing"
