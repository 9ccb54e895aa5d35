#!/usr/bin/env python3
"""Run every arm and seed of an experiment and write its table. A stopped run goes on where it was."""

import argparse
import csv
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from fedmed.errors import FedMedError
from fedmed.federation.experiment import Experiment, load_experiment, rows, run_arm

TABLES = [
    ("table", "test", "Model selected by the labelled sites"),
    ("table_last", "test_last", "Model of the last round"),
]
EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    names = ", ".join(sorted(path.stem for path in EXPERIMENTS.glob("*.yaml")))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("experiment", help=f"a YAML file, or one of: {names}")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="results go to OUT/<experiment>")
    parser.add_argument("--seeds", type=int, nargs="+", help="instead of the experiment's own")
    parser.add_argument("--arms", nargs="+", help="only these rows")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    return parser.parse_args(argv)


def run_all(experiment: Experiment, seeds: list[int], folder: Path, jobs: int) -> dict:
    results, started = {}, time.monotonic()
    todo = [(arm, seed) for seed in seeds for arm in experiment.arms]
    with ProcessPoolExecutor(jobs) as pool:
        running = {pool.submit(run_arm, arm, seed, folder): (arm.name, seed) for arm, seed in todo}
        for future in as_completed(running):
            try:
                results[running[future]] = future.result()
            except FedMedError:
                pool.shutdown(wait=False, cancel_futures=True)  # say it now, not after the remaining runs
                raise
            spent = time.monotonic() - started
            left = spent / len(results) * (len(todo) - len(results))
            arm, seed = running[future]
            print(f"[{len(results)}/{len(todo)}] {arm}, seed {seed}: done; about {left / 60:.1f} min left", flush=True)
    return {key: results[key] for key in ((arm.name, seed) for arm, seed in todo)}


def markdown(table: list[dict]) -> str:
    sites = list(dict.fromkeys(row["site"] for row in table))
    cells = {(row["arm"], row["site"]): f"{row['dice_mean']:.3f} ± {row['dice_std']:.3f}" for row in table}
    counts = {row["site"]: row["n_cases"] for row in table}
    lines = ["| arm | " + " | ".join(f"{site} (n = {counts[site]})" for site in sites) + " |"]
    lines.append("|---" * (len(sites) + 1) + "|")
    for arm in dict.fromkeys(row["arm"] for row in table):
        lines.append(f"| {arm} | " + " | ".join(cells.get((arm, site), "–") for site in sites) + " |")
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    path = Path(arguments.experiment)
    try:
        experiment = load_experiment(path if path.suffix == ".yaml" else EXPERIMENTS / f"{path}.yaml")
        if arguments.arms:
            chosen = [arm for arm in experiment.arms if arm.name in arguments.arms]
            experiment = Experiment(experiment.name, chosen, experiment.seeds)
        folder = arguments.out.resolve() / experiment.name
        results = run_all(experiment, arguments.seeds or list(experiment.seeds), folder, arguments.jobs)
    except FedMedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name, test, title in TABLES:
        if table := rows(results, test):
            with (folder / f"{name}.csv").open("w", newline="") as stream:
                writer = csv.DictWriter(stream, fieldnames=list(table[0]))
                writer.writeheader()
                writer.writerows(table)
            (folder / f"{name}.md").write_text(markdown(table))
            print(f"\n{title}, test Dice, mean ± standard deviation over seeds\n\n{markdown(table)}{folder / name}.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
