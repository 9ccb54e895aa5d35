"""Files of a run as a report reads them, and its rounds."""

import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmed.errors import DataError, FedMedError
from fedmed.files import read_json
from fedmed.messages.fingerprint import FORBIDDEN
from fedmed.plain_text import every_text, in_terminal
from fedmed.reports.words import join

if TYPE_CHECKING:
    import pandas as pd  # when it is used: it takes long to load, and sites read no tables

DAMAGED = "the run is damaged, start it again"
Numbers = dict[str, dict[str, float | None]]


def number(value: Any) -> float | None:
    """Return a finite float, or None for null, NaN, infinity and anything that is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a JSON-lines file; a missing file is empty, and a half-written last line is left out.

    What sites sent is in it: texts are as :func:`fedmed.plain_text.in_terminal` shows them.
    """
    if not path.is_file():
        return []
    texts = path.read_text(encoding="utf-8", errors="replace").splitlines()
    lines = []
    for place, text in enumerate(texts, start=1):
        try:
            lines.append(every_text(json.loads(text)))
        except (ValueError, RecursionError) as error:
            if place < len(texts):
                raise FedMedError(f"{path}, line {place} is damaged: {error}; remove the line") from error
    return [line for line in lines if isinstance(line, dict)]


def read_record(path: Path) -> dict[str, Any]:
    """Read ``run.json`` or ``result.json``; texts are as in :func:`read_lines`. FedMedError: it is damaged."""
    content: dict[str, Any] = every_text(read_json(path, FedMedError, DAMAGED))
    return content


def read_compared(path: Path) -> tuple[list[tuple[str, str]], list[str]]:
    """Read :func:`compared` and :func:`uncompared` of ``fingerprint.json``; nothing where there is none.

    Raises:
        FedMedError: it is damaged.
    """
    record = read_record(path) if path.is_file() else {}
    return compared(record), uncompared(record)


def uncompared(record: Mapping[str, Any]) -> list[str]:
    """Sites that let no fingerprint leave, which is what a site's settings say until somebody changes them."""
    return sorted(str(site) for site, reason in (record.get("missing") or {}).items() if reason == FORBIDDEN)


def uncompared_note(sites: Sequence[str]) -> str:
    """Say whose images were not compared with the others' before the training, and how a site allows it."""
    if not sites:
        return ""
    return (
        f"The images of {join(list(sites))} were not compared with those of other sites before round 1: no site lets "
        "numbers of its images leave by itself. Each sees and allows it by 'fedmed site approve SITE.yaml --job STUDY'."
    )


def compared(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(site, message): why a site that allows a fingerprint sent none, then what does not fit among the others."""
    reasons = ((str(site), reason) for site, reason in (record.get("missing") or {}).items() if reason != FORBIDDEN)
    missing = [(site, f"no fingerprint: {reason}") for site, reason in reasons]
    return [*missing, *((str(one.get("site")), str(one.get("message"))) for one in record.get("findings") or ())]


def read_arrays(path: Path, keys: Sequence[str], also: Sequence[str] = ()) -> list[np.ndarray]:
    """Read arrays of an ``.npz`` file, in the order of the keys; DataError for a missing key or a damaged file.

    Args:
        path, keys: the file, and what it must hold.
        also: what it may hold; two NaN stand for what it does not.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            unknown = np.full(2, np.nan)
            return [*(file[key] for key in keys), *(file.get(key, unknown) for key in also)]
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:  # NumPy looks at the checksums
        raise DataError(f"cannot read the picture {path}: {error}; evaluate the site again") from error


def read_table(path: Path) -> "pd.DataFrame":
    """Read a CSV file with a head, every cell as text on one line; a missing file is empty."""
    import pandas as pd

    if not path.is_file():
        return pd.DataFrame()
    try:
        return pd.read_csv(path, dtype=str, keep_default_na=False).map(in_terminal).rename(columns=in_terminal)
    except (OSError, ValueError) as error:
        raise FedMedError(f"cannot read {path}: {error}; evaluate the site again") from error


def column(table: "pd.DataFrame", name: str) -> np.ndarray:
    """One column of ``cases.csv`` as floats (n,); NaN where a cell is empty, not a number or not finite.

    Raises:
        FedMedError: there is no such column.
    """
    import pandas as pd

    if table.empty:
        return np.empty(0)
    if name not in table:
        raise FedMedError(f"the column {name} is missing in cases.csv; evaluate the site again")
    values = pd.to_numeric(table[name], errors="coerce").to_numpy(float)
    return np.where(np.isfinite(values), values, np.nan)


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
        exchange_bytes: site -> bytes of what it sent the others in this round, for good.
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
    exchange_bytes: dict[str, float] = field(default_factory=dict)
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
        exchange_bytes={site: number(sent) or 0.0 for site, sent in of_sites("bytes_told").items()},
        facts={key: value for key in line if (value := number(line[key])) is not None},
    )


def _numbers(of_sites: dict[str, dict[str, Any]]) -> Numbers:
    return {site: {key: number(value) for key, value in values.items()} for site, values in of_sites.items()}
