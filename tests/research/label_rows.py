"""Synthetic scores of several labels: counts of videos and of sites, and what rounds recorded."""

import numpy as np

from research.runner.score_table import MEAN_UNIT, ROUNDS, SENT, joined, part_of, score_frame
from research.runner.table_layout import ShownArm

SITES = {"HEI1": "lap_hei1", "HEI2": "lap_hei2", "CHO1": "lap_cho1", "CHO2": "lap_cho2", "CHO3": "lap_cho3"}
LABELS = ["grasper", "clipper", "bag"]
SHOWN = np.array([60, 12, 5])  # frames of a video that show each
IMAGES = dict(zip(SITES.values(), [100, 100, 200, 400, 200], strict=True))


def counts_rows(arm, recall, seed=0, sites=SITES, videos=3, withheld=()):
    """Counts of every video and their sums; ``recall``: site -> share of a label's frames that are found, 0..1."""
    rows = []
    for name, site in sites.items():
        generator = np.random.default_rng([seed, *map(ord, arm + site)])
        sums = {f"{count}_{label}": 0 for label in LABELS for count in ("fn", "fp", "tp")}
        for video in range(videos):
            of_video = {"site": site, "list": "test", "unit": f"v{video}", "patient": f"v{video}"}
            tp = generator.binomial(SHOWN, recall[name])
            fp = generator.binomial(SHOWN, (1 - recall[name]) / 2)
            for place, label in enumerate(LABELS):
                counts = {"tp": tp[place], "fp": fp[place], "fn": SHOWN[place] - tp[place]}
                for count, value in counts.items():
                    sums[f"{count}_{label}"] += value
                numbers = {**counts, "ap": recall[name]}
                rows += [{**of_video, "metric": f"{k}_{label}", "value": v} for k, v in numbers.items()]
        if name not in withheld:
            of_site = {"site": site, "list": SENT, "unit": MEAN_UNIT, "patient": ""}
            rows += [{**of_site, "metric": metric, "value": value} for metric, value in sums.items()]
    return score_frame(rows, arm=arm, seed=seed, model="last")


def round_rows(arm, seed=0, rounds=6, sites=None):
    """Rounds in which losses and distances fall and cosines too."""
    sites = list(SITES.values()) if sites is None else sites
    rows = [{"site": site, "unit": "all", "metric": "images", "value": IMAGES.get(site, 1000)} for site in sites]
    for t in range(rounds):
        for place, site in enumerate(sites):
            numbers = {"weight": 0.2, "val_f1": 0.3 + 0.08 * t, "train_loss": 1 / (1 + t)}
            numbers |= {"distance": 9 - t - 0.1 * place, "cosine": 0.8 - 0.05 * t - 0.02 * place}
            rows += [{"site": site, "unit": f"{t}", "metric": k, "value": v} for k, v in numbers.items()]
    return score_frame(rows, arm=arm, seed=seed, list=ROUNDS, model="last")


QUALITY = {"FedAvg": 0.8, "FedProx": 0.79, "FedDyn": 0.35, "FedDG": 0.8, "FedRep": 0.77, "CENT": 0.81}
QUALITY |= {"FedAvg, sites count alike": 0.795, "FedDyn, mean alone": 0.78, "FedBN": 0.76}


def table_rows(variants=("small network", "large network"), seeds=(0, 1, 2), withheld=()):
    """A whole table: its arms, and its scores."""
    arms, frames = [], []
    for larger, variant in enumerate(variants):
        arms.append(ShownArm(f"LOT, {variant}", row="LOT", variant=variant))
        for at, (home, site) in enumerate(SITES.items()):
            recall = {name: (0.72 if name == home else 0.45 - 0.03 * larger) + 0.02 * (at > 1) for name in SITES}
            part = part_of(f"LOT, {variant}", site)
            frames += [counts_rows(part, recall, seed) for seed in seeds]
            frames += [round_rows(part, seed, sites=[site]) for seed in seeds]
        for row, quality in QUALITY.items():
            group = "Not in the thesis" if "," in row or row == "FedBN" else ""
            arms.append(ShownArm(f"{row}, {variant}", group, row=row, variant=variant))
            recall = {name: quality - 0.1 * name.startswith("HEI") + 0.02 * larger for name in SITES}
            frames += [counts_rows(arms[-1].name, recall, seed, withheld=withheld) for seed in seeds]
            sites = ["pool"] if row == "CENT" else list(SITES.values())
            frames += [round_rows(arms[-1].name, seed, sites=sites) for seed in seeds]
    return arms, joined(frames)
