"""Synthetic scores of synthetic arms: many seeds, ties, missing arms and sites, several draws and rounds."""

import numpy as np

ARMS = ("alone", "pooled", "pair", "a|b", "same", "x0", "x1", "gone")
SITES = ("image_1", "image_2", "image_3")


def case_rows(seeds, cases, ties=False, missing=("gone",), seed=7):
    """(arm, seed, site, list, model, case, dice) of every arm but the missing ones."""
    generator, rows = np.random.default_rng(seed), []
    base = generator.random((len(SITES), cases)) * 0.6 + 0.1
    for place, arm in enumerate(ARMS):
        for run in range(seeds):
            for model in ("selected", "last"):
                shift = 0.0 if arm in ("alone", "same") else 0.04 * place - 0.06
                noise = generator.normal(0, 0.03, base.shape) if arm != "same" else 0
                dice = np.clip(base + shift + noise + 0.01 * run, 0, 1)
                dice = np.round(dice, 1 if ties else 15)
                if arm in missing:
                    continue
                for at, site in enumerate(SITES):
                    if arm == "pair" and site == "image_3":
                        continue
                    if at != 1 or arm in ("alone", "pair", "pooled"):
                        rows.append((arm, run, site, "valid", model, "mean", float(dice[at].mean())))
                    for case in range(cases - 2 * at):
                        rows.append((arm, run, site, "test", model, f"case_{case}", float(dice[at, case])))
    return rows


def case_claims():
    def line(better, worse, *sites, **more):
        return {"better": better, "worse": worse, "sites": list(sites), **more}

    return [
        {"id": 1, "text": "pooled is better", "holds": [line("pooled", "alone", "site_1", "site_2", "site_3")]},
        {"id": "1b", "text": "the other way round", "holds": [line("alone", "a|b", "site_1")]},
        {"id": 2, "text": "selected", "holds": [line("pair", "alone", "site_2", model="selected")]},
        {"id": 3, "text": "valid", "holds": [line("pair", "alone", "site_1", "site_2", list="valid")]},
        {"id": 4, "text": "numbers | only", "report": True, "holds": [line("x1", "x0", "site_1", "site_3")]},
        {"id": 5, "text": "not run", "holds": [line("gone", "x0", "site_1"), line("x1", "x0", "site_1")]},
        {"id": 6, "text": "no scores there", "holds": [line("pair", "x0", "site_3")]},
        {"id": 7, "text": "shared with 4", "holds": [line("x1", "x0", "site_1")]},
        {"id": 8, "text": "equal", "holds": [line("same", "pooled", "site_1"), line("pooled", "alone", "site_1")]},
    ]


TRAINED = (("linear", 0.1, "last"), ("linear", 1.0, "last"), ("finetune", 1.0, "highest"), ("finetune", 1.0, "last"))
SETTINGS = [  # task, test, protocol, fraction, model
    (task, test, *trained)
    for task in ("lungs", "heart")
    for test in ("external", "internal")
    if (task, test) != ("heart", "external")
    for trained in TRAINED
]
CLASSES = {("lungs", "internal"): ("normal", "bacteria", "virus"), ("lungs", "external"): ("none", "disease")}
CLASSES[("heart", "internal")] = ("no", "yes")
IMAGE_ARMS = ("random", "local", "local: north", "local: south", "FedAvg", "FedMoCo", "same")


def truth(task, test, units=90):
    """Names, patients and class indices of a test list."""
    generator = np.random.default_rng(len(task) + 10 * len(test))
    labels = generator.integers(0, len(CLASSES[task, test]), units)
    patients = [f"p{generator.integers(0, 60)}" for _ in range(units)]
    return [f"{task}_{test}_{i}.png" for i in range(units)], patients, labels


def predictions(seeds, ties=False):
    """(arm, seed, setting, draw, probabilities) of every trained model."""
    generator, models = np.random.default_rng(3), []
    for place, arm in enumerate(IMAGE_ARMS):
        for run in range(seeds):
            for setting in SETTINGS:
                _, _, labels = truth(*setting[:2])
                classes = len(CLASSES[setting[:2]])
                draws = ["0", "1", "2"] if setting[3] < 1 else ["0"]
                for draw in draws if arm != "local" else [f"{node} {d}" for node in ("north", "south") for d in draws]:
                    logits = generator.normal(0, 1, (len(labels), classes))
                    logits += np.eye(classes)[labels] * (0.3 + 0.15 * (2 if arm == "same" else place))
                    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
                    p = np.round(p, 1) if ties else p.astype(np.float32).astype(float)
                    models.append((arm, run, setting, draw, p))
    return models


def rounds(arm, seed, similarity=True):
    """Images of each node, weights (T, K) and r (T, K) of an arm's rounds."""
    generator = np.random.default_rng(100 * seed + len(arm))
    weights = generator.dirichlet([3, 2, 1], 9)
    rsa = np.linspace(0.3, 0.9, 9)[:, None] + generator.normal(0, 0.05, (9, 3))
    return {"north": 30, "south": 20, "west": 50}, weights, rsa if similarity else None


LUNGS, FINE_TUNED = {"list": "external", "tasks": ["lungs"]}, {"protocol": "finetune", "model": "highest"}


def image_claims():
    def line(better, worse, fractions=(1.0,), **more):
        return {"better": better, "worse": worse, "protocol": "linear", "fractions": list(fractions), **more}

    def about_rounds(kind, **settings):
        return {"path": f"research.tables.fedmoco.{kind}", **settings}

    return [
        {"id": 1, "text": "better", "holds": [line("FedMoCo", "random", (0.1, 1.0), scores=["accuracy", "auroc"])]},
        {"id": 2, "text": "contrary", "holds": [line("random", "FedMoCo", scores=["auroc"])]},
        {"id": 3, "text": "open", "holds": [line("FedMoCo", "same", tasks=["heart"])]},
        {"id": 4, "text": "numbers", "report": True} | {"holds": [line("FedAvg", "local", **LUNGS)]},
        {"id": 5, "text": "not run", "holds": [line("gone", "local")]},
        {"id": 6, "text": "slows", **about_rounds("slows", arms=["FedMoCo", "FedAvg"], value="rsa")},
        {"id": 7, "text": "weights", **about_rounds("node_weight", arms=["FedMoCo"], node=3)},
        {"id": 8, "text": "no rounds", **about_rounds("node_weight", arms=["random"], node=1)},
        {"id": 9, "text": "fine-tuned", "holds": [{**line("FedMoCo", "random"), **FINE_TUNED}]},
    ]
