"""Gain of one hospital over the model that it trained alone, on its own test list; its files never leave it."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedmed.bundles.bundle import Bundle
from fedmed.methods.method import Method
from fedmed.reports.gain import PATIENT, PairedScores, paired_scores
from fedmed.reports.run import read_cases
from fedmed.reports.run_contents import Run, Site
from fedmed.reports.run_files import column
from fedmed.reports.run_report import report_of
from fedmed.settings.site import SiteConfig

ALONE, TOGETHER = "evaluation_alone", "evaluation"  # folders of a site's tests


def hospital_gain(
    site: SiteConfig, folder: Path, bundle: Bundle, method: Method, study: Mapping[str, Any]
) -> dict[str, float]:
    """Compare the selected model with the one that the site trained alone, case by case.

    Args:
        site: whose test list it is.
        folder: the job's folder at the site, with the tests of both models.
        bundle, method, study: of the job; of the study the plain values that are not the default.

    Returns:
        ``gain``: the score of the selected model less that of the site's own, both of all cases together;
        ``gain_patients``; where enough patients tell, ``gain_low`` and ``gain_high``, the 95 % interval,
        ``gain_error``, its standard error, and ``gain_p``, two-sided; where every case has a score, ``gain_better``:
        patients whose mean is better.
    """
    run = _run(site, folder, bundle, method, study)
    together, alone = read_cases(folder / TOGETHER), read_cases(folder / ALONE)
    needed = report_of(run).case_columns(run, together)
    if not needed or not set(needed) <= set(alone):
        return {"gain_patients": 0}
    paired = paired_scores(together, alone, needed, partial(report_of(run).weighted, run))
    if paired is None:
        return {"gain_patients": 0}
    better = {"gain_better": better_patients(together, alone, needed[0])} if run.score.spread else {}
    return {**_numbers(paired), **better}


def better_patients(ours: pd.DataFrame, theirs: pd.DataFrame, score: str) -> int:
    """Patients whose mean score is higher in the first of two tables of the same cases."""
    difference = column(ours, score) - column(theirs, score)
    of_patient = pd.Series(difference).groupby(ours[PATIENT].to_numpy()).mean()
    return int(np.sum(of_patient.to_numpy() > 0))


def _numbers(paired: PairedScores) -> dict[str, float]:
    numbers: dict[str, float] = {"gain": paired.ours - paired.theirs, "gain_patients": paired.n_patients}
    if paired.low is not None and paired.high is not None and paired.p is not None:
        numbers |= {"gain_low": paired.low, "gain_high": paired.high, "gain_p": paired.p}
        numbers |= {} if paired.error is None else {"gain_error": paired.error}
    return numbers


def _run(site: SiteConfig, folder: Path, bundle: Bundle, method: Method, study: Mapping[str, Any]) -> Run:
    """The run as this site alone knows it."""
    return Run(
        folder=folder,
        job=str(study.get("name", "")),
        bundle=bundle.name,
        overlays=list(bundle.overlays),
        seed=None,
        total_rounds=int(study.get("rounds", 0)),
        sites=[Site(site.site, "supervised", folder=folder, cases=read_cases(folder / TOGETHER))],
        rounds=[],
        result=None,
        started="",
        config={"study": dict(study)},
        versions={},
        hardware={},
        resumed={},
        score=bundle.score,
        kind=bundle.kind or "",
        method=method,
        classes=list(bundle.classes),
    )
