"""Page for a hospital: what it gains over the model that it trained alone, case by case; it never leaves it."""

from pathlib import Path
from typing import Any

from markupsafe import Markup

from fedmed.data.datalist import list_entries
from fedmed.errors import DataError
from fedmed.files import write_atomically
from fedmed.reports import plots
from fedmed.reports.gain import BETTER, NONE_SEEN, TOO_FEW, WORSE, Gain, signed
from fedmed.reports.hospital_cases import most_changed, patients_chart
from fedmed.reports.hospital_groups import LEAST, GroupTables, group_tables
from fedmed.reports.hospital_models import model_table, own_layers
from fedmed.reports.hospital_tests import ALONE, TOGETHER, ComparedTests
from fedmed.reports.run_report import Images, report_of
from fedmed.reports.sheet import Sheet, SheetFigure, fill_template
from fedmed.reports.words import count, fixed
from fedmed.settings.site import SiteConfig

PAGE = "gain.html"
KIND = "What this hospital gains by training with others"
CHANCE = {
    BETTER: "Better off with the others: chance alone hardly explains the difference.",
    WORSE: "Worse off with the others: chance alone hardly explains the difference.",
    NONE_SEEN: "No difference detected: what is seen can be chance.",
    TOO_FEW: "Too few patients to tell: what is seen can be chance.",
}
NOT_FOR = (
    "This page is not a medical device and says nothing about how a patient should be treated. It compares two models "
    "of a research study by cases whose answer is known; on other cases, scanners or hospitals both can be worse."
)
STAYS = (
    "The page and all single cases stay in this hospital's folder of the job. What was sent are numbers of all cases "
    "together: the scores of the models that were tested, their difference with its interval, how many patients there "
    "are and how many are better off; fewer where the hospital's own settings keep them back."
)
INTERVAL = (
    "The 95 % interval says how far the difference could move by the choice of patients alone: each patient is left "
    "out once, with all cases (jackknife). An interval that holds 0 proves neither a difference nor that there is none."
)
GROUPS = (
    "Of many groups some differ by chance alone: about one interval in twenty leaves 0 out where there is no "
    "difference. A group is a reason to look, not a result."
)


def write_hospital_page(
    path: Path, site: SiteConfig, tests: ComparedTests | None, images: Images | None = None
) -> None:
    """Write the page.

    Args:
        path: of the page.
        site: whose test list it is.
        tests: of its models; None where none of its cases was scored by both.
        images: gives the image of a case that is called one class, or a frame of a video that has masks.

    Raises:
        OSError: the disk is full or the folder cannot be written.
        FedMedError: a file of the tests is damaged.
    """
    values: dict[str, Any] = {"models": None, "cases": {}, "groups": GroupTables([], [])}
    values |= _values(site, tests, path.parent, images) if tests else {"sheet": _empty(site)}
    text = fill_template("hospital.html.j2", **values)
    write_atomically(path, lambda stream: stream.write(text.encode()))


def _values(site: SiteConfig, tests: ComparedTests, folder: Path, images: Images | None) -> dict[str, Any]:
    gain = tests.gain(site.site)
    label, alone = tests.case_scores(ALONE)
    pairs = tests.of_patients(alone), tests.of_patients(tests.case_scores(TOGETHER)[1])
    with plots.style():
        chart = Markup(plots.svg(patients_chart(label, *pairs), "patients"))
        cases = most_changed(tests, folder, images)
    better = tests.better
    sheet = Sheet(
        site.site,
        KIND,
        summary(tests, gain, better, label),
        _facts(tests, gain, better),
        [],
        notices=_notices(tests),
        closing=_closing(tests, gain),
        figures=[SheetFigure("Patient by patient", _chart_note(label), chart)],
    )
    try:
        groups = group_tables(tests, list_entries(site.datalist, "testing"), site.data_root)
    except DataError as error:
        groups = GroupTables([], [str(error)])
    report = report_of(tests.run)
    drawn = any(case.picture for shown in cases.values() for case in shown)
    return {
        "sheet": sheet,
        "models": model_table(tests),
        "cases": cases,
        "score": label,
        "groups": groups,
        "groups_note": GROUPS,
        "least": LEAST,
        "case_note": report.case_note if drawn else "",
        "legend": report.case_legend(tests.run) if drawn else [],
    }


def summary(tests: ComparedTests, gain: Gain, better: int, label: str) -> str:
    """Say in a few sentences how both models score, for how many patients the selected one is better, and whether that
    can be chance.

    Args:
        gain: of all cases.
        better: patients whose cases have a better mean.
        label: of the score of a case.
    """
    score = tests.run.score.label
    scores = f"{score} together {fixed(gain.ours, 2)}, alone {fixed(gain.theirs, 2)}"
    higher = "better" if label == score else f"a higher {label}"
    first = f"{scores}: {higher} for {better} of {count(gain.n_patients, 'patient')}."
    if gain.difference is None:
        return f"{scores}. These cases are too few or of one class, so that there is no {score} to compare."
    if gain.low is None or gain.high is None:
        few = (
            f"The difference is {signed(gain.difference)}; of {count(gain.n_patients, 'patient')} there is no interval."
        )
        return f"{first} {few} {CHANCE[TOO_FEW]}"
    if gain.low == gain.high == 0:
        return f"{first} Both models do the same."
    return f"{first} The difference is {signed(gain.difference)} (95 % interval {gain.span}). {CHANCE[gain.verdict]}"


def _facts(tests: ComparedTests, gain: Gain, better: int) -> list[tuple[str, str]]:
    needed = [("patients it would take to tell", f"about {gain.needed:,}")] if gain.cannot_tell else []
    return [
        ("cases", str(gain.n_cases)),
        ("patients", str(gain.n_patients)),
        ("patients with a better mean", str(better)),
        (f"difference in {tests.run.score.label}", signed(gain.difference)),
        *needed,
    ]


def _notices(tests: ComparedTests) -> list[str]:
    missing = tests.listed - len(tests.patients)
    if not missing:
        return []
    return [f"{count(missing, 'case')} of the test list are not compared: not every model has a score of them."]


def _chart_note(label: str) -> str:
    return (
        f"A dot is a patient, with the mean {label} of the cases. Above the dashed line the model trained together is "
        "better, below it the one trained alone."
    )


def _closing(tests: ComparedTests, gain: Gain) -> list[tuple[str, list[str]]]:
    compared = (
        "Alone is a model that was trained at this hospital, on its own images only. Together is the model of the "
        "federation: with the same start, settings and number of steps, but averaged with the other hospitals' after "
        f"each round. Both were tested on the same {gain.cases} of this hospital's test list, on which it "
        "trains nothing. Of the models alone after each round it took the one that its own validation list scored "
        "best, or the last one where there is no such list."
    )
    private = "Layers that only this hospital has, and trained itself, are part of the model called together."
    paragraphs = [compared, private] if own_layers(tests) else [compared]
    return [("What was compared", paragraphs), ("Chance", [INTERVAL]), *_limits()]


def _limits() -> list[tuple[str, list[str]]]:
    return [("What this page is not", [NOT_FOR]), ("Where it stays", [STAYS])]


def _empty(site: SiteConfig) -> Sheet:
    text = "No case of the test list has a score by both models, so there is nothing to compare."
    return Sheet(site.site, KIND, text, [], [], closing=_limits())
