"""Read what a server noted of each round. Rounds are counted from 0 in the file."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedmed.reports.run_files import number, read_lines


@dataclass(frozen=True)
class Round:
    """One line of ``rounds.jsonl``; unknown numbers are None."""

    index: int
    seconds: float | None
    accepted: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]
    coefficients: dict[str, float]
    sites: dict[str, dict[str, float | None]]
    score: float | None
    bytes_down: float | None
    bytes_up: float | None
    aggregated: bool = True  # False: too few updates, the model stayed as it was
    warnings: tuple[tuple[str, str], ...] = ()  # (site, message)
    norms: dict[str, float | None] = field(default_factory=dict)  # with clip_norm; None: beyond the largest number
    clipped: dict[str, float] = field(default_factory=dict)  # site -> what was left of its update, [0, 1)
    extras: dict[str, dict[str, float | None]] = field(default_factory=dict)  # site -> what it sent beside its model
    extras_bytes: float | None = None  # of all of it, arrays included


def read_rounds(path: Path) -> list[Round]:
    """Read ``rounds.jsonl``, in the order of the rounds; of a round that was repeated, the last line counts.

    Raises:
        FedMedError: a line is damaged.
    """
    rounds = {line.index: line for line in map(_round, read_lines(path))}
    return [rounds[index] for index in sorted(rounds)]


def _round(line: dict[str, Any]) -> Round:
    coefficients = {site: number(c) or 0.0 for site, c in (line.get("coefficients") or {}).items()}
    return Round(
        index=int(line.get("round", 0)),
        accepted=tuple(line.get("accepted") or ()),
        refused=tuple((str(r.get("site")), str(r.get("reason"))) for r in line.get("refused") or ()),
        coefficients=coefficients,
        sites=_numbers(line.get("sites")),
        aggregated=line.get("aggregated") is not False,
        warnings=tuple((str(w.get("site")), str(w.get("message"))) for w in line.get("warnings") or ()),
        norms={site: number(norm) for site, norm in (line.get("norms") or {}).items()},
        extras=_numbers(line.get("extras")),
        extras_bytes=number(line.get("bytes_extras")),
        clipped={site: number(factor) or 0.0 for site, factor in (line.get("clipped") or {}).items()},
        **{key: number(line.get(key)) for key in ("seconds", "score", "bytes_down", "bytes_up")},
    )


def _numbers(of_sites: dict[str, dict[str, Any]] | None) -> dict[str, dict[str, float | None]]:
    return {site: {key: number(value) for key, value in told.items()} for site, told in (of_sites or {}).items()}
