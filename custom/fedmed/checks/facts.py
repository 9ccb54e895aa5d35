"""Figures that may leave the hospital, as rows: numbers and words of a closed list, never a site's own text."""

import math
from collections.abc import Iterator

from fedmed.checks.checked_site import CheckedSite
from fedmed.checks.entries import LISTS
from fedmed.checks.machine import Connection
from fedmed.checks.site_findings import problems
from fedmed.reports.words import NOTHING, count, duration, join, size

Rows = list[tuple[str, str]]


def summary(checked: CheckedSite) -> str:
    """One sentence: may the site join?"""
    wrong = len(problems(checked.findings))
    if wrong:
        return f"{count(wrong, 'problem')} must be solved before this site joins."
    left = join([words for part, words in _PARTS.items() if part in checked.left_out])
    return "Ready to join." if left == "none" else f"No problem was found; not checked: {left}."


_PARTS = {
    "data": "images and masks",
    "training": "a training step",
    "disk": "disk",
    "device": "device",
    "connection": "the connection",
    "preflight": "NVFlare's preflight",
    "scoring": "scoring",
}


def lists(checked: CheckedSite) -> Rows:
    """Number of images in each list."""
    return [(key, str(checked.counts.get(key, 0))) for key in LISTS]


def head(checked: CheckedSite) -> Rows:
    """The figures one looks for first."""
    measured, seconds = checked.measured, round_seconds(checked)
    rows = lists(checked)
    rows += [("a step", f"{measured.step_seconds:.3g} s")] if measured and measured.step_seconds else []
    rows += [("a round", _about(seconds))] if seconds is not None else []
    return rows + ([("memory", size(measured.peak_bytes))] if measured and measured.peak_bytes else [])


def sections(checked: CheckedSite) -> list[tuple[str, Rows]]:
    """Every other figure, by what it is about; sections that were left out are missing."""
    parts = {
        "Job": _job(checked),
        "Work": _work(checked),
        "Disk": [(s.what, f"needs {size(s.needed)}, free {size(s.free)}") for s in checked.spaces],
        "Machine": _machine(checked),
        "Connection": list(_connection(checked.connection)),
        "Versions": list(checked.machine.versions) if checked.machine else [],
    }
    return [(name, rows) for name, rows in parts.items() if rows]


def _job(checked: CheckedSite) -> Rows:
    if checked.work is None:
        return [("role", checked.role)] if checked.role else []
    job, bundle = checked.work.job, checked.demands.bundle
    return [
        ("job", checked.work.name),
        ("role", checked.work.role),
        ("bundle", f"{job.study.bundle} {bundle.version if bundle else ''}".strip()),
        ("bundle's hash", bundle.digest if bundle else "not installed"),
        ("overlays", ", ".join(job.overlays(checked.work.role)) or NOTHING),
    ]


def round_steps(checked: CheckedSite) -> int | None:
    """Optimizer steps of one round at this site; of a job that counts epochs they follow from its images or frames."""
    measured, study = checked.measured, checked.work.study if checked.work else None
    if study is None or study.epochs is None or not measured or not measured.batch:
        return study.steps if study else None
    reads = checked.trains_on
    share = reads.labelled / reads.listed if checked.kind.labelled and reads.listed else 1.0
    return math.ceil(study.epochs * share * checked.samples / measured.batch)


def round_seconds(checked: CheckedSite) -> float | None:
    """Seconds of one round at this site: what it exchanges, training, and scoring the received model."""
    measured, work, steps = checked.measured, checked.work, round_steps(checked)
    if not measured or not work or not steps or measured.step_seconds is None:
        return None
    scored = (measured.score_seconds or 0) * checked.counts.get("validation", 0)
    exchanged = (measured.metadata_seconds or 0) * checked.trained_on
    return steps * measured.step_seconds + exchanged + (scored if work.role == "supervised" and work.chooses else 0)


def _about(seconds: float) -> str:
    return f"about {duration(seconds)}" if seconds >= 1 else "under 1 s"


def _work(checked: CheckedSite) -> Rows:
    measured, work = checked.measured, checked.work
    if work is None or measured is None or measured.peak_bytes is None:
        return []
    rows: list[tuple[str, str | None]] = [
        ("one step", f"{measured.step_seconds:.3g} s, batch of {measured.batch}" if measured.step_seconds else None),
        ("scoring a case", f"{measured.score_seconds:.3g} s" if measured.score_seconds else None),
    ]
    if (seconds := measured.metadata_seconds) is not None:
        rows.append(("exchanged statistics", f"{seconds:.3g} s an image, {size(measured.extras_bytes)} a round"))
    rows.append(("preparing a case, once", f"{measured.prepare_seconds:.3g} s" if measured.prepare_seconds else None))
    if (seconds := round_seconds(checked)) is not None and (steps := round_steps(checked)):
        rows.append((f"a round of {count(steps, 'step')}", _about(seconds)))
        rounds = work.job.study.rounds
        rows.append((f"all {rounds} rounds", _about(seconds * rounds)))
    rows += [
        ("memory", f"{size(measured.peak_bytes)} at most, beside NVFlare's own"),
        ("GPU memory", f"{size(measured.cuda_peak_bytes)} at most" if measured.cuda_peak_bytes else None),
        ("received and sent a round", f"{size(measured.model_bytes)}, {size(measured.sent_bytes)}"),
        ("kept of a round", size(measured.state_bytes) if measured.state_bytes else None),
    ]
    return [(name, value) for name, value in rows if value]


def _machine(checked: CheckedSite) -> Rows:
    machine = checked.machine
    if machine is None:
        return []
    gpus = [f"{name}, {size(total)}, {size(free)} free" for name, total, free in machine.gpus]
    return [
        ("device used", machine.device),
        ("GPUs", "; ".join(gpus) or "none"),
        ("memory", f"{size(machine.memory[0])}, {size(machine.memory[1])} free"),
        ("cores", str(machine.cores)),
        ("threads, loading processes", f"{machine.threads}, {machine.workers}"),
    ]


def _connection(connection: Connection | None) -> Iterator[tuple[str, str]]:
    if connection is None:
        return
    if connection.reached is not None:
        yield "server", "reached" if connection.reached else "not reached"
    if connection.tls:
        yield "encryption", f"{connection.tls}, both certificates accepted, {connection.milliseconds:.0f} ms"
    if connection.days is not None:
        yield "certificates", f"valid for {connection.days} days" if connection.days >= 0 else "ended"
    if connection.preflight is not None:
        yield "NVFlare's preflight", "passed" if connection.preflight else "failed"
        yield "registered with the server", "yes" if connection.registered else "no"
