#!/usr/bin/env python3
"""Share of the training speed that the real loader costs.

Trains on synthetic CT files twice: with the bundle's loader (cached cases, crops, flips, rotation, intensity shift)
and with the same number of ready-made tensors. Both are timed in turns, step by step, in one process, so that a busy
machine slows both alike. Speed is steps per second of training including loading; the target is a ratio of 0.95.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import nibabel as nib
import numpy as np
import torch
from monai.bundle import ConfigParser

BUNDLE = Path(__file__).resolve().parents[1] / "bundles" / "covid_ct_segmentation"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patch", type=int, nargs=3, default=[96, 96, 32], metavar=("X", "Y", "Z"))
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--overlay", default="segresnet", help="overlay that chooses the network (default: segresnet)")
    parser.add_argument("--steps", type=int, default=20, help="timed steps of each kind")
    parser.add_argument("--cases", type=int, default=4, help="synthetic cases on disk, 400 x 400 x 60 voxels")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--workers", type=int, default=0, help="loader processes")
    return parser.parse_args()


def make_site(root: Path, cases: int, key: str = "training") -> Path:
    """Write volumes that are on the paper's grid already, so that only loading is measured; return the datalist."""
    entries, rng = [], np.random.default_rng(0)
    for number in range(cases):
        image = rng.integers(-1000, 200, (400, 400, 60), dtype=np.int16)
        mask = np.zeros(image.shape, np.uint8)
        mask[100:180, 120:200, 20:40] = 1
        entry = {"image": f"image{number}.nii", "label": f"mask{number}.nii"}
        for name, array in zip(entry.values(), (image, mask), strict=True):
            nib.save(nib.Nifti1Image(array, np.diag([0.8, 0.8, 5.0, 1.0])), root / name)
        entries.append(entry)
    path = root / "datalist.json"
    path.write_text(json.dumps({key: entries}))
    return path


def configuration(root: Path, args: argparse.Namespace) -> ConfigParser:
    """The bundle's training, with the sizes asked for."""
    sys.path.insert(0, str(BUNDLE))
    parser = ConfigParser()
    parser.read_config([str(BUNDLE / "configs" / f"{name}.yaml") for name in ("train", args.overlay)])
    values = {"bundle_root": str(BUNDLE), "dataset_dir": str(root), "cache_dir": str(root / "cache")}
    values |= {"device": args.device, "patch_size": args.patch, "batch_size": args.batch}
    parser.update({**values, "epoch_length": 2 * args.steps + 4, "num_workers": args.workers, "seed": 0})
    return parser


def ready_made(args: argparse.Namespace) -> Iterator[dict[str, torch.Tensor]]:
    """Batches that cost nothing to load."""
    shape = (args.batch, 1, *args.patch)
    batch = {"image": torch.rand(shape), "label": (torch.rand(shape) > 0.9).float()}
    while True:
        yield batch


def timed_step(config: ConfigParser, batches: Iterator, device: torch.device) -> Callable[[], tuple[float, float]]:
    """Return a function that trains one step and gives (seconds of loading, seconds in all)."""
    network, optimizer = config.get_parsed_content("network"), config.get_parsed_content("optimizer")
    inferer, loss = config.get_parsed_content("train#inferer"), config.get_parsed_content("loss")

    def step() -> tuple[float, float]:
        start = time.perf_counter()
        batch = next(batches)
        loaded = time.perf_counter()
        image, label = (batch[key].to(device, non_blocking=True) for key in ("image", "label"))
        optimizer.zero_grad(set_to_none=True)
        loss(inferer(image, network), label).backward()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return loaded - start, time.perf_counter() - start

    return step


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    device = torch.device(args.device)
    with tempfile.TemporaryDirectory() as folder:
        make_site(Path(folder), args.cases)
        config = configuration(Path(folder), args)
        start = time.perf_counter()
        loader = iter(config.get_parsed_content("train#dataloader"))
        print(f"prepared {args.cases} cases once in {time.perf_counter() - start:.1f} s")
        kinds = {"ready-made tensors": ready_made(args), "real loader": loader}
        steps = {name: timed_step(config, batches, device) for name, batches in kinds.items()}
        for _ in range(2):  # warm-up
            for step in steps.values():
                step()
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
        for _ in range(args.steps):
            for name, step in steps.items():
                times[name].append(step())
    report(times, args)


def report(times: dict[str, list[tuple[float, float]]], args: argparse.Namespace) -> None:
    """Print the table and the ratio."""
    patch = " x ".join(map(str, args.patch))
    print(f"\n{args.overlay}, patch {patch}, batch {args.batch}, {args.device}, {args.threads} threads,", end=" ")
    print(f"{args.workers} workers, torch {torch.__version__}, median of {args.steps} steps\n")
    print(f"{'batches':<20}{'loading (s)':>14}{'step (s)':>12}{'steps / s':>12}")
    medians = {}
    for name, pairs in times.items():
        loading, step = (statistics.median(values) for values in zip(*pairs, strict=True))
        medians[name] = step
        print(f"{name:<20}{loading:>14.4f}{step:>12.4f}{1 / step:>12.2f}")
    ratio = medians["ready-made tensors"] / medians["real loader"]
    print(f"\nspeed with the real loader: {ratio:.3f} of ready-made tensors (target 0.95)")


if __name__ == "__main__":
    main()
