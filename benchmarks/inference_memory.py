#!/usr/bin/env python3
"""Memory that the bundle's inference needs for a full scan.

Makes a chest scan of the given size and runs `python -m monai.bundle run` on it, with random weights, in a separate
process, whose largest resident set Linux reports. A second process that only loads libraries, network and weights gives
the minimum. The difference is the cost of the scan; it is compared with the scan's own size in float32.

    benchmarks/inference_memory.py --overlay demo
    benchmarks/inference_memory.py --overlay cpu                          # the paper's network
    benchmarks/inference_memory.py --overlay demo --shape 512 512 256     # thin slices
    benchmarks/inference_memory.py --overlay demo --bundle /older/checkout/bundles/covid_ct_segmentation
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import torch
from monai.bundle import ConfigParser

from fedmed_demo.chest_ct import make_scan
from fedmed_demo.hospitals import SITES
from fedmed_demo.scanner import Scanner

BUNDLE = Path(__file__).resolve().parents[1] / "bundles" / "covid_ct_segmentation"
FIELD, HEIGHT = 384.0, 240.0  # mm that the scan's width and its slices cover
MB = 2**20


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--overlay", action="append", default=[], help="overlay of the bundle (repeatable)")
    parser.add_argument("--shape", type=int, nargs=3, default=[512, 512, 64], metavar=("X", "Y", "Z"))
    parser.add_argument("--scans", type=int, default=1, help="scans in the folder")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--bundle", type=Path, default=BUNDLE)
    parser.add_argument("--set", action="append", default=[], metavar="ID=VALUE", help="settings of the bundle")
    return parser.parse_args()


def make_scans(folder: Path, shape: list[int], count: int) -> tuple[float, ...]:
    """Write copies of one synthetic chest, with air around it up to ``shape``; return its voxel size in mm."""
    scanner = Scanner(FIELD / shape[0], HEIGHT / shape[2], "soft", 13.0)
    made = make_scan(replace(SITES["ct_north"], scanner=scanner), "WHOLE01")
    image = np.full(shape, -1024, np.int16)
    start = [max((n - m) // 2, 0) for n, m in zip(shape, made.image.shape, strict=True)]
    chest = made.image[tuple(slice(0, n) for n in shape)]
    image[tuple(slice(s, s + n) for s, n in zip(start, chest.shape, strict=True))] = chest
    folder.mkdir()
    for number in range(count):
        nib.save(nib.Nifti1Image(image, made.affine), folder / f"scan{number}.nii.gz")
    return tuple(np.linalg.norm(made.affine[:3, :3], axis=0))


def configs(args: argparse.Namespace) -> list[str]:
    return [str(args.bundle / "configs" / f"{name}.yaml") for name in ("inference", *args.overlay)]


def save_random_weights(args: argparse.Namespace, path: Path) -> str:
    """Write the untrained network's weights; return the network's name."""
    sys.path.insert(0, str(args.bundle))
    parser = ConfigParser()
    parser.read_config(configs(args))
    network = parser.get_parsed_content("network_def")
    torch.save(network.state_dict(), path)
    return type(network).__name__


def measure(args: argparse.Namespace, folder: Path, entry: str) -> tuple[float, float]:
    """Run one entry of the bundle in a new process; return its peak in MB and its seconds."""
    line = [sys.executable, "-m", "monai.bundle", "run", entry, "--config_file", str(configs(args))]
    settings = {"bundle_root": args.bundle, "dataset_dir": folder / "in", "output_dir": folder / "out"}
    settings |= {"model_path": folder / "model.pt", "device": "cpu"}
    line += [word for key, value in settings.items() for word in (f"--{key}", str(value))]
    line += [word for text in args.set for word in (f"--{text.partition('=')[0]}", text.partition("=")[2])]
    start = time.perf_counter()
    environment = os.environ | {"OMP_NUM_THREADS": str(args.threads)}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(line, stdout=log, stderr=subprocess.STDOUT, env=environment)
        top = 0.0
        while process.poll() is None:
            top = max(top, largest(process.pid))
            time.sleep(0.02)
    if process.returncode:
        sys.exit(f"the bundle failed:\n{(folder / 'log').read_text()[-2000:]}")
    return top, time.perf_counter() - start


def largest(process: int) -> float:
    """Largest resident set of a living process so far, in MB. (``ru_maxrss`` would count what the parent had held.)"""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(match.group(1)) / 1024 if match else 0.0


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spacing = make_scans(folder / "in", args.shape, args.scans)
        network = save_random_weights(args, folder / "model.pt")
        floor, _ = measure(args, folder, "weights")
        top, seconds = measure(args, folder, "run")
    volume = float(np.prod(args.shape)) * 4 / MB
    size, voxel = " x ".join(map(str, args.shape)), " x ".join(f"{s:.2f}" for s in spacing)
    print(f"{network}, {args.scans} scan(s) of {size} voxels of {voxel} mm, {volume:.0f} MB in float32")
    print(f"libraries, network, weights  {floor:7.0f} MB")
    print(f"peak of inference            {top:7.0f} MB, {seconds:.0f} s with {args.threads} threads")
    print(f"for the scan                 {top - floor:7.0f} MB, {(top - floor) / volume:.1f} times its size")


if __name__ == "__main__":
    main()
