"""Scores of every classifier, from its probabilities for the test images, and how sure they are."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedmed.errors import DataError
from fedmed.experiments.pretraining.metrics import METRICS, Floats, interval, resamples, score
from fedmed.files import write_atomically
from fedmed.seeds import derive_seed

RESAMPLES = 2000
TESTS, MODELS = ("internal", "external"), ("last", "highest")


@dataclass(frozen=True)
class Truth:
    """What the images of one test show.

    Attributes:
        cases: names, (n,).
        labels: (n,), index of the class.
        patients: (n,).
        classes: names, (C,).
    """

    cases: tuple[str, ...]
    labels: NDArray[np.int64]
    patients: NDArray
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Setting:
    """How classifiers are trained and tested; those of two arms are compared within one setting.

    Attributes:
        task: name of the downstream task.
        test: ``internal`` (the task's hospital) or ``external``.
        protocol: ``linear`` or ``finetune``.
        fraction: share of the training labels.
        model: ``last``, or ``highest``: of the epoch with the highest accuracy on the internal test list.
    """

    task: str
    test: str
    protocol: str
    fraction: float
    model: str


@dataclass(frozen=True)
class Result:
    """Probabilities of one trained classifier.

    Attributes:
        arm, seed, setting: which.
        draw: which choice of the labelled cases, and at which node (of an arm of several encoders).
        probabilities: (n, C), rows as in the test's :class:`Truth`.
    """

    arm: str
    seed: int
    setting: Setting
    draw: str
    probabilities: Floats


@dataclass(frozen=True)
class Row:
    """Scores of one classifier; a line of ``scores.csv``."""

    arm: str
    seed: int
    task: str
    test: str
    protocol: str
    fraction: float
    model: str
    draw: str
    n_cases: int
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    auroc: float
    auroc_low: float
    auroc_high: float


class Scores:
    """Results of an experiment with their resampled metrics; patients are drawn once a test, for all arms alike.

    Args:
        results: of any arms and seeds.
        truths: (task, test) -> what the images show.

    Raises:
        DataError: the same classifier twice, or results that do not fit the truth.
    """

    def __init__(self, results: Iterable[Result], truths: Mapping[tuple[str, str], Truth]) -> None:
        self.truths, self._weights, self._single, self._resampled = truths, {}, {}, {}
        self.results: dict[tuple[str, Setting], dict[int, dict[str, Floats]]] = {}
        for each in results:
            draws = self.results.setdefault((each.arm, each.setting), {}).setdefault(each.seed, {})
            if each.draw in draws:
                raise DataError(f"{each.arm}, seed {each.seed}, {each.setting}, draw {each.draw}: there twice")
            draws[each.draw] = each.probabilities

    def settings(self) -> list[Setting]:
        """All settings, in the order of their results."""
        return list(dict.fromkeys(setting for _, setting in self.results))

    def arms(self) -> list[str]:
        return list(dict.fromkeys(arm for arm, _ in self.results))

    def seeds(self, arm: str, setting: Setting) -> list[int]:
        return sorted(self.results.get((arm, setting), {}))

    def resampled(self, arm: str, setting: Setting, metric: str) -> dict[int, Floats]:
        """Seed -> (1 + B,): the metric of the sample, then of its resamples, each averaged over the draws."""
        key = (arm, setting, metric)
        if key not in self._resampled:
            self._resampled[key] = {
                seed: np.mean([self.of_one(arm, setting, seed, draw, metric) for draw in draws], axis=0)
                for seed, draws in sorted(self.results[arm, setting].items())
            }
        return self._resampled[key]

    def of_one(self, arm: str, setting: Setting, seed: int, draw: str, metric: str) -> Floats:
        """One classifier's metric of the sample and of its resamples, (1 + B,)."""
        test, key = (setting.task, setting.test), (arm, setting, seed, draw, metric)
        if test not in self._weights:
            self._weights[test] = resamples(self.truths[test].patients, RESAMPLES, derive_seed(0, *test))
        if key not in self._single:
            probabilities = self.results[arm, setting][seed][draw]
            self._single[key] = score(metric, self.truths[test].labels, probabilities, self._weights[test])
        return self._single[key]

    def rows(self) -> list[Row]:
        """Every classifier's scores with 95 % intervals over patients."""
        return [
            self._row(arm, seed, setting, draw, probabilities)
            for (arm, setting), seeds in self.results.items()
            for seed, draws in sorted(seeds.items())
            for draw, probabilities in sorted(draws.items())
        ]

    def _row(self, arm: str, seed: int, setting: Setting, draw: str, probabilities: Floats) -> Row:
        found: list[float] = []
        for metric in METRICS:
            values = self.of_one(arm, setting, seed, draw, metric)
            found += [float(values[0]), *interval(values[1:])]
        return Row(arm, seed, *astuple(setting), draw, len(probabilities), *found)


def write_csv(path: Path, rows: Sequence[object], kind: type) -> None:
    """Write dataclass rows as CSV, unrounded; None is empty."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([each.name for each in fields(kind)])
    writer.writerows(astuple(row) for row in rows)
    write_atomically(Path(path), lambda stream: stream.write(text.getvalue().encode("utf-8")))
