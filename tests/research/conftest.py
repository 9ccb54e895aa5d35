import pickle

import numpy as np
import pytest

from research.runner import work_queue
from research.runner.case_claims import BetterByCases
from research.runner.parallel import Failure
from research.runner.patient_claims import BetterByPatients
from research.runner.score_kinds import Accuracy, AurocOfClasses, UnitMean
from research.runner.score_table import joined, score_frame
from research.runner.table_claim import Evidence
from research.runner.yaml_models import build

DICE = UnitMean(label="Dice", metric="dice")
IMAGES = {"accuracy": Accuracy(label="accuracy", unit="image"), "auroc": AurocOfClasses(label="AUROC", unit="image")}
LABELS = np.array([0, 1] * 30)


@pytest.fixture
def runs():
    """Make scores of one arm at one site from a matrix of Dice, a row a seed, a column a case."""

    def make(arm, dice, site="site_1", list="test", model="last"):
        names = ["mean"] if list == "valid" else [f"case_{i:02}" for i in range(len(dice[0]))]
        of_seed = [zip(names, row, strict=True) for row in dice]
        rows = [{"seed": s, "unit": n, "value": v} for s, row in enumerate(of_seed) for n, v in row]
        return score_frame(rows, arm=arm, site=site, list=list, model=model, metric="dice")

    return make


@pytest.fixture
def evidence():
    """Evidence of claims about cases, of tables of scores."""
    return lambda *frames: Evidence(joined(frames), {"dice": DICE}, {f"site_{i}": f"site_{i}" for i in range(3)})


@pytest.fixture
def case_claim():
    def make(better, worse, *sites, id=1, report=False, **more):
        line = {"better": better, "worse": worse, "sites": [*sites] or ["site_1"], **more}
        return build(BetterByCases, {"id": id, "text": "better", "holds": [line], "report": report}, "claim")

    return make


@pytest.fixture
def patient_claim():
    def make(better, worse, id=1, report=False, **more):
        line = {"better": better, "worse": worse, "protocol": "linear", "fractions": [1], "scores": ["auroc"], **more}
        return build(BetterByPatients, {"id": id, "text": "t", "holds": [line], "report": report}, "claim")

    return make


def predictions(arm, seed, error, draw="0", **more):
    """Probabilities of two classes for 60 images of 30 patients, as good as ``error`` is small."""
    noise = np.random.default_rng(100 * seed + 7 * len(arm) + int(draw)).normal(0, error, 60)
    p = 1 / (1 + np.exp(-(LABELS * 2 - 1 + noise)))
    rows = {
        "unit": [f"image_{i}" for i in range(60)] * 2,
        "metric": ["p_normal"] * 60 + ["p_ill"] * 60,
        "value": [*(1 - p), *p],
        "patient": [f"p{i // 2}" for i in range(60)] * 2,
        "label": [("normal", "ill")[label] for label in LABELS] * 2,
    }
    keys = {"site": "north", "list": "internal", "model": "last", "task": "lungs", "protocol": "linear"}
    return score_frame(rows, arm=arm, seed=seed, draw=draw, **{**keys, "fraction": 1.0, **more})


@pytest.fixture
def image_evidence():
    """Evidence of claims about images, from {arm: error} and three seeds, with rounds if there are any."""

    def make(errors, draws=("0",), rounds=()):
        frames = [predictions(arm, seed, e, d) for arm, e in errors.items() for seed in range(3) for d in draws]
        return Evidence(joined([*frames, *rounds]), IMAGES, {})

    return make


@pytest.fixture
def in_this_process(monkeypatch):
    """Work without processes, whose start would be most of a test. Returns the names of what was worked on."""
    worked = []

    def work_on(items, jobs, do, dask):
        for item in items:
            worked.append(item.name)
            try:
                result = do(pickle.loads(pickle.dumps(item)))  # as a process gets it
            except RuntimeError as error:
                result = Failure(str(error))
            yield item, result

    monkeypatch.setattr(work_queue, "in_processes", work_on)
    return worked


@pytest.fixture
def undrawn(monkeypatch):
    """Figures of tables of labels are made and not drawn, which takes most of their time."""
    for module in ("research.tables.markert", "research.runner.label_tables"):
        monkeypatch.setattr(f"{module}.png", lambda figure: b"not drawn")


@pytest.fixture(autouse=True)
def quick_figures(unarranged_figures):
    """Draw figures without arranging their parts; no test here looks at where they are."""
