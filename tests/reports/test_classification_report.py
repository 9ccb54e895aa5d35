"""A run that tells classes apart: its score with an interval, heat-maps, ROC curves and reliability."""

import csv
import shutil
from html import unescape

import numpy as np
import pandas as pd
import pytest

from fedmed.errors import DataError
from fedmed.reports import classification_report, roc
from fedmed.reports.classification_report import read_classified
from fedmed.reports.control_run import read_with_controls
from fedmed.reports.roc import Probabilities, probabilities
from fedmed.reports.run import read_run
from fedmed.reports.run_page import page, write_report
from fedmed.reports.run_report import report_of
from tests.reports import made_runs
from tests.reports.records import AUROC, change, change_rounds, change_test, shown

CLASSES = ("normal", "consolidation", "interstitial")
SITES = {"cxr_metro": "supervised", "cxr_rural": "supervised", "cxr_children": "evaluate"}
N_CASES = 60
JOB = "simulate_job/fedmed"


def film(rng, label):
    """An image that looks a little like a chest film, and heat where its finding is."""
    rows, columns = np.mgrid[0:96, 0:96] / 96.0
    lungs = sum(np.exp(-((((rows - 0.5) / 0.36) ** 2 + ((columns - x) / 0.17) ** 2) ** 2)) for x in (0.3, 0.7))
    image = 0.78 - 0.55 * lungs + 0.05 * np.cos(rows * 60) * lungs + rng.normal(0, 0.015, rows.shape)
    row, column = rng.uniform(0.4, 0.65), rng.choice([0.3, 0.7])
    heat = np.exp(-(((rows - row) / 0.14) ** 2 + ((columns - column) / 0.11) ** 2))
    image += {"normal": 0, "consolidation": 0.4, "interstitial": 0.12}[label] * heat
    return image.clip(0, 1).astype(np.float32), heat.astype(np.float32)


