"""Gain of one hospital over the model that it trained alone, on its own test list; its files never leave it."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedmed.bundles.bundle import Bundle
from fedmed.errors import FedMedError
from fedmed.methods.method import Method
from fedmed.reports.hospital_page import PAGE, write_hospital_page
from fedmed.reports.hospital_tests import TOGETHER, ComparedTests, compared_tests
from fedmed.reports.run import read_cases
from fedmed.reports.run_contents import Run, Site
from fedmed.settings.site import SiteConfig

log = logging.getLogger("fedmed.site")


def hospital_gain(
    site: SiteConfig,
    folder: Path,
    bundle: Bundle,
    method: Method,
    study: Mapping[str, Any],
    images: Callable[[int], Any] | None = None,
) -> dict[str, float]:
    """Compare the selected model with the one that the site trained alone, case by case, and write the site's page.

    ``gain.html`` lies in the folder and is never sent. That it cannot be written is said in the log, and no more.

    Args:
        site: whose test list it is.
        folder: the job's folder at the site, with the tests of both models.
        bundle, method, study: of the job; of the study the plain values that are not the default.
        images: gives an image of the testing list by its place, from 0, as the network receives it; for the page.

    Returns:
        ``gain``: the score of the selected model less that of the site's own, both of all cases together, where these
        have one; ``gain_patients``; where enough patients tell, ``gain_low`` and ``gain_high``, the 95 % interval,
        ``gain_error``, its standard error, and ``gain_p``, two-sided; where every case has a score, ``gain_better``:
        patients whose mean is better.
    """
    tests = compared_tests(_run(site, folder, bundle, method, study), folder)
    try:
        write_hospital_page(folder / PAGE, site, tests, images)
    except (OSError, FedMedError) as error:  # the numbers are there whatever becomes of the page
        log.error("%s: the page on what this hospital gains is not written: %s: %s", site.site, folder / PAGE, error)
    return _numbers(tests) if tests else {"gain_patients": 0}


def _numbers(tests: ComparedTests) -> dict[str, float]:
    paired = tests.paired()
    if paired is None:
        return {"gain_patients": 0}
    numbers: dict[str, float] = {"gain": paired.ours - paired.theirs, "gain_patients": paired.n_patients}
    if not np.isfinite(numbers["gain"]):  # cases of one class have no AUROC
        del numbers["gain"]
    if paired.low is not None and paired.high is not None and paired.p is not None:
        numbers |= {"gain_low": paired.low, "gain_high": paired.high, "gain_p": paired.p}
        numbers |= {} if paired.error is None else {"gain_error": paired.error}
    return numbers | ({"gain_better": tests.better} if tests.run.score.spread else {})


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
