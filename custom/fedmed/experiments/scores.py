"""Dice of every tested case of an experiment: the one file that tables, tests, claims and figures are made from."""

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from fedmed.errors import DataError
from fedmed.files import write_atomically

LISTS = ("test", "valid")
MODELS = ("selected", "last")
MEAN_CASE = "mean"  # the case of a validation score, of which there is one a run and site
AGAIN = "remove the file and run the experiment again"


@dataclass(frozen=True)
class Score:
    """Dice of one case under one trained model.

    Attributes:
        arm: row of the table.
        seed: of the run.
        site: where the case lies.
        list: ``test``, or ``valid``: the site's mean validation Dice, with the case ``mean``.
        model: ``selected`` by validation Dice, or ``last``, the aggregate of the last round.
        case: name of the case, the same in every arm and seed.
        dice: in 0..1.
    """

    arm: str
    seed: int
    site: str
    list: str
    model: str
    case: str
    dice: float


COLUMNS = [field.name for field in fields(Score)]


def write_scores(path: Path, scores: Iterable[Score]) -> None:
    """Write scores as CSV, a column a field of :class:`Score`; numbers read back as they were."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(score) for score in scores)
    write_atomically(Path(path), lambda stream: stream.write(text.getvalue().encode("utf-8")))


def read_scores(path: Path) -> list[Score]:
    """Read what :func:`write_scores` wrote.

    Raises:
        DataError: no such file, other columns, a value out of its range or the same case twice; names file and line.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream)
            if reader.fieldnames != COLUMNS:
                raise DataError(f"{path}: columns {reader.fieldnames}; a file of scores has {COLUMNS}")
            lines = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}; run the experiment to make it") from error
    scores = [_score(row, f"{path}, line {number}") for number, row in lines]
    seen: set[tuple] = set()
    for (number, _), score in zip(lines, scores, strict=True):
        key = (score.arm, score.seed, score.site, score.list, score.model, score.case)
        if key in seen:
            raise DataError(
                f"{path}, line {number}: {key} is there twice; remove the file and run the experiment again"
            )
        seen.add(key)
    return scores


def _score(row: dict[str, str], where: str) -> Score:
    try:
        score = Score(**{**row, "seed": int(row["seed"]), "dice": float(row["dice"])})
    except (TypeError, ValueError) as error:
        raise DataError(f"{where} is no score: {error}; {AGAIN}") from error
    if score.list not in LISTS or score.model not in MODELS:
        raise DataError(f"{where}: list '{score.list}' of {LISTS}, model '{score.model}' of {MODELS} expected")
    if not math.isfinite(score.dice) or not -1e-6 <= score.dice <= 1 + 1e-6:
        raise DataError(f"{where}: Dice of {score.dice}; it lies between 0 and 1")
    return score