def write_site(folder, rng, skill):
    """cases.csv and pictures of one site; return what it tells the server."""
    evaluation = folder / "evaluation"
    evaluation.mkdir(parents=True)
    labels = np.arange(N_CASES) % 3
    logits = rng.normal(0, 1, (N_CASES, 3)) + skill * np.eye(3)[labels]
    values = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    with (evaluation / "cases.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["case", "label", *(f"p_{name}" for name in CLASSES)])
        for i in range(N_CASES):
            rows.writerow([f"film_{i:03d}", CLASSES[labels[i]], *(f"{p:.6f}" for p in values[i])])
    order = np.argsort(-values[np.arange(N_CASES), labels])
    for kind, place in (("best", 0), ("median", N_CASES // 2), ("worst", -1)):
        i = order[place]
        image, heat = film(rng, CLASSES[labels[i]])
        facts = {"probabilities": values[i], "classes": np.array(CLASSES), "label": CLASSES[labels[i]]}
        np.savez_compressed(evaluation / f"{kind}.npz", image=image, heat=heat, case=f"film_{i:03d}", **facts)
    accuracy, auroc = float((values.argmax(1) == labels).mean()), 0.6 + 0.1 * skill
    return {
        "auroc": auroc,
        "auroc_low": auroc - 0.07,
        "auroc_high": min(1.0, auroc + 0.05),
        "accuracy": accuracy,
        "accuracy_low": accuracy - 0.1,
        "accuracy_high": min(1.0, accuracy + 0.1),
        "n_cases": N_CASES,
    }


def make_run(root, rounds=3, sites=SITES):
    """Write a finished classification run."""
    made_runs.make_run(root, sites=sites, rounds=rounds, refuse=(), site_folders=False)
    rng, trains = np.random.default_rng(3), [name for name, role in sites.items() if role == "supervised"]
    facts = {"kind": "classification", "score": AUROC, "config": {"study": {"steps": 20}}}
    change(root, "run", job="cxr_finetune", bundle="cxr_classification", overlays=["demo", "finetune"], **facts)
    change_rounds(root, lambda _, line: {"sites": {name: as_auroc(values) for name, values in line["sites"].items()}})
    test = {name: write_site(root / name / JOB, rng, 2.4 - 0.5 * i) for i, name in enumerate(sites)}
    closing = {"event": "validated", "task": "validate", "round": rounds - 1, "score": 0.91}
    made_runs.write_lines(root / trains[0] / JOB / "progress.jsonl", [closing])
    change(root, "result", test=test)
    return root


def as_auroc(numbers):
    return {name.replace("dice", "auroc"): value for name, value in numbers.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One finished run that tests only read."""
    return make_run(tmp_path_factory.mktemp("classes") / "run")


def test_page_and_pngs_speak_of_the_score_and_never_of_dice(folder, tmp_path):
    written = write_report(folder, tmp_path)
    html = written.html.read_text()
    for words in ("95 % interval", "Validation AUROC", "mean test AUROC of", "accuracy", "✗ called ", "true class"):
        assert words in html
    assert "dice" not in html.lower() and "axial" not in html.lower()
    assert html.count('class="pair"') == 9
    names = {path.name for path in written.pngs}
    assert {"roc.png", "confusion.png", "test_scores.png", "slices_cxr_rural.png", "curves.png"} <= names


def test_the_servers_own_folder_has_neither_pictures_nor_curves_of_cases(folder, tmp_path):
    shutil.copytree(folder / "server", tmp_path / "run" / "server")
    html = page(read_run(tmp_path / "run"))
    assert "never leave a site" in html
    assert "Reliability" not in html and 'class="pair"' not in html
    assert "0.840" in html  # the AUROC of the first site


def test_the_terminal_has_the_interval_and_the_accuracy_in_80_columns(folder):
    run = read_run(folder)
    text = shown(report_of(run).table(run))
    assert "AUROC on each site's test list" in text and "0.770–0.890" in text and "accuracy" in text
    assert "…" not in text and max(map(len, text.splitlines())) <= 80


def test_sentences_name_the_score(folder):
    run = read_run(folder)
    assert "mean test AUROC of 0.81 at the 2 labelled sites (120 cases) and 0.74 at the" in report_of(run).summary(run)
    assert ("validation AUROC", f"{run.result['best_score']:.3f}") in report_of(run).facts(run)


@pytest.mark.usefixtures("no_charts")
def test_one_class_called_everywhere_is_told_with_its_base_rate(folder, tmp_path):
    """And an AUROC whose interval holds that of guessing; at the site where both are so."""
    copy = shutil.copytree(folder, tmp_path / "run")
    path = copy / "cxr_rural" / JOB / "evaluation/cases.csv"
    same = {"p_normal": "0.900000", "p_consolidation": "0.060000", "p_interstitial": "0.040000"}
    pd.read_csv(path, dtype=str).assign(**same).to_csv(path, index=False)
    change_test(copy, "cxr_rural", auroc=0.5, auroc_low=0.41, auroc_high=0.58)
    run = read_run(copy)
    assert report_of(run).findings(run) == [
        "cxr_rural: the model calls all 60 images 'normal'. 20 of them are (33 %): the accuracy is that of "
        "a model that looks at no image.",
        "The 95 % interval of the AUROC holds 0.5, which guessing gives: cxr_rural 0.410–0.580.",
    ]
    for text in (unescape(page(run)), " ".join(shown(report_of(run).table(run)).split())):
        assert "calls all 60 images 'normal'" in text and "holds 0.5, which guessing gives" in text
    whole = read_run(folder)
    assert report_of(whole).findings(whole) == []


def test_roc_points_take_ties_together():
    labels, values = np.array([1, 0, 1, 0], dtype=bool), np.array([0.9, 0.5, 0.5, 0.1])
    false, true = roc.roc_points(labels, values)
    assert false.tolist() == [0, 0, 0.5, 1] and true.tolist() == [0, 0.5, 1, 1]
    assert np.trapezoid(true, false) == pytest.approx(0.875)  # 3.5 of 4 pairs
    assert roc.roc_points(np.ones(3, dtype=bool), values[:3]) is None


def test_reliability_and_confusion_count_every_case():
    values = np.array([[0.9, 0.1]] * 12 + [[0.4, 0.6]] * 12)
    outputs = Probabilities(("a", "b"), np.array([0] * 15 + [1] * 9), values)
    confidence, share, cases = roc.reliability(outputs)
    assert confidence == pytest.approx([0.6, 0.9]) and share == pytest.approx([0.75, 1.0]) and cases.sum() == 24
    assert roc.confusion_counts(outputs).tolist() == [[12, 3], [0, 9]]


def test_cases_without_a_probability_are_left_out_and_an_unknown_label_is_named():
    rows = [{"case": "x", "label": "a", "p_a": "0.7", "p_b": "0.3"}, {"case": "y", "label": "b", "p_a": "", "p_b": ""}]
    outputs = probabilities(pd.DataFrame(rows))
    assert outputs.classes == ("a", "b") and outputs.labels.tolist() == [0] and outputs.predicted.tolist() == [0]
    with pytest.raises(DataError, match="'c'"):
        probabilities(pd.DataFrame([{**rows[0], "label": "c"}]))
    assert probabilities(pd.DataFrame()) is None and probabilities(pd.DataFrame([{"case": "x", "dice": "1"}])) is None


def test_where_nothing_is_warm_the_image_is_as_it_was(folder):
    picture = next(read_run(folder).sites[0].pictures(read_classified))
    drawn = classification_report.overlay(picture)
    cold = picture.heat < 1e-6
    assert drawn[cold] == pytest.approx(np.repeat(picture.image[cold][:, None], 3, axis=1), abs=2e-3)
    assert np.ptp(drawn[picture.heat > 0.9], axis=1).min() > 0.2  # coloured
    lightness = classification_report.RAMP(np.linspace(0, 1, 20))[:, :3] @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(lightness) > 0).all()


def test_a_label_may_be_a_place_and_a_damaged_picture_is_named(folder, tmp_path):
    arrays = dict(np.load(folder / "cxr_metro" / JOB / "evaluation/best.npz"))
    np.savez(tmp_path / "best.npz", **{**arrays, "label": np.int64(2)})
    assert read_classified(tmp_path / "best.npz", "best").label == "interstitial"
    np.savez(tmp_path / "best.npz", **{**arrays, "heat": arrays["heat"][:5]})
    with pytest.raises(DataError, match=r"best\.npz"):
        read_classified(tmp_path / "best.npz", "best")


@pytest.mark.usefixtures("no_charts")
def test_a_gain_of_an_auroc_is_of_the_probabilities_and_of_patients(tmp_path):
    """The control calls 7, 7 and 6 of 20 cases of each class by the next one. A class with a share t of its cases above
    the threshold and a share f of the others has the AUROC (1 + t - f) / 2: t = 13/20, 13/20, 14/20 and
    f = 6/40, 7/40, 7/40 make 0.75, 0.7375 and 0.7625, on average 0.75.
    """
    sites = {"cxr_metro": "supervised", "cxr_rural": "unsupervised"}
    run = make_run(tmp_path / "run", sites=sites)
    control = make_run(run / "control", sites={"cxr_metro": "supervised", "cxr_rural": "evaluate"})
    for place, swapped in ((run, 0), (control, 20)):
        evaluation = place / "cxr_rural" / JOB / "evaluation"
        table = pd.read_csv(evaluation / "cases.csv")
        heads = [f"p_{name}" for name in CLASSES]
        table[heads] = 0.1 + 0.7 * np.eye(3)[np.arange(N_CASES) % 3]
        table.loc[: swapped - 1, heads] = np.roll(table.loc[: swapped - 1, heads].to_numpy(), 1, axis=1)
        table.to_csv(evaluation / "cases.csv", index=False)
        owners = pd.DataFrame({"case": table["case"], "patient": [f"P{n // 2}" for n in range(N_CASES)]})
        owners.to_csv(evaluation / "patients.csv", index=False)
        row = {"auroc": 0.5, "n_cases": 61} if swapped else {"auroc": 1.0}  # one more case
        change_test(place, "cxr_rural", **row)
    gain = next(gain for gain in read_with_controls(run).steps[0].gains if gain.name == "cxr_rural")
    assert (gain.n_cases, gain.n_patients, gain.ours, gain.theirs) == (60, 30, 1.0, pytest.approx(0.75))
    assert 0 < gain.low < 0.25 < gain.high < 0.5
    html = page(read_with_controls(run))
    assert "AUROC 1.000 with its images, 0.750 without them: +0.250" in html and "over 60 cases of 30 patients" in html
