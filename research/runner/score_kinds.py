"""From the units of one trained model to its score; of all units, and of many weightings of them at once."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedmed.errors import DataError
from fedmed.settings.yaml_model import YamlModel
from fedmed.training.auroc import class_aurocs, macro_mean

Floats = NDArray[np.float64]
PREFIX = "p_"  # of a class's metric in the score table


class ScoreKind(YamlModel):
    """Kind of score: how units become a number. A table names its scores, each by the path of such a class."""

    label: str  # what a person reads
    unit: str = "case"  # what is scored, in the singular: case, image, patient or video
    limits: ClassVar[tuple[float, float]] = (-np.inf, np.inf)  # between which every score lies

    @abstractmethod
    def weighted(self, values: dict[str, Floats], labels: NDArray[np.str_], weights: Floats) -> Floats:
        """The score of the units as often as each of R weightings says, (R,); NaN where one has none.

        Args:
            values: metric -> (n,), a value a unit.
            labels: (n,), names of the units' classes; empty text where there are no classes.
            weights: (R, n), how often each unit counts, 0 or more.

        Raises:
            DataError: the metrics that it needs are not there or do not fit the labels.
        """


class UnitMean(ScoreKind):
    """Mean of a ``metric`` of the score table that every unit has by itself, such as the Dice of a case."""

    metric: str

    def weighted(self, values: dict[str, Floats], labels: NDArray[np.str_], weights: Floats) -> Floats:
        if self.metric not in values:
            raise DataError(f"the scores have no metric '{self.metric}'; they have {', '.join(values)}")
        return np.asarray(weights @ values[self.metric] / weights.sum(1))


class Accuracy(ScoreKind):
    """Share of the units whose most probable class is theirs."""

    limits = (0.0, 1.0)

    def weighted(self, values: dict[str, Floats], labels: NDArray[np.str_], weights: Floats) -> Floats:
        probabilities, truth = class_table(values, labels)
        return np.asarray(weights @ (probabilities.argmax(1) == truth).astype(float) / weights.sum(1))


class AurocOfClasses(ScoreKind):
    """Mean over the classes of the AUROC of one against the rest.

    A class that a weighting has no unit of, or nothing else than, is left out of it; NaN where that leaves none.
    """

    limits = (0.0, 1.0)

    def weighted(self, values: dict[str, Floats], labels: NDArray[np.str_], weights: Floats) -> Floats:
        return macro_mean(class_aurocs(*class_table(values, labels), weights))


def class_table(values: dict[str, Floats], labels: NDArray[np.str_]) -> tuple[Floats, NDArray[np.intp]]:
    """Probabilities (n, C) and class indices (n,).

    Raises:
        DataError: no probabilities, a label that is not a class, or a probability that is not a number.
    """
    classes = [name.removeprefix(PREFIX) for name in values if name.startswith(PREFIX)]
    if not classes or not set(labels) <= set(classes):
        raise DataError(f"the labels {sorted(set(labels))} do not fit the classes {classes} of the probabilities")
    probabilities = np.stack([values[PREFIX + name] for name in classes], axis=1)
    if not np.isfinite(probabilities).all():
        raise DataError("a probability is not a finite number; did the training diverge?")
    return probabilities, pd.Index(classes).get_indexer(labels)
