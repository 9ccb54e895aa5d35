"""The ledger of a site as a page: what it has sent in a job."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pandas as pd

from fedmed.errors import FedMedError
from fedmed.messages.fingerprint import NAME as FINGERPRINT
from fedmed.messages.fingerprint import TELLS
from fedmed.methods.algorithm import Algorithm
from fedmed.methods.find_method import adaptations, algorithms, installed
from fedmed.methods.method import Method
from fedmed.reports.sheet import Sheet, SheetTable
from fedmed.reports.words import NOTHING, count, plain_delta, plain_number, size

KIND = "what has left this site"
SHOWN = 8  # numbers of one answer; all are in the ledger, and below the answers with their range
MEANINGFUL = 10  # the upper end of what practice calls an acceptable ε
CLOSING = [
    (
        "What this page is",
        [
            "Every answer that FedMed gave the server, each written down before it was sent. The SHA-256 is over the "
            "names, dtypes, shapes and values of the answer. The page stays at the site: reasons of refusals may name "
            "files, and norms before clipping are not known outside.",
            "Not listed are what NVIDIA FLARE itself says: the site's name, its certificate, that it is alive, which "
            "job it works on, and the error code of a refused answer.",
        ],
    )
]
Line = dict[str, Any]


def ledger_sheet(lines: Sequence[Line]) -> Sheet:
    """Put the lines of a ledger on a page; FedMedError: there is no line."""
    if not lines:
        raise FedMedError("the ledger is empty: nothing has been sent yet")
    answers = [line for line in lines if line.get("answer") != "live"]
    counts, site = Counter(line.get("answer") for line in answers), str(lines[0].get("site", "?"))
    summaries = sum(bool(line.get("extras")) and not line.get("tensors") for line in answers)
    epsilons = [line["epsilon"] for line in answers if "epsilon" in line]
    total = size(sum(line.get("bytes", 0) for line in answers))
    facts = [
        ("updates", str(counts["update"])),
        ("scores", str(counts["scores"])),
        *([("summaries", str(summaries))] if summaries else []),
        ("releases", str(counts["release"])),
        ("held back or failed", str(counts["refused"])),
        ("sent in all", total),
        *([("ε so far", plain_number(epsilons[-1]))] if epsilons else []),
    ]
    tables = [SheetTable("Answers", "", ["when", "task", "round#", "what", "numbers", "SHA-256"], _rows(answers))]
    if extras := _extras(answers):
        note = "What is said of values that left beside the model."
        tables.append(SheetTable("Values beside the model", note, ["name", "what it tells about the site"], extras))
    if numbers := _numbers(lines):
        note = "Also those that are shown while a site works. Counts are of single values."
        tables.append(SheetTable("Numbers", note, ["name", "sent#", "smallest#", "largest#"], numbers))
    if times := Counter(tensor for line in answers for tensor in line.get("tensors", {}).items()):
        tensors = [[name, kind, str(n)] for (name, kind), n in times.items()]
        tables.append(SheetTable("Tensors", "", ["name", "kind", "times#"], tensors, long=True))
    return Sheet(site, KIND, _summary(site, answers, counts, total), facts, tables, _notices(answers), CLOSING)


def _summary(site: str, answers: Sequence[Line], counts: Counter[Any], total: str) -> str:
    released = [line for line in answers if line.get("answer") == "release"]
    sent = [line for line in answers if line.get("answer") == "update"] + released
    names = {name for line in sent for name in line.get("tensors", {})}
    text = f"{site} sent {count(counts['update'], 'update')} with {count(len(names), 'tensor')}, {total} in all"
    if any(line.get("tensors") for line in released):
        text += f", and released private layers {len(released)} times"
    refused = counts["refused"]
    text += f"; of {count(refused, 'further task')} only an error code left." if refused else "."
    last = next((line for line in reversed(answers) if "epsilon" in line), None)
    if last is None:
        return f"{text} No noise was added."
    spent = f"ε = {plain_number(last['epsilon'])} and δ = {plain_delta(last['delta'])}"
    return f"{text} With noise, at {spent} for the site as a whole."


def weak(epsilon: float) -> list[str]:
    """Warning of a large ε; empty for a small one."""
    if epsilon <= MEANINGFUL:
        return []
    promise = f"An ε of {plain_number(epsilon)} promises practically nothing"
    return [f"{promise}; what is called meaningful lies below {MEANINGFUL}."]


def _notices(answers: Sequence[Line]) -> list[str]:
    notices = []
    if any(line.get("noise_seed") for line in answers):
        notices.append("The noise came from a fixed seed (noise_seed), so it protected nothing.")
    notices += weak(max((line["epsilon"] for line in answers if "epsilon" in line), default=0.0))
    if {"epsilon" in line for line in answers if line.get("answer") == "update"} == {True, False}:
        notices.append("Some updates left without noise; ε does not hold for them.")
    refused = [line for line in answers if line.get("answer") == "refused"]
    return notices + [f"{line.get('task')}, round {_round(line)}: {line.get('reason', '')}" for line in refused]


def _rows(answers: Sequence[Line]) -> list[list[str]]:
    rows = []
    for line in answers:
        numbers = {k: line[k] for k in ("n_steps", "n_samples") if line.get(k)} | line.get("metrics", {})
        shown = [f"{name} {plain_number(value)}" for name, value in [*numbers.items()][:SHOWN]]
        more = [f"{len(numbers) - SHOWN} more, see Numbers"] if len(numbers) > SHOWN else []
        text = ", ".join([*shown, *more]) or NOTHING
        when = datetime.fromisoformat(line["time"]).strftime("%d %b %Y, %H:%M:%S")
        rows.append([when, str(line.get("task")), _round(line), _what(line), text, line.get("sha256", "")[:12]])
    return rows


def _what(line: Line) -> str:
    if line.get("answer") == "refused":
        return "an error code"
    extras = f"extras: {', '.join(line['extras'])}" if line.get("extras") else ""
    if not line.get("tensors"):
        empty = "nothing but numbers" if line.get("answer") == "scores" else "no tensors"
        return f"{extras}, {size(line.get('bytes'))}" if extras else empty
    what = f"{count(len(line['tensors']), 'tensor')}, {size(line.get('bytes'))}"
    if "norm" in line:
        what += f"; norm {plain_number(line['norm'])}"
        what += f" cut to {plain_number(line['norm_clipped'])}" if line["norm_clipped"] < line["norm"] else ""
    if "noise_std" in line:
        what += f"; noise {plain_number(line['noise_std'])} in each value, ε = {plain_number(line['epsilon'])}"
    return f"{what}; {extras}" if extras else what


def _extras(answers: Sequence[Line]) -> list[list[str]]:
    """Name of each value beside the model, and what it tells."""
    made: list[Method | Algorithm] = [kind() for kind in installed().values()]
    made += [kind() for kind in (*algorithms().values(), *adaptations().values())]
    tells = {value.name: value.tells for one in made for value in one.values()} | {FINGERPRINT: TELLS}
    sent = sorted({name for line in answers for name in line.get("extras", {})})
    return [[name, tells.get(name, NOTHING)] for name in sent]


def _numbers(lines: Sequence[Line]) -> list[list[str]]:
    values = pd.DataFrame([line.get("metrics", {}) for line in lines], dtype=float).agg(["count", "min", "max"])
    return [
        [name, f"{n:.0f}", plain_number(low), plain_number(high)] for name, (n, low, high) in sorted(values.items())
    ]


def _round(line: Line) -> str:
    round = line.get("round")
    return NOTHING if round is None or round < 0 else str(round + 1)
