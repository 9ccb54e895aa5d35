"""Rows of the score table, from what a job's folder says of how it went."""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedmed.data.datalist import list_entries
from fedmed.errors import DataError
from fedmed.recovery.interrupted_workspace import records
from fedmed.settings.site import SiteConfig
from research.runner.score_table import MEAN_UNIT, ROUNDS, SENT, SERVER, joined, score_frame

RUN = Path("simulate_job") / "fedmed"
FOLDERS = {"selected": "evaluation", "last": "evaluation_last"}
RESULTS = {"selected": ("validation", "test"), "last": ("validation_last", "test_last")}


def check_complete(folder: Path, wanted: Collection[str]) -> None:
    """Refuse (DataError) a run in which a wanted site has no score: it would be missing in tables without a word."""
    result = _result(folder)
    for _, test in RESULTS.values():
        if missing := sorted(set(wanted) - set(result[test])):
            raise DataError(f"site '{missing[0]}' was not scored; the log says why")


def read_job_scores(
    folder: Path, seed: int, metric: str, patients: Mapping[str, Sequence[str]], sent: Collection[str] = ()
) -> pd.DataFrame:
    """Every number of every test case, and every labelled site's mean validation score ``metric``, of both models.

    Args:
        folder, seed: of a finished run.
        metric: name of the validation score.
        patients: site -> whose each case of its testing list is, in order; empty text where the list does not say.
        sent: names of numbers of a whole testing list, such as counts of labels, that become rows of the list ``sent``,
            of the sites that sent them.

    Raises:
        DataError: a file of the run is missing or damaged; names it and the folder to remove.
    """
    result, frames = _result(folder), []
    for model, (validation, test) in RESULTS.items():
        rows = {"site": list(result[validation]), "value": list(result[validation].values())}
        frames.append(score_frame(rows, list="valid", model=model, unit=MEAN_UNIT, metric=metric))
        for site, metrics in result.get(test, {}).items():
            known = [name for name in sent if metrics.get(name) is not None]
            numbers = {"metric": known, "value": [metrics[name] for name in known]}
            frames.append(score_frame(numbers, site=site, list=SENT, model=model, unit=MEAN_UNIT))
            if metrics.get("n_cases"):
                cases = _cases(folder / site / RUN / FOLDERS[model] / "cases.csv", folder)
                frames.append(_of_patients(cases, patients.get(site, ())).assign(site=site, list="test", model=model))
    return joined([frame.assign(arm="", seed=seed) for frame in frames])


def tested_patients(site: SiteConfig) -> list[str]:
    """Patient of each case of a site's testing list; empty text where the list does not say."""
    return [str(entry.get("patient") or "") for entry in list_entries(site.datalist, "testing")]


def _of_patients(cases: pd.DataFrame, patients: Sequence[str]) -> pd.DataFrame:
    """A case of nobody in particular is a patient of its own."""
    units = list(dict.fromkeys(cases["unit"]))
    known = patients if len(patients) == len(units) else [""] * len(units)
    owners = {unit: patient or unit for unit, patient in zip(units, known, strict=True)}
    return cases.assign(patient=cases["unit"].map(owners))


def read_rounds(folder: Path, seed: int, images: Mapping[str, int] | None = None) -> pd.DataFrame:
    """Each good round's weight of every node, the numbers that it reported and those of its update; and its images.

    Args:
        folder, seed: of a finished run.
        images: node -> number of training images, in the arm's order; None: as the nodes say, where they do.

    Returns:
        Rows of the list ``rounds``; the metrics are ``images``, ``weight``, those of the nodes' reports, and of their
        updates as :func:`fedmed.aggregation.geometry.update_geometry` calls them; of the site ``server`` also the
        numbers of the round itself, such as ``seconds``, ``bytes_up`` and ``score``.

    Raises:
        DataError: the file of rounds is missing or damaged; names it and the folder to remove.
    """
    path, rows = records(folder) / "rounds.jsonl", []
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        said = lines[0]["sites"] if images is None else {}
        images = {node: values["n_samples"] for node, values in said.items()} if images is None else images
        for node, number in images.items():
            rows.append({"site": node, "unit": "all", "metric": "images", "value": float(number)})
        for place, line in enumerate(lines):
            for node in images if set(images) <= set(line["coefficients"]) else []:
                parts = [line.get(key, {}).get(node, {}) for key in ("sites", "geometry", "extras")]
                metrics = {name: value for values in parts for name, value in values.items()}
                metrics |= {"weight": line["coefficients"][node]}
                numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
                rows += [{"site": node, "unit": f"{place}", "metric": k, "value": v} for k, v in numbers.items()]
            whole = {name: value for name, value in line.items() if type(value) in (int, float) and name != "round"}
            rows += [{"site": SERVER, "unit": f"{place}", "metric": k, "value": v} for k, v in whole.items()]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: the rounds of a run cannot be read ({error}); remove {folder}") from error
    return score_frame(rows, arm="", seed=seed, list=ROUNDS, model="last")


def _result(folder: Path) -> dict[str, Any]:
    path = folder / "server" / RUN / "result.json"
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return content
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: the result of a run cannot be read ({error}); remove {folder}") from error


def _cases(path: Path, folder: Path) -> pd.DataFrame:
    """Columns unit, metric, value and, of a classifier, the true ``label``.

    Files of one name in folders of several patients are several cases.
    """
    try:
        said: dict[str, Any] = {"keep_default_na": False, "na_values": [""], "float_precision": "round_trip"}
        frame = pd.read_csv(path, dtype={"case": str, "label": str}, **said)
        again = frame.groupby("case").cumcount()
        names = frame.pop("case").where(again == 0, lambda names: names + " (" + (again + 1).astype(str) + ")")
        keys = {"unit": names, **({"label": frame["label"]} if "label" in frame else {})}
        scores = frame.select_dtypes("number").assign(**keys).melt(list(keys), var_name="metric").dropna()
        if scores.empty:
            raise ValueError("it holds no number of a case")
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"{path}: the scores of a finished run cannot be read ({error}); remove {folder}") from error
    return scores
