#!/usr/bin/env python3
"""Time that NVFlare's simulator adds to training: wall time of a round minus what its sites spent working.

With a thread a site the round lasts as long as its slowest site, and the rest is overhead. With one thread every task
is a new process, sites work one after the other, and the overhead is counted for each site. The first round, in which
processes start and caches fill, is left out.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import write_job

SITES = {"ct_north": "supervised", "ct_south": "supervised", "ct_east": "unsupervised"}
SMALL = {"batch_size": 1, "patch_size": [32, 32, 16], "window_size": [64, 64, 16], "pixdim": [5.5, 5.5, 12.0]}


def run(folder: Path, rounds: int, threads: int) -> list[dict]:
    configs = folder / "site_configs"
    configs.mkdir(exist_ok=True)
    for site in SITES:
        (configs / f"{site}.yaml").write_text(yaml.safe_dump({"demo": "chest_ct_tiny", "device": "cpu", "threads": 1}))
    overrides = {role: SMALL for role in ("supervised", "unsupervised")}
    study = {"name": "overhead", "bundle": "covid_ct_segmentation", "overlays": ["demo"], "overrides": overrides}
    study |= {"method": {"path": "fedmed.systems.covid_fssl.method.Consistency"}, "sites": SITES}
    job = write_job(Job.of({**study, "rounds": rounds, "steps": 2}), folder / "job", replace=True)
    workspace = folder / f"threads_{threads}"
    command = [str(Path(sys.executable).with_name("nvflare")), "simulator", str(job), "-w", str(workspace)]
    environment = {**os.environ, "FEDMED_SITE_CONFIGS": str(configs), "FEDMED_HOME": str(folder / "home")}
    subprocess.run([*command, "-t", str(threads)], env=environment, check=True, capture_output=True)
    lines = (workspace / "server/simulate_job/fedmed/rounds.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines][1:]


def overhead(round: dict, threads: int) -> float:
    work = [site["seconds"] for site in round["sites"].values()]
    return round["seconds"] - max(work) if threads > 1 else (round["seconds"] - sum(work)) / len(work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4, help="the first is not counted")
    arguments = parser.parse_args()
    print(f"{len(SITES)} training sites, SegResNet-8 (1.8 MB), {os.cpu_count()} cores\n")
    print("| threads | overhead, median s | round, median s | limit |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for threads, limit in ((len(SITES), "1 s a round"), (1, "8 s a site and round")):
            rounds = run(Path(folder), arguments.rounds, threads)
            extra = statistics.median(overhead(round, threads) for round in rounds)
            seconds = statistics.median(round["seconds"] for round in rounds)
            print(f"| {threads} | {extra:.2f} | {seconds:.2f} | {limit} |", flush=True)


if __name__ == "__main__":
    main()
