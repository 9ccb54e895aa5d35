"""Read what a server noted of each round. Rounds are counted from 0 in the file."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedmed.reports.run_files import number, read_lines

Numbers = dict[str, dict[str, float | None]]


@dataclass(frozen=True)
class Round:
    """One line of ``rounds.jsonl``; unknown numbers are None.

    Attributes:
        refused, warnings: (site, reason or message).
        sites, extras: site -> the numbers that came with its update, and beside its model.
        aggregated: False = too few updates came, and the model stayed as it was.
        norms: site -> norm of its update, where the server cuts them; None = beyond the largest number.
        clipped: site -> what was left of an update that was cut, [0, 1).
        facts: further numbers that the server's rule noted.
        extras_bytes: of everything that sites sent beside their models, arrays included.
        geometry: site -> how its update lies to those of the others, see
            :func:`fedmed.aggregation.geometry.update_geometry`.
        told: site -> bytes of what it told the others in this round, for good.
    """

    index: int
    seconds: float | None
    score: float | None
    bytes_down: float | None
    bytes_up: float | None
    extras_bytes: float | None
    refused: tuple[tuple[str, str], ...]
    warnings: tuple[tuple[str, str], ...]
    coefficients: dict[str, float]
    sites: Numbers
    extras: Numbers = field(default_factory=dict)
    aggregated: bool = True
    norms: dict[str, float | None] = field(default_factory=dict)
    clipped: dict[str, float] = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)
    told: dict[str, float] = field(default_factory=dict)
    geometry: Numbers = field(default_factory=dict)


def read_rounds(path: Path) -> list[Round]:
    """Read ``rounds.jsonl``, in the order of the rounds; of a round that was repeated, the last line counts.

    Raises:
        FedMedError: a line is damaged.
    """
    rounds = {line.index: line for line in map(_round, read_lines(path))}
    return [rounds[index] for index in sorted(rounds)]


def _round(line: dict[str, Any]) -> Round:
    def of_sites(key: str) -> dict[str, Any]:
        return line.get(key) or {}

    return Round(
        index=int(line.get("round", 0)),
        seconds=number(line.get("seconds")),
        score=number(line.get("score")),
        bytes_down=number(line.get("bytes_down")),
        bytes_up=number(line.get("bytes_up")),
        extras_bytes=number(line.get("bytes_extras")),
        refused=tuple((str(r.get("site")), str(r.get("reason"))) for r in line.get("refused") or ()),
        warnings=tuple((str(w.get("site")), str(w.get("message"))) for w in line.get("warnings") or ()),
        coefficients={site: number(value) or 0.0 for site, value in of_sites("coefficients").items()},
        sites=_numbers(of_sites("sites")),
        extras=_numbers(of_sites("extras")),
        geometry=_numbers(of_sites("geometry")),
        aggregated=line.get("aggregated") is not False,
        norms={site: number(norm) for site, norm in of_sites("norms").items()},
        clipped={site: number(factor) or 0.0 for site, factor in of_sites("clipped").items()},
        told={site: number(sent) or 0.0 for site, sent in of_sites("bytes_told").items()},
        facts={key: value for key in line if (value := number(line[key])) is not None},
    )


def _numbers(of_sites: dict[str, dict[str, Any]]) -> Numbers:
    return {site: {key: number(value) for key, value in values.items()} for site, values in of_sites.items()}
