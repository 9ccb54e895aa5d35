"""Tables and claims of synthetic scores are those of the two frames that this one took the place of, to nine digits.

``numbers_before`` holds what they wrote. The numbers of research/results were made by them too. Intervals and p over
the patients of images are by the jackknife since.
"""

import csv
import re
from pathlib import Path

import pytest
import yaml

from research.runner.experiment_table import load_table, only
from research.runner.reproduction import write_table_files
from research.runner.score_table import joined, score_frame

from .synthetic_scores import (
    ARMS,
    CLASSES,
    IMAGE_ARMS,
    case_claims,
    case_rows,
    image_claims,
    predictions,
    rounds,
    truth,
)
from .table_yaml import OF_IMAGES, ROOM, SITE_TABLE

NUMBER = r"(\d+\.\d+(?:e-?\d+)?)"
BEFORE = Path(__file__).parent / "numbers_before"
GROUPS = {"pair": "G", "a|b": "G", "same": "H", "x0": "H"}
SITES = {f"site_{i}": f"image_{i}" for i in (1, 2, 3)}


@pytest.fixture(autouse=True)
def undrawn_tables(monkeypatch):
    """Figures are made and not drawn: what was written before holds none."""
    for layout in ("share_columns", "site_columns"):
        monkeypatch.setattr(f"{ROOM}.{layout}.png", lambda figure: b"not drawn")


def compared(folder, name, content, frame, arms, sites):
    """Write all files from the scores alone; every one of before must be there and the same."""
    (folder / f"{name}.yaml").write_text(yaml.safe_dump({"data": "demo", "seeds": [0], **content}, sort_keys=False))
    table = only(load_table(folder / f"{name}.yaml"), arms)
    write_table_files(folder, table, "demo", sites, frame)
    before = sorted((BEFORE / name).iterdir())
    assert len(before) >= 3
    for path in before:
        ours, theirs = (re.split(NUMBER, file.read_text("utf-8")) for file in (folder / path.name, path))
        assert ours[::2] == theirs[::2], path.name  # the words; the numbers may differ by how a processor rounds
        assert [float(n) for n in ours[1::2]] == pytest.approx([float(n) for n in theirs[1::2]], rel=1e-9), path.name


@pytest.mark.parametrize(
    ("name", "rows", "layout"),
    [
        ("cases_3", {"seeds": 3, "cases": 14}, {"baseline": "alone"}),
        ("cases_ties", {"seeds": 6, "cases": 20, "ties": True}, {"baseline": "alone"}),
        ("cases_many", {"seeds": 5, "cases": 70}, {"x_label": "rate", "x_log": True}),
    ],
)
def test_tables_of_cases(tmp_path, name, rows, layout):
    columns = ("arm", "seed", "site", "list", "model", "unit", "value")
    scores = [dict(zip(columns, row, strict=True)) for row in case_rows(**rows)]
    arms = {arm: {"group": GROUPS.get(arm, ""), "training": {"train": {"site_1": "supervised"}}} for arm in ARMS}
    arms["x0"]["x"], arms["x1"]["x"] = 0.1, 1.0
    content = {**SITE_TABLE, "title": "Made up", "test": list(SITES), "arms": arms}
    content |= {"claim_kind": f"{ROOM}.case_claims.BetterByCases", "claims": case_claims()}
    content["layout"] = {**SITE_TABLE["layout"], **layout}
    compared(tmp_path, name, content, joined([score_frame(scores, metric="dice")]), list(ARMS), SITES)


@pytest.mark.parametrize(
    ("name", "seeds", "ties"), [("images_3", 3, False), ("images_ties", 2, True)], ids=["three seeds", "ties, no r"]
)
def test_tables_of_images(tmp_path, name, seeds, ties):
    arms = [arm for arm in IMAGE_ARMS if not arm.startswith("local: ")]
    settings = {arm: {"group": "G" if arm.startswith("Fed") else "", "encoder": {}} for arm in (*arms, "gone")}
    content = {
        "title": "Images",
        "chain": {"encoder": {"path": f"{ROOM}.untrained_encoders.RandomEncoder"}},
        "scores": OF_IMAGES,
        "layout": {
            "path": f"{ROOM}.share_columns.ShareColumns",
            "protocols": {"linear": "linear classifier on frozen features", "finetune": "fine-tuning"},
            "external": ["auroc"],
            "figure": ["random", "FedMoCo"],
        },
        "arms": settings,
        "claim_kind": f"{ROOM}.patient_claims.BetterByPatients",
        "claims": image_claims(),
    }
    trained = predictions(seeds, ties)
    frames = [image_scores(trained)]
    frames += [round_scores(arm, seed, not ties) for arm in ("FedAvg", "FedMoCo") for seed in range(seeds)]
    compared(tmp_path, name, content, joined(frames), arms, {})
    models = list(csv.DictReader((tmp_path / "models.csv").open()))
    assert len(models) == len(trained)
    assert all(float(row["auroc_low"]) <= float(row["auroc"]) <= float(row["auroc_high"]) for row in models)


def image_scores(models):
    """One table of all models: to make one of each and join them takes most of a test."""
    at = ("site", "task", "list", "protocol", "fraction", "model")
    rows = {name: [] for name in ("arm", "seed", "draw", *at, "unit", "metric", "value", "patient", "label")}
    for arm, seed, (task, kind, *trained), draw, probabilities in models:
        (names, patients, labels), classes = truth(task, kind), CLASSES[task, kind]
        common = {"arm": arm, "seed": seed, "draw": draw, **dict(zip(at, (task, task, kind, *trained), strict=True))}
        units = {
            "unit": names * len(classes),
            "metric": [f"p_{name}" for name in classes for _ in names],
            "value": probabilities.T.ravel().tolist(),
            "patient": patients * len(classes),
            "label": [classes[label] for label in labels] * len(classes),
        }
        for name, values in rows.items():
            values += units[name] if name in units else [common[name]] * probabilities.size
    return score_frame(rows)


def round_scores(arm, seed, similarity):
    images, weights, rsa = rounds(arm, seed, similarity)
    rows = [{"site": node, "unit": "all", "metric": "images", "value": n} for node, n in images.items()]
    for metric, values in (("weight", weights), *([("rsa", rsa)] if similarity else [])):
        rows += [
            {"site": node, "unit": f"{i}", "metric": metric, "value": line[place]}
            for i, line in enumerate(values)
            for place, node in enumerate(images)
        ]
    return score_frame(rows, arm=arm, seed=seed, list="rounds", model="last")
