#!/usr/bin/env python3
"""Whether a change leaves every job's models as they were, bit for bit.

    python benchmarks/model_digests.py before.json      # on the old commit
    python benchmarks/model_digests.py after.json       # on the new one
    diff before.json after.json

Runs each job of jobs/ for a round or three with tiny images, in one process and on one thread: about 3 minutes on one
core. Writes SHA-256 of the models, the sites' weights in each round and their scalars. Compare on one machine: another
processor may round differently.
"""

import argparse
import hashlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import yaml

from fedmed.durable_files import load_tensors
from fedmed.federation.loop import run_job
from fedmed.jobs.job_folder import read_job, write_job
from fedmed.settings.site import SiteConfig, load_file

JOBS = Path(__file__).resolve().parents[1] / "jobs"
CT = {"batch_size": 1, "patch_size": [16, 16, 16], "window_size": [64, 64, 16], "pixdim": [5.5, 5.5, 12.0]}
PAPER = {**CT, "patch_size": [128, 128, 32], "window_size": [128, 128, 32]}  # the smallest that AHNet takes
XRAY = {"batch_size": 8, "queue_size": 8, "metadata_min_images": 8, "rsa_samples": 8}
MOVING = {"confidence": 0.5, "unsupervised_learning_rate": 1e-3}  # so that barely trained sites without labels move
LATE = {"rounds": 3, "steps": 2, "warm_start": 1}
TINY: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # job -> its plan, overrides; checkpoints come first
    "covid_fssl": (LATE, CT),
    "covid_fssl_partial": (LATE, CT),
    "covid_fssl_paper": ({"rounds": 2, "steps": 1, "warm_start": 0, "encoder": None}, PAPER),
    "cxr_fedmoco": ({"rounds": 3, "epochs": 1, "exchange_from": 1}, XRAY),
    "cxr_fedmoco_six": ({"rounds": 2, "epochs": 1, "exchange_from": 1}, XRAY),
    "cxr_fedmoco_paper": ({"rounds": 1, "epochs": 1, "exchange_from": 0}, XRAY),
    "cxr_fedavg_moco": ({"rounds": 2, "epochs": 1}, XRAY),
    "cxr_linear": ({"rounds": 1, "epochs": 1}, XRAY),
    "cxr_finetune": ({"rounds": 2, "epochs": 1}, XRAY),
}


def tiny_site(site: str, folder: Path) -> SiteConfig:
    values: dict[str, Any] = {"site": site, "device": "cpu", "threads": 1}
    if site.startswith("ct_"):
        values |= {"demo": "chest_ct_tiny", "allow_release": site == "ct_north"}
    else:
        extras = {"allowed_extras": ["rsa", "mu", "sigma", "n"], "extras_min_images": 8}
        values |= {"demo": "chest_xray_tiny", "privacy": extras}
    path = folder / f"{site}.yaml"
    path.write_text(yaml.safe_dump(values))
    return load_file(path)


def tiny_job(name: str, folder: Path) -> Path:
    job, (plan, overrides) = read_job(JOBS / name), TINY[name]
    values = dict(plan)
    if "warm_start" in values:
        values["warm_start"] = job.study.warm_start.model_dump(exclude_none=True) | {"rounds": values["warm_start"]}
    if "exchange_from" in values:
        args = job.study.method.args | {"exchange_from": values.pop("exchange_from")}
        values["method"] = {"path": job.study.method.path, "args": args}
    of_role = {"unsupervised": MOVING if overrides in (CT, PAPER) else {}}
    own = {str(role): said for role, said in job.study.overrides.items()}
    roles = ("supervised", "unsupervised", "evaluate")
    values["overrides"] = {r: {**own.get(r, {}), **overrides, **of_role.get(r, {})} for r in roles}
    return write_job(job.changed(values), folder / "jobs" / name)


def digest(path: Path) -> str:
    found = hashlib.sha256()
    for name, tensor in sorted(load_tensors(path)["model"].items()):
        found.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        found.update(tensor.contiguous().numpy().tobytes())
    return found.hexdigest()


def run(name: str, folder: Path) -> dict[str, Any]:
    job = tiny_job(name, folder)
    run_job(job, folder / name, {site: tiny_site(site, folder) for site in read_job(job).study.sites})
    server = folder / name / "server" / "simulate_job"
    rounds = [json.loads(line) for line in (server / "fedmed" / "rounds.jsonl").read_text().splitlines()]
    for line in rounds:
        for scalars in line["sites"].values():
            scalars.pop("seconds")
    return {
        "models": {path.name: digest(path) for path in sorted((server / "app_server").glob("*.pt"))},
        "weights": [line["coefficients"] for line in rounds],
        "scalars": [line["sites"] for line in rounds],
        "test": json.loads((server / "fedmed" / "result.json").read_text())["test"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="JSON file to write")
    out = parser.parse_args().out.absolute()
    torch.set_num_threads(1)
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        # What the linear layer and fine-tuning start from.
        os.environ["FEDMED_MODELS"] = str(Path(temporary) / "cxr_fedmoco/server/simulate_job/app_server")
        for name in TINY:
            started = time.monotonic()
            found[name] = run(name, Path(temporary))
            print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
            out.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
