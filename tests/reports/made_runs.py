"""A synthetic run folder, in the layout that the simulator and the in-process loop leave."""

import csv
import json
from pathlib import Path

import numpy as np

SITES = {"ct_north": "supervised", "ct_south": "supervised", "ct_east": "unsupervised", "ct_west": "evaluate"}
SPACING = (1.5, 1.5)


def write_lines(path: Path, lines: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def chest(rng: np.random.Generator, grown: float) -> dict[str, np.ndarray]:
    """A slice that looks a little like a chest: body, two lungs, a lesion, and a prediction off by `grown`."""
    rows, columns = np.mgrid[0:160, 0:200].astype(float)

    def ellipse(row: float, column: float, height: float, width: float) -> np.ndarray:
        return ((rows - row) / height) ** 2 + ((columns - column) / width) ** 2 < 1

    lungs = ellipse(78, 62, 46, 30) | ellipse(78, 138, 48, 32)
    row, column = 80 + rng.uniform(-18, 18), 138 + rng.uniform(-8, 8)
    wobble = 1 + 0.25 * np.sin(5 * np.arctan2(rows - row, columns - column) + rng.uniform(0, 6))
    distance = np.hypot((rows - row) / 12, (columns - column) / 15) / wobble
    image = np.where(ellipse(80, 100, 70, 92), 0.98, 0.0)
    image = np.where(lungs, 0.16, image)
    image = np.where(lungs, image + 0.5 * np.exp(-(distance**2)), image) + rng.normal(0, 0.025, rows.shape)
    shift = np.hypot((rows - row - 9 * grown) / 12, (columns - column + 11 * grown) / 15) / wobble
    return {
        "image": image.clip(0, 1),
        "truth": (lungs & (distance < 1)).astype(np.uint8),
        "prediction": (lungs & (shift < 1 - 0.4 * grown)).astype(np.uint8),
        "spacing": np.array(SPACING),
    }


def write_site(folder: Path, rng: np.random.Generator, level: float, n_cases: int) -> dict[str, float]:
    """Write cases and pictures of one site; return what it would tell the server."""
    dices = np.sort((level + rng.normal(0, 0.07, n_cases)).clip(0, 0.97))[::-1]
    evaluation = folder / "evaluation"
    evaluation.mkdir(parents=True)
    with (evaluation / "cases.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["case", "dice"])
        rows.writerows((f"case_{i:03d}", f"{dice:.6f}") for i, dice in enumerate(dices))
    for kind, place in (("best", 0), ("median", n_cases // 2), ("worst", n_cases - 1)):
        arrays = chest(rng, grown=1.2 * (1 - dices[place]))
        np.savez(evaluation / f"{kind}.npz", dice=dices[place], case=f"case_{place:03d}", **arrays)
    return {"dice_mean": float(dices.mean()), "dice_std": float(dices.std()), "n_cases": n_cases}


def round_line(index: int, rounds: int, sites: dict[str, str], rng: np.random.Generator, refuse: bool) -> dict:
    """One line of rounds.jsonl of a run that learns and levels off."""
    progress = 1 - np.exp(-3.5 * index / rounds)
    trains = [name for name, role in sites.items() if role != "evaluate"]
    refused = [trains[-1]] if refuse and len(trains) > 1 else []
    accepted = [name for name in trains if name not in refused]
    values = {}
    for place, name in enumerate(accepted):
        noise = rng.normal(0, 0.012)
        labelled = sites[name] == "supervised"
        loss = 0.92 - 0.7 * progress + 0.02 * place if labelled else 0.3 - 0.18 * progress
        values[name] = {"n_steps": 20, "n_samples": 12, "train_loss": loss + noise, "seconds": 4.2 + noise}
        if labelled:
            values[name]["val_dice"] = float(np.clip(0.02 + (0.8 - 0.05 * place) * progress + noise, 0, 1))
    apart = {
        name: (0.85 - 0.4 * progress - 0.05 * place, 4 - 3 * progress + 0.3 * place)
        for place, name in enumerate(accepted)
    }
    scores = [v["val_dice"] for v in values.values() if "val_dice" in v]
    return {
        "round": index,
        "seconds": 6.1 + rng.normal(0, 0.3),
        "accepted": accepted,
        "refused": [{"site": name, "reason": "conv_init.weight: 3 values are not finite"} for name in refused],
        "coefficients": {name: 1 / len(accepted) for name in accepted},
        "geometry": {name: {"norm": 2.0, "cosine": c, "distance": d} for name, (c, d) in apart.items()},
        "sites": values,
        "score": sum(scores) / len(scores) if scores else None,
        "bytes_down": 4_700_000 * len(trains),
        "bytes_up": 4_700_000 * len(accepted),
    }


def make_run(
    root: Path,
    sites: dict[str, str] | None = None,
    rounds: int = 12,
    done: int | None = None,
    refuse: tuple[int, ...] = (3,),
    site_folders: bool = True,
    n_cases: int = 5,
) -> Path:
    """Write a run of `done` of `rounds` rounds; it has a result when all are done."""
    sites, rng = sites or SITES, np.random.default_rng(7)
    done = rounds if done is None else done
    server = root / "server" / "simulate_job" / "fedmed"
    server.mkdir(parents=True)
    facts = {
        "job": "covid_fssl",
        "bundle": "covid_ct_segmentation",
        "overlays": ["segresnet", "demo", "unlabelled", "consistency"],
        "seed": 0,
        "rounds": rounds,
        "sites": {name: {"role": role, "weight": 1.0} for name, role in sites.items()},
        "config": {"study": {"steps": 20, "min_clients": 3, "warm_start": {"rounds": 2}}},
        "versions": {"python": "3.11.2", "fedmed": "0.1.0", "nvflare": "2.9.0", "monai": "1.6.1", "torch": "2.13.0"},
        "hardware": {"cpu_cores": 2, "machine": "x86_64", "gpus": []},
        "started": "2026-11-21T09:05:00+00:00",
    }
    (server / "run.json").write_text(json.dumps(facts))
    lines = [round_line(index, rounds, sites, rng, index in refuse) for index in range(done)]
    write_lines(server / "rounds.jsonl", lines)
    test = {}
    for place, (name, role) in enumerate(sites.items()):
        folder = root / name / "simulate_job" / "fedmed"
        level = {"supervised": 0.8, "unsupervised": 0.7, "evaluate": 0.62}[role] - 0.02 * place
        scores = write_site(folder if site_folders else root / "unused" / name, rng, level, n_cases)
        test[name] = scores
        if site_folders:
            write_lines(folder / "progress.jsonl", site_lines(role, rounds, done, 0.79 - 0.02 * place))
    if done == rounds:
        chosen = max((line["score"], line["round"] - 1) for line in lines if line["score"] is not None)
        result = {
            "best_round": chosen[1],
            "best_score": chosen[0],
            "last_score": lines[-1]["score"] - 0.004,
            "selected_by": [name for name, role in sites.items() if role == "supervised"],
            "test": test,
            "seconds_total": sum(line["seconds"] for line in lines) + 9,
        }
        (server / "result.json").write_text(json.dumps(result))
    return root


def site_lines(role: str, rounds: int, done: int, closing: float) -> list[dict]:
    """progress.jsonl of one site."""
    lines, time = [], 1_790_000_000.0
    for index in range(done if role != "evaluate" else 0):
        base = {"task": "train", "round": index, "total_rounds": rounds}
        lines.append({"time": time, "event": "start", **base, "steps": 20})
        if role == "supervised":
            lines.append({"time": time + 1, "event": "validated", **base, "score": 0.05 * index})
        lines += [
            {"time": time + 2, "event": "step", **base, "step": step, "steps": 20, "loss": 0.9 - 0.01 * step}
            for step in (10, 20)
        ]
        lines.append({"time": time + 3, "event": "end", **base, "train_loss": 0.8, "seconds": 3.0})
        time += 6
    if role == "supervised" and done == rounds:
        base = {"task": "validate", "round": rounds - 1, "total_rounds": rounds}
        lines.append({"time": time, "event": "validated", **base, "score": closing})
    return lines
