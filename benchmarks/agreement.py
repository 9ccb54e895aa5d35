#!/usr/bin/env python3
"""Cost of learning where two models agree, against learning from one model's confident pseudo-labels.

Trains a site without masks on synthetic CT files with both engines in turn, in one process, several times over, so that
a busy machine slows both alike. Loading is included. The target is a ratio of at most 1.5 seconds a step.

    benchmarks/agreement.py --overlay demo        # a small network, for a CPU
    benchmarks/agreement.py --amp --workers 4     # AHNet, for a GPU
"""

import argparse
import copy
import statistics
import tempfile
import time
from pathlib import Path

import torch
from loader import make_site
from rich.console import Console
from rich.table import Table

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import parsed, seed_everything

ENGINES = ("consistency", "agreement")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--overlay", action="append", default=[], help="of the bundle (repeatable); none = AHNet")
    parser.add_argument("--steps", type=int, default=10, help="steps of a turn (default 10)")
    parser.add_argument("--turns", type=int, default=5, help="turns of each engine (default 5)")
    parser.add_argument("--cases", type=int, default=2, help="synthetic cases on disk, 400 x 400 x 60 voxels")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--workers", type=int, default=0, help="loader processes (default 0)")
    parser.add_argument("--amp", action="store_true", help="mixed precision")
    return parser.parse_args()


def turn(engine: str, root: Path, datalist: Path, args: argparse.Namespace) -> float:
    """Seconds a step of one run of an engine."""
    facts = {"dataset_dir": str(root), "datalist": str(datalist), "cache_dir": str(root / "cache"), "seed": 0}
    facts |= {"device": args.device, "amp": args.amp, "num_workers": args.workers, "max_epochs": 1}
    seed_everything(0)
    bundle = Bundle("covid_ct_segmentation", [*args.overlay, "unlabelled", engine])
    config = bundle.parser(**facts, epoch_length=args.steps)
    config["train#handlers"] = []
    trainer = parsed(config, "train#trainer")
    if engine == ENGINES[1]:
        trainer.receive({"labelled_mean": copy.deepcopy(trainer.network.state_dict())})
    start = time.perf_counter()
    trainer.run()
    if torch.device(args.device).type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / args.steps


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        datalist = make_site(root, args.cases, "unlabeled")
        for engine in ENGINES:  # fills the cache, and chooses convolution algorithms
            turn(engine, root, datalist, args)
        seconds = {engine: [] for engine in ENGINES}
        for _ in range(args.turns):
            for engine in ENGINES:
                seconds[engine].append(turn(engine, root, datalist, args))
    medians = {engine: statistics.median(values) for engine, values in seconds.items()}
    table = Table("engine", "seconds a step", title=f"{' + '.join(args.overlay) or 'AHNet'} on {args.device}")
    for engine, value in medians.items():
        table.add_row(engine, f"{value:.3f}")
    table.add_row("ratio", f"{medians[ENGINES[1]] / medians[ENGINES[0]]:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
