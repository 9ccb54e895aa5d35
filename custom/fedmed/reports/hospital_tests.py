"""Tests of a hospital's models by its own list: the cases that all of them scored, side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedmed.reports.gain import LABELLED, PATIENT, Gain, PairedScores, common_cases, paired_scores
from fedmed.reports.roc import probabilities
from fedmed.reports.run import read_cases
from fedmed.reports.run_contents import Run
from fedmed.reports.run_files import column
from fedmed.reports.run_report import report_of

ALONE, TOGETHER = "evaluation_alone", "evaluation"  # folders of a site's tests
OTHERS = ("evaluation_first", "evaluation_last", "evaluation_own", "evaluation_released")
PLACE = "place"  # of a case in the testing list, from 0
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ComparedTests:
    """Tests of two models or more on the same cases.

    Attributes:
        run: as the hospital alone knows it.
        needed: columns of ``cases.csv`` without whose numbers a case has no score.
        tables: folder -> the cases, in all the same and in the same order, as text, with their places in the list.
        listed: how many cases the testing list has.
    """

    run: Run
    needed: Sequence[str]
    tables: Mapping[str, pd.DataFrame]
    listed: int

    @property
    def patients(self) -> NDArray[np.str_]:
        """Patient of each case, (n,)."""
        return self.tables[TOGETHER][PATIENT].to_numpy(str)

    @property
    def better(self) -> int:
        """Patients whose mean is higher by the selected model than by the one trained alone."""
        alone, together = (self.case_scores(model)[1] for model in (ALONE, TOGETHER))
        return int((self.of_patients(together - alone) > 0).sum())

    def paired(self, model: str = TOGETHER, rows: NDArray[np.bool_] | None = None) -> PairedScores | None:
        """Compare a model with the one trained alone.

        Args:
            model: its folder.
            rows: (n,), of which cases; None = all.
        """
        chosen = np.ones(len(self.patients), bool) if rows is None else rows
        ours, theirs = self.tables[model][chosen], self.tables[ALONE][chosen]
        return paired_scores(ours, theirs, self.needed, partial(report_of(self.run).weighted, self.run))

    def gain(self, name: str, model: str = TOGETHER, rows: NDArray[np.bool_] | None = None) -> Gain:
        """Return the same as a row of a table; its scores are None where such cases have none.

        Args:
            name: of the model or of the cases.
            model, rows: as of :meth:`paired`.
        """
        paired = self.paired(model, rows)
        if paired is None:
            return Gain(name, LABELLED, None, None)
        ours, theirs = (value if np.isfinite(value) else None for value in (paired.ours, paired.theirs))
        counts = {"n_cases": paired.n_cases, "n_patients": paired.n_patients}
        return Gain(name, LABELLED, ours, theirs, paired.low, paired.high, error=paired.error, **counts)

    def case_scores(self, model: str) -> tuple[str, Floats]:
        """Return the name of a score that each case has, the higher the better, and its values (n,), 0 to 1.

        Of a classifier, whose score only a whole list has, it is the probability of the true class.
        """
        score, cases = self.run.score, self.tables[model]
        if score.spread and score.name in cases:
            return score.label, column(cases, score.name)
        outputs = probabilities(cases)
        if outputs is None:
            return score.label, np.full(len(cases), np.nan)
        return "probability of the true class", outputs.values[np.arange(len(cases)), outputs.labels]

    def of_patients(self, values: Floats) -> pd.Series:
        """Mean of values (n,) of cases for each patient, by name."""
        return pd.Series(values).groupby(self.patients).mean()


def compared_tests(run: Run, folder: Path) -> ComparedTests | None:
    """Read the tests that lie in the job's folder of a site; None where no case was scored by both.

    Raises:
        FedMedError: a table is damaged.
    """
    tables = {name: read_cases(folder / name) for name in (ALONE, TOGETHER, *OTHERS)}
    needed, listed = report_of(run).case_columns(run, tables[TOGETHER]), len(tables[TOGETHER])
    known = {
        name: cases.assign(**{PLACE: range(len(cases))})
        for name, cases in tables.items()
        if needed and set(needed) <= set(cases)
    }
    if not {ALONE, TOGETHER} <= set(known):
        return None
    common = dict(zip(known, common_cases(list(known.values()), needed), strict=True))
    return ComparedTests(run, needed, common, listed) if len(common[ALONE]) else None
