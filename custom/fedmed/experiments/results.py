"""What a run's folder says of how it went."""

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

from fedmed.errors import DataError
from fedmed.experiments.scores import MEAN_CASE, Score
from fedmed.jobs.job import Job

RUN = Path("simulate_job") / "fedmed"
FOLDERS = {"selected": "evaluation", "last": "evaluation_last"}
RESULTS = {"selected": ("validation", "test"), "last": ("validation_last", "test_last")}


def check_complete(folder: Path, job: Job) -> None:
    """A site that could not be scored would be missing from its arm in every table, without a word.

    With partial sharing, sites without a decoder have no score by design.

    Raises:
        DataError: a site has no score; names it.
    """
    study = job.study
    all_shared = study.sharing == "full" and study.buffers != "local"
    expected = {site for site, role in study.sites.items() if all_shared or role == "supervised"}
    result = _result(folder)
    for test in ("test", "test_last"):
        if missing := sorted(expected - set(result[test])):
            raise DataError(f"site '{missing[0]}' was not scored; the log says why")


def _result(folder: Path) -> dict[str, Any]:
    path = folder / "server" / RUN / "result.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: the result of a run cannot be read ({error}); remove {folder}") from error


def read_result(folder: Path, arm: str, seed: int) -> list[Score]:
    """Every test case's Dice and every labelled site's mean validation Dice, of both models.

    Raises:
        DataError: a file is missing or damaged; names it and the folder to remove.
    """
    result, scores = _result(folder), []
    for model, (validation, test) in RESULTS.items():
        for site, dice in result[validation].items():
            scores.append(Score(arm, seed, site, "valid", model, MEAN_CASE, dice))
        for site, metrics in result.get(test, {}).items():
            if metrics.get("n_cases"):
                cases = _read_cases(folder / site / RUN / FOLDERS[model] / "cases.csv")
                scores += [Score(arm, seed, site, "test", model, *case) for case in cases]
    return scores


def _read_cases(path: Path) -> list[tuple[str, float]]:
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            rows = [(row["case"], float(row["dice"])) for row in csv.DictReader(stream)]
    except (OSError, KeyError, ValueError) as error:
        raise DataError(
            f"{path}: the scores of a finished run cannot be read ({error}); remove {path.parents[4]}"
        ) from error
    seen: Counter[str] = Counter()
    for place, (name, dice) in enumerate(rows):  # files of one name in folders of several patients are several cases
        seen[name] += 1
        rows[place] = (f"{name} ({seen[name]})" if seen[name] > 1 else name, dice)
    return rows
