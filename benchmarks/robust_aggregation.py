#!/usr/bin/env python3
"""Speed and memory of the server's median and trimmed mean against numpy, scipy and torch, in one run.

    python benchmarks/robust_aggregation.py [--mb 75] [--sites 5 16] [--repeats 5]

Peers, on the same numbers, without checks or policies; all of them first stack every update in one array:

- ``numpy median``: ``np.median(axis=0)``; ``torch median``: ``torch.median(dim=0)``, the lower of two middle values;
- ``scipy trim_mean``: ``scipy.stats.trim_mean(axis=0)`` with the same number of values dropped.

The stack is made beforehand and not timed. ``fedmed mean`` is the plain weighted mean of the same updates. All run on
one thread; runs are interleaved and the least CPU time of each is reported, so that other work on the machine counts
for little.
"""

import argparse
import time

import numpy as np
import torch
from aggregation import Part, flatten, model, peak_extra_bytes
from scipy.stats import trim_mean

from fedmed.jobs.rule_spec import load_rule, rule_spec
from fedmed.methods.method import MEAN

TRIM = 0.2


def compare(megabytes: float, sites: int, repeats: int) -> None:
    base = model(megabytes, seed=0)
    parts = [Part(f"site{k:02d}", model(megabytes, seed=k + 1)) for k in range(sites)]
    stack = torch.stack([flatten(part.tensors) for part in parts])
    cut = -(-sites // 5)  # TRIM of the sites, rounded up
    rules = {
        "fedmed mean": {},
        "fedmed mean, clipped": {"clip_norm": 1.0},
        "fedmed median": {"rule": "median"},
        "fedmed trimmed_mean": {"rule": "trimmed_mean", "trim": TRIM},
    }
    runs = {
        name: (lambda o=options: load_rule(rule_spec({"path": MEAN, "args": o})).aggregate(base, parts))
        for name, options in rules.items()
    }
    runs |= {
        "numpy median": lambda: np.median(stack.numpy(), axis=0),
        "torch median": lambda: stack.median(dim=0).values,
        "scipy trim_mean": lambda: trim_mean(stack.numpy(), cut / sites + 1e-9, axis=0),
    }
    seconds = dict.fromkeys(runs, float("inf"))
    for _ in range(repeats):
        for name, run in runs.items():
            started = time.process_time()
            run()
            seconds[name] = min(seconds[name], time.process_time() - started)
    size = stack[0].numel() * 4
    print(f"\n{sites} sites, {size / 1e6:.0f} MB in {len(base)} tensors")
    for name, duration in seconds.items():
        ours = "fedmed" in name
        memory = f"{peak_extra_bytes(runs[name]) / size:6.2f} model copies beyond the updates" if ours else ""
        stacked = f"  ({sites} copies for the stack alone)" if not ours else ""
        print(f"  {name:22s} {duration * 1e3:9.1f} ms {memory}{stacked}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=float, default=75)
    parser.add_argument("--sites", type=int, nargs="+", default=[5, 16])
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for sites in args.sites:
        compare(args.mb, sites, args.repeats)


if __name__ == "__main__":
    main()
