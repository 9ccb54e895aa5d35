"""The probabilities of a classification's test cases, where they are here."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedmed.errors import DataError
from fedmed.reports.run_contents import Run
from fedmed.reports.run_files import column

PREFIX = "p_"  # of a class's column in cases.csv


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


def probabilities(cases: pd.DataFrame) -> Probabilities | None:
    """Take ``cases.csv``; None where it has no classes. Cases without a finite probability are left out.

    Raises:
        DataError: a label that is not one of the classes.
    """
    heads = [name for name in cases if name.startswith(PREFIX)]
    if not heads:
        return None
    classes = [name.removeprefix(PREFIX) for name in heads]
    values = np.column_stack([column(cases, head) for head in heads])
    names = cases["label"] if "label" in cases else pd.Series("", cases.index)
    labels = pd.Index(classes).get_indexer(names)
    if (labels < 0).any():
        unknown = names[labels < 0].min()
        raise DataError(f"cases.csv has the label '{unknown}', but the classes {', '.join(classes)}; evaluate again")
    known = np.isfinite(values).all(axis=1)
    return Probabilities(tuple(classes), labels[known], values[known])


def tested(run: Run) -> dict[str, Probabilities]:
    """Site -> the probabilities of its cases, of the sites whose cases are here."""
    known = ((site.name, probabilities(site.cases)) for site in run.sites)
    return {name: found for name, found in known if found is not None and len(found.labels)}
