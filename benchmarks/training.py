#!/usr/bin/env python3
"""Speed, memory and share of loading of a site's training.

Runs the bundle's own trainer, supervised or on scans without labels, on synthetic CT files from the disk cache. Without
options it has the paper's sizes (AHNet, patches of 160 x 160 x 32, batch 4), which need a GPU:

    benchmarks/training.py --amp --workers 4
    benchmarks/training.py --amp --workers 4 --role unsupervised
    benchmarks/training.py --overlay coarse --steps 5        # a small network, for a CPU
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import torch
from ignite.handlers import BasicTimeProfiler
from loader import make_site
from monai.bundle import ConfigParser
from rich.console import Console
from rich.table import Table

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import parsed, seed_everything

WARM_UP = 3  # steps that are not counted: allocation, choice of convolution algorithms


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--overlay", action="append", default=[], help="of the bundle (repeatable); none = AHNet")
    parser.add_argument("--role", choices=["supervised", "unsupervised"], default="supervised")
    parser.add_argument("--steps", type=int, default=30, help="counted steps (default 30)")
    parser.add_argument(
        "--cases", type=int, default=4, help="synthetic cases on disk, 400 x 400 x 60 voxels (default 4)"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--workers", type=int, default=0, help="loader processes (default 0)")
    parser.add_argument("--amp", action="store_true", help="mixed precision")
    return parser.parse_args()


def train(args: argparse.Namespace, root: Path) -> dict[str, float]:
    """Train and return seconds and bytes."""
    overlays = [*args.overlay, "unlabelled", "consistency"] if args.role == "unsupervised" else args.overlay
    datalist = make_site(root, args.cases, "unlabeled" if args.role == "unsupervised" else "training")
    facts = {"dataset_dir": str(root), "datalist": str(datalist), "cache_dir": str(root / "cache"), "seed": 0}
    facts |= {"device": args.device, "amp": args.amp, "num_workers": args.workers, "max_epochs": 1}
    seed_everything(0)
    for steps in (WARM_UP, args.steps):
        config = Bundle("covid_ct_segmentation", overlays).parser(**facts, epoch_length=steps)
        config["train#handlers"] = []
        measured = run(config, args)
    return {**measured, "batch": config["batch_size"]}


def run(config: ConfigParser, args: argparse.Namespace) -> dict[str, float]:
    """Run the trainer of a configuration once: seconds in all, seconds that waited for data, peak memory in bytes."""
    trainer, profiler = parsed(config, "train#trainer"), BasicTimeProfiler()
    profiler.attach(trainer)
    cuda = torch.device(args.device).type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    trainer.run()
    if cuda:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    peak = torch.cuda.max_memory_allocated() if cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    loading = float(profiler.get_results()["dataflow_stats"]["total"])
    return {"seconds": seconds, "loading": loading, "peak": peak}


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as root:
        measured = train(args, Path(root))
    device = torch.cuda.get_device_name(args.device) if torch.device(args.device).type == "cuda" else "CPU"
    table = Table(
        show_header=False, title=f"{args.role}, {' + '.join(args.overlay) or 'AHNet'}, {device}, AMP {args.amp}"
    )
    table.add_row("patches a second", f"{args.steps * measured['batch'] / measured['seconds']:.2f}")
    table.add_row("seconds a step", f"{measured['seconds'] / args.steps:.3f}")
    table.add_row("share of the time that waits for data", f"{100 * measured['loading'] / measured['seconds']:.1f} %")
    kind = "of the GPU" if torch.device(args.device).type == "cuda" else "of the process"
    table.add_row(f"peak memory {kind}", f"{measured['peak'] / 2**20:.0f} MiB")
    Console().print(table)


if __name__ == "__main__":
    main()
