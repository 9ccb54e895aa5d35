#!/usr/bin/env python3
"""Digests of every job's models, to see that a change leaves them as they were, bit for bit.

    python benchmarks/model_digests.py before.json      # on the old commit
    python benchmarks/model_digests.py after.json       # on the new one
    diff before.json after.json

Runs each job of jobs/ and each study of studies/ for two or three rounds with tiny images, in one process and on one
thread, and the same with its controls where it has some: about seven minutes on one core. Writes SHA-256 of the models,
the sites' weights in each round, their scalars and scores. Compare on one machine: another processor may round
differently.
"""

import argparse
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import yaml

from fedmed.bundles.bundle import Bundle
from fedmed.durable_files import load_tensors
from fedmed.federation.loop import run_job
from fedmed.jobs.control_study import control_job, kinds_for
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import read_job, write_job
from fedmed.settings.site import SiteConfig, load_file

CHECKOUT = Path(__file__).resolve().parents[1]
JOBS, STUDIES, SITES = CHECKOUT / "jobs", CHECKOUT / "studies", CHECKOUT / "site_configs/demo"
CT = {"batch_size": 1, "patch_size": [16, 16, 16], "window_size": [64, 64, 16], "pixdim": [5.5, 5.5, 12.0]}
LARGE = {**CT, "patch_size": [128, 128, 32], "window_size": [128, 128, 32]}  # the smallest that AHNet takes
XRAY = {"batch_size": 8, "image_size": 48}
FRAMES = {"image_size": [24, 32], "batch_size": 8}
PHASES = {"image_size": [24, 32], "batch_size": 16, "frame_rate": 2.0}
CYCLES = {"batch_size": 2, "clip_size": 8, "confidence": 0.2}
# Barely trained sites without labels are to move.
SIZES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {  # bundle -> its sites; settings; those without labels
    "covid_ct_segmentation": ("chest_ct_tiny", CT, {"unsupervised_learning_rate": 1e-3, "confidence": 0.5}),
    "cxr_classification": ("chest_xray_tiny", XRAY, {"confidence": 0.4}),
    "surgical_phase_classification": ("lap_phases_tiny", PHASES, CYCLES),
    "surgical_tool_classification": ("lap_tools_tiny", FRAMES, {}),
    "instrument_segmentation": ("lap_instruments_tiny", {"image_size": [32, 40], "batch_size": 2}, {}),
}
QUEUE = {"queue_size": 8, "metadata_min_images": 8, "rsa_samples": 8}
SETTINGS: dict[str, dict[str, Any]] = {  # job -> settings in place of those of its bundle, of every site
    "covid_fssl_paper": LARGE,
    "covid_agreement_paper": LARGE,
    "tools_paper": {**FRAMES, "image_size": [63, 64]},
    "instruments_fedst_paper": {"image_size": [64, 64], "batch_size": 1, "indicator": "onehot"},
    "instruments_pretraining_paper": {"image_size": [64, 64], "batch_size": 1},
}
STARTS = {  # job -> that whose model it begins with; others with a checkpoint: instruments_pretraining
    "cxr_linear": "cxr_fedmoco",
    "cxr_finetune": "cxr_fedmoco",
    "phases_fedtcc_labels": "phases_fedtcc",
    "phases_tecno": "phases_fullsup",
    "instruments_fedst_paper": "instruments_pretraining_paper",
}


def in_order() -> list[str]:
    """Names of all jobs and studies; those that begin with another's model come after it."""
    names = sorted([path.name for path in JOBS.iterdir()] + [path.stem for path in STUDIES.iterdir()])
    return sorted(names, key=lambda name: read_job(place(name)).study.checkpoint is not None)


def place(name: str) -> Path:
    """The folder of a job, or the file of a study."""
    return JOBS / name if (JOBS / name).is_dir() else STUDIES / f"{name}.yaml"


def site(name: str, kind: str, job: Job, folder: Path) -> SiteConfig:
    """A tiny site that sends and releases what the job asks for."""
    extras = sorted(value.name for value in job.method.values())
    values: dict[str, Any] = {"site": name, "demo": kind, "device": "cpu", "threads": 1, "allow_release": True}
    values |= {"privacy": {"allowed_extras": extras, "extras_min_images": 4}} if extras else {}
    demo = yaml.safe_load((SITES / f"{name}.yaml").read_text())
    values |= {key: demo[key] for key in ("words", "datalist") if key in demo}
    if kind == "lap_phases_tiny" and job.study.sites[name] == "supervised":  # some have labels for such jobs alone
        values["datalist"] = "datalist_labelled.json"
    path = folder / "sites" / job.name / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(values))
    return load_file(path)


def tiny_job(name: str, folder: Path) -> Job:
    """A job with two or three rounds of a step or a pass."""
    job = read_job(place(name))
    study = job.study
    late = study.warm_start.rounds > 0
    warm = study.warm_start.model_dump(exclude_none=True) | {"rounds": int(late)}
    values: dict[str, Any] = {"rounds": 3 if late else 2, "warm_start": warm, "overrides": overrides(name, job)}
    values |= {"epochs": 1} if study.epochs else {"steps": 2}
    values |= {"encoder": None} if study.encoder else {}
    values |= {"min_rounds": 1} if study.min_rounds > 1 else {}
    values |= {"mean_rounds": 2} if study.select == "mean" else {}
    if "exchange_from" in study.method.args:
        args = study.method.args | {"exchange_from": 1}
        values["method"] = {"path": study.method.path, "args": args}
    return job.changed(values)


def overrides(name: str, job: Job) -> dict[str, dict[str, Any]]:
    """The job's settings of every role, with tiny images."""
    _, small, without = SIZES[job.study.bundle]
    tiny = {**small, **SETTINGS.get(name, {}), **QUEUE}
    made = {}
    for role in job.study.sites.values():
        known = Bundle(job.study.bundle, job.overlays(role)).overridable
        said = {**tiny, **(without if role == "unsupervised" else {})}
        made[role] = job.study.overrides.get(role, {}) | {key: value for key, value in said.items() if key in known}
    return made


def digest(path: Path) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(load_tensors(path)["model"].items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


def run(job: Job, folder: Path) -> dict[str, Any]:
    """Digests of all that a run leaves."""
    kind = SIZES[job.study.bundle][0]
    sites = {name: site(name, kind, job, folder) for name in job.study.sites}
    run_job(write_job(job, folder / "jobs" / job.name), folder / job.name, sites)
    server = folder / job.name / "server" / "simulate_job"
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


def with_controls(job: Job) -> Iterator[Job]:
    """A job, and its controls where sites train without labels; those of published sizes would take minutes each."""
    yield job
    study = job.study
    both = study.of_role("unsupervised") and study.of_role("supervised") and study.evaluate
    if both and not job.name.endswith("_paper"):
        for kind in kinds_for(job):
            yield control_job(job, kind=kind)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="JSON file to write")
    parser.add_argument("--only", nargs="+", metavar="JOB", help="these jobs, and none that begin with another's model")
    options = parser.parse_args()
    out = options.out.absolute()
    torch.set_num_threads(1)
    digests = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in options.only or in_order():
            start = STARTS.get(name, "instruments_pretraining")
            os.environ["FEDMED_MODELS"] = str(folder / start / "server/simulate_job/app_server")
            for job in with_controls(tiny_job(name, folder)):
                started = time.monotonic()
                digests[job.name] = run(job, folder)
                print(f"{job.name}: {time.monotonic() - started:.0f} s", flush=True)
                out.write_text(json.dumps(digests, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
