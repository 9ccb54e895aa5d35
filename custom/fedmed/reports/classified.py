"""Read what a classification leaves at a site: a picture of three cases, and the probabilities of all."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedmed.errors import DataError
from fedmed.reports.run_files import column

KEYS = ("image", "heat", "probabilities", "classes", "label", "case")
PREFIX = "p_"  # of a class's column in cases.csv


@dataclass(frozen=True)
class Classified:
    """One case: image and heat-map (H, W) float in 0..1, and a probability for each class.

    The heat-map is of the class with the highest probability.
    """

    kind: str
    case: str
    image: np.ndarray
    heat: np.ndarray
    probabilities: dict[str, float]
    label: str

    @property
    def predicted(self) -> str:
        """The class with the highest probability."""
        return max(self.probabilities, key=self.probabilities.__getitem__)

    @property
    def right(self) -> bool:
        """Whether that is the true class."""
        return self.predicted == self.label


def read_classified(path: Path, kind: str) -> Classified:
    """Read ``best.npz`` and the like; DataError for a damaged file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            image, heat, probabilities, classes, label, case = (file[key] for key in KEYS)
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"cannot read the picture {path}: {error}; evaluate the site again") from error
    if image.ndim != 2 or heat.shape != image.shape or probabilities.shape != classes.shape or classes.ndim != 1:
        raise DataError(f"{path}: image and heat-map, or classes and probabilities, differ in shape; evaluate again")
    names = [str(name) for name in classes]
    # The label may be written as the class's place.
    truth = names[int(label)] if np.issubdtype(label.dtype, np.integer) else str(label)
    image, heat = (np.nan_to_num(array.astype(np.float64)).clip(0, 1) for array in (image, heat))
    return Classified(kind, str(case), image, heat, dict(zip(names, map(float, probabilities), strict=True)), truth)


@dataclass(frozen=True)
class Probabilities:
    """All cases of a site: labels (n,) int, probabilities (n, C), and the names of the classes."""

    classes: tuple[str, ...]
    labels: np.ndarray
    values: np.ndarray

    @property
    def predicted(self) -> np.ndarray:
        """Place of the class with the highest probability, (n,) int."""
        return self.values.argmax(axis=1)


def probabilities(rows: list[dict[str, str]]) -> Probabilities | None:
    """Take the rows of ``cases.csv``; None where it has no classes. Cases without a finite probability are left out.

    Raises:
        FedMedError: the column of the labels is missing.
        DataError: a label that is no class.
    """
    heads = [name for name in rows[0] if name.startswith(PREFIX)] if rows else []
    if not heads:
        return None
    classes = tuple(name.removeprefix(PREFIX) for name in heads)
    values = np.array([column(rows, head) for head in heads], dtype=np.float64).T
    if unknown := {row.get("label", "") for row in rows} - set(classes):
        raise DataError(
            f"cases.csv has the label '{min(unknown)}', but the classes {', '.join(classes)}; evaluate again"
        )
    labels = np.array([classes.index(row["label"]) for row in rows])
    known = np.isfinite(values).all(axis=1)
    return Probabilities(classes, labels[known], values[known])
