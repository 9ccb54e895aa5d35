#!/usr/bin/env python3
"""Speed and memory of the server's optimizers against the weighted mean and a plain float64 mean, in one run.

    python benchmarks/server_optimizers.py [--mb 75] [--sites 5 16] [--threads 1] [--repeats 5]

A line each: CPU time of a round's aggregation with the optimizer, its multiple of ``float64 blocks`` (the blockwise
float64 mean of ``benchmarks/aggregation.py``; the target of AdamW is at most 2.5), and the largest sum of tensor memory
during it beyond model, updates and kept moments (the target is one model, beside some blocks of scratch memory). The
copy of the moments that a server holds until a round is saved is not in it: as much again as the moments.
"""

import argparse
import time

import torch
from aggregation import Part, float64_blocks_each, model, peak_extra_bytes

from fedmed.jobs.rule_spec import STEPS, load_rule, rule_spec
from fedmed.methods.method import MEAN


def compare(megabytes: float, sites: int, repeats: int) -> None:
    base = model(megabytes, seed=0)
    parts = [Part(f"site{k:02d}", model(megabytes, seed=k + 1)) for k in range(sites)]
    named = {"fedmed mean": None, **{f"fedmed {name}": {"by": name} for name in STEPS}}
    named["fedmed sgd"] = {"by": "sgd", "momentum": 0.9}
    rules = {name: load_rule(rule_spec({"path": MEAN}, step=step)) for name, step in named.items()}
    runs = {name: (lambda r=rule: r.aggregate(base, parts)) for name, rule in rules.items()}
    runs["float64 blocks"] = lambda: float64_blocks_each(base, parts)
    seconds = dict.fromkeys(runs, float("inf"))
    for repeat in range(repeats + 1):
        for name, run in runs.items():
            started = time.process_time()
            run()
            if repeat:  # the first one makes the moments
                seconds[name] = min(seconds[name], time.process_time() - started)
    size = sum(tensor.nbytes for tensor in base.values())
    print(f"\n{sites} sites, {size / 1e6:.0f} MB in {len(base)} tensors, {torch.get_num_threads()} thread(s)")
    for name, duration in seconds.items():
        multiple, peak = duration / seconds["float64 blocks"], peak_extra_bytes(runs[name]) / size
        print(f"  {name:16s} {duration * 1e3:8.1f} ms {multiple:6.2f} x {peak:6.2f} models")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=float, default=75)
    parser.add_argument("--sites", type=int, nargs="+", default=[5, 16])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for sites in args.sites:
        compare(args.mb, sites, args.repeats)


if __name__ == "__main__":
    main()
