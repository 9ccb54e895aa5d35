#!/usr/bin/env python3
"""Speed and memory of the server's aggregation, its check of updates and their geometry, against plain loops.

    python benchmarks/aggregation.py [--mb 75] [--sites 2 16] [--threads 1] [--repeats 9]

Peers, on the same numbers, without names to look up, checks or policies:

- ``float64 blocks``: a straightforward blockwise float64 loop over the same tensors; the target is 80 % of it;
- ``... flat, warm``: the same over one flat vector, into memory that is already allocated;
- ``float32 add_``: an in-place ``add_`` of each difference onto a flat vector: less exact, and the least possible work.

GB/s counts each difference and the model read once and the result written once. Runs are interleaved and the best of
each is reported, since other work on the machine only ever slows one down.
"""

import argparse
import time
from dataclasses import dataclass

import torch

from fedmed.aggregation.acceptance import check_update
from fedmed.aggregation.geometry import update_geometry
from fedmed.aggregation.weighted_mean import WeightedMean

BLOCK = 131_072
Tensors = dict[str, torch.Tensor]


@dataclass
class Part:
    """A site's part in a round, as the aggregation reads it."""

    site: str
    tensors: Tensors
    n_steps: int = 400
    round: int = 0
    n_samples: int = 10


def model(megabytes: float, seed: int) -> Tensors:
    """Return float32 tensors shaped like those of a residual 3D network: few large, many small."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(256, 256, 3, 3, 1), (256,), (256,), (64, 256, 1, 1, 1), (64,), (64,)]
    tensors, left, index = {}, int(megabytes * 1e6 / 4), 0
    while left > 0:
        shape = shapes[index % len(shapes)]
        size = torch.Size(shape).numel()
        tensors[f"layer{index}.weight"] = torch.randn(shape if size <= left else (left,), generator=generator)
        left, index = left - size, index + 1
    return tensors


def flatten(tensors: Tensors) -> torch.Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors.values()])


def float64_blocks(base: torch.Tensor, differences: list[torch.Tensor], result: torch.Tensor) -> torch.Tensor:
    total, scratch = torch.empty(BLOCK, dtype=torch.float64), torch.empty(BLOCK, dtype=torch.float64)
    for start in range(0, len(base), BLOCK):
        n = min(BLOCK, len(base) - start)
        total[:n].copy_(base[start : start + n])
        for difference in differences:
            total[:n].add_(scratch[:n].copy_(difference[start : start + n]), alpha=1 / len(differences))
        result[start : start + n].copy_(total[:n])
    return result


def float64_blocks_each(base: Tensors, parts: list[Part]) -> Tensors:
    return {
        name: float64_blocks(
            tensor.view(-1), [part.tensors[name].view(-1) for part in parts], torch.empty(tensor.numel())
        )
        for name, tensor in base.items()
    }


def float32_add(result: torch.Tensor, differences: list[torch.Tensor]) -> None:
    for difference in differences:
        result.add_(difference, alpha=1 / len(differences))


def peak_extra_bytes(function) -> int:
    """Return the largest sum of tensor memory that was alive at one time during the call, its result included."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = function()
    alive = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            alive += event.nbytes()
            peak = max(peak, alive)
    del kept
    return peak


def compare(megabytes: float, sites: int, repeats: int) -> None:
    base = model(megabytes, seed=0)
    parts = [Part(f"site{k:02d}", model(megabytes, seed=k + 1)) for k in range(sites)]
    flat, flat_parts = flatten(base), [flatten(part.tensors) for part in parts]
    rule, warm = WeightedMean(), flat.clone()
    runs = {
        "fedmed aggregate": lambda: rule.aggregate(base, parts),
        "float64 blocks": lambda: float64_blocks_each(base, parts),
        "... flat, warm": lambda: float64_blocks(flat, flat_parts, warm),
        "float32 add_": lambda: float32_add(warm, flat_parts),
        "fedmed geometry": lambda: update_geometry(parts, {part.site: 1 / sites for part in parts}),
        "fedmed check_update": lambda: [check_update(part, base, 0, (), max_norm=1e9) for part in parts],
    }
    seconds = dict.fromkeys(runs, float("inf"))
    for _ in range(repeats):
        for name, run in runs.items():
            started = time.perf_counter()
            run()
            seconds[name] = min(seconds[name], time.perf_counter() - started)
    size = flat.numel() * 4
    print(f"\n{sites} sites, {size / 1e6:.0f} MB in {len(base)} tensors, {torch.get_num_threads()} thread(s)")
    for name, duration in seconds.items():
        moved = size * (sites + (0 if "check" in name or "geometry" in name else 2))
        print(f"  {name:20s} {duration * 1e3:8.1f} ms {moved / duration / 1e9:7.2f} GB/s")
    share = seconds["float64 blocks"] / seconds["fedmed aggregate"]
    geometry = seconds["fedmed geometry"] / seconds["fedmed aggregate"]
    held = peak_extra_bytes(runs["fedmed geometry"]) / size
    copies = peak_extra_bytes(runs["fedmed aggregate"]) / size
    print(
        f"  aggregate runs at {share:.0%} of float64 blocks; peak memory {copies:.2f} model copies beyond the updates"
    )
    print(f"  geometry takes {geometry:.2f} of the time of the mean (target: at most 1); peak memory {held:.2f} copies")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=float, default=75)
    parser.add_argument("--sites", type=int, nargs="+", default=[2, 16])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=9)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for sites in args.sites:
        compare(args.mb, sites, args.repeats)


if __name__ == "__main__":
    main()
