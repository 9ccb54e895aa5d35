"""The ledger of a site as a page: what it has sent in a job."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from fedmed.errors import FedMedError
from fedmed.reports.sheet import Sheet, SheetTable
from fedmed.reports.words import NOTHING, count, plain_delta, plain_epsilon, size

KIND = "what has left this site"
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


def ledger_sheet(lines: Sequence[dict[str, Any]]) -> Sheet:
    """Put the lines of a ledger on a page.

    Raises:
        FedMedError: there is no line.
    """
    if not lines:
        raise FedMedError("the ledger is empty: nothing has been sent yet")
    answers = [line for line in lines if line.get("answer") != "live"]
    last = next((line for line in reversed(answers) if "epsilon" in line), None)
    of = {kind: [line for line in lines if line.get("answer") == kind] for kind in ("update", "scores", "release")}
    refused = [line for line in answers if line.get("answer") == "refused"]
    total = sum(line.get("bytes", 0) for line in answers)
    facts = [("updates", str(len(of["update"]))), ("scores", str(len(of["scores"])))]
    summaries = sum(bool(line.get("extras")) and not line.get("tensors") for line in answers)
    facts += [("summaries", str(summaries))] if summaries else []
    facts += [("releases", str(len(of["release"]))), ("held back or failed", str(len(refused)))]
    facts += [("sent in all", size(total))] + ([("ε so far", plain_epsilon(last["epsilon"]))] if last else [])
    tables = [SheetTable("Answers", "", ["when", "task", "round#", "what", "numbers", "SHA-256"], _answers(answers))]
    if numbers := _numbers(lines):
        note = "Also those that are shown while a site works. Counts are of single values."
        tables.append(SheetTable("Numbers", note, ["name", "sent#", "smallest#", "largest#"], numbers))
    if tensors := _tensors(answers):
        tables.append(SheetTable("Tensors", "", ["name", "kind", "times#"], tensors, long=True))
    summary = _summary(lines[0].get("site", "?"), of, refused, total, last)
    return Sheet(str(lines[0].get("site", "?")), KIND, summary, facts, tables, _notices(answers, refused), CLOSING)


def _summary(site: str, of: dict[str, list], refused: list, total: int, last: dict[str, Any] | None) -> str:
    names = {name for line in of["update"] + of["release"] for name in line.get("tensors", {})}
    text = f"{site} sent {count(len(of['update']), 'update')} with {count(len(names), 'tensor')}, {size(total)} in all"
    text += f", and released private layers {len(of['release'])} times" if _released(of["release"]) else ""
    text += "." if not refused else f"; of {count(len(refused), 'further task')} only an error code left."
    if last is None:
        return f"{text} No noise was added."
    spent = f"ε = {plain_epsilon(last['epsilon'])} and δ = {plain_delta(last['delta'])}"
    return f"{text} With noise, at {spent} for the site as a whole."


def weak(epsilon: float) -> list[str]:
    """What must be said of a large ε."""
    if epsilon <= MEANINGFUL:
        return []
    said = f"An ε of {plain_epsilon(epsilon)} promises practically nothing"
    return [f"{said}; what is called meaningful lies below {MEANINGFUL}."]


def _released(lines: list[dict[str, Any]]) -> bool:
    return any(line.get("tensors") for line in lines)


def _notices(answers: Sequence[dict[str, Any]], refused: Sequence[dict[str, Any]]) -> list[str]:
    notices = []
    if any(line.get("noise_seed") for line in answers):
        notices.append("The noise came from a fixed seed (noise_seed), so it protected nothing.")
    notices += weak(max((line["epsilon"] for line in answers if "epsilon" in line), default=0.0))
    noised = [line for line in answers if line.get("answer") == "update" and "epsilon" in line]
    if noised and len(noised) < sum(line.get("answer") == "update" for line in answers):
        notices.append("Some updates left without noise; ε does not hold for them.")
    for line in refused:
        notices.append(f"{line.get('task')}, round {_round(line)}: {line.get('reason', '')}")
    return notices


def _answers(answers: Sequence[dict[str, Any]]) -> list[list[str]]:
    rows = []
    for line in answers:
        numbers = {k: line[k] for k in ("n_steps", "n_samples") if line.get(k)} | line.get("metrics", {})
        said = ", ".join(f"{name} {_plain(value)}" for name, value in numbers.items())
        when = datetime.fromisoformat(line["time"]).strftime("%d %b %Y, %H:%M:%S")
        rows.append(
            [when, str(line.get("task")), _round(line), _what(line), said or NOTHING, line.get("sha256", "")[:12]]
        )
    return rows


def _what(line: dict[str, Any]) -> str:
    if line.get("answer") == "refused":
        return "an error code"
    extras = f"extras: {', '.join(line['extras'])}" if line.get("extras") else ""
    if not line.get("tensors"):
        empty = "nothing but numbers" if line.get("answer") == "scores" else "no tensors"
        return f"{extras}, {size(line.get('bytes'))}" if extras else empty
    what = f"{count(len(line['tensors']), 'tensor')}, {size(line.get('bytes'))}"
    if "norm" in line:
        what += f"; norm {line['norm']:.3g}"
        what += f" cut to {line['norm_clipped']:.3g}" if line["norm_clipped"] < line["norm"] else ""
    if "noise_std" in line:
        what += f"; noise {line['noise_std']:.3g} in each value, ε = {plain_epsilon(line['epsilon'])}"
    return f"{what}; {extras}" if extras else what


def _numbers(lines: Sequence[dict[str, Any]]) -> list[list[str]]:
    values: dict[str, list[float]] = {}
    for line in lines:
        for name, value in line.get("metrics", {}).items():
            values.setdefault(name, []).append(value)
    return [[n, str(len(v)), _plain(min(v)), _plain(max(v))] for n, v in sorted(values.items())]


def _tensors(answers: Sequence[dict[str, Any]]) -> list[list[str]]:
    times: dict[tuple[str, str], int] = {}
    for line in answers:
        for key in line.get("tensors", {}).items():
            times[key] = times.get(key, 0) + 1
    return [[name, kind, str(n)] for (name, kind), n in times.items()]


def _round(line: dict[str, Any]) -> str:
    round = line.get("round")
    return NOTHING if round is None or round < 0 else str(round + 1)


def _plain(value: float) -> str:
    return f"{value:.4g}"
