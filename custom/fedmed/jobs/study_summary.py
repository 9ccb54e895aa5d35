"""Summary of a study and of what it asks of its sites, for a person and for a program."""

from collections import Counter
from typing import Any

from fedmed.jobs.job import Job
from fedmed.jobs.needed_extras import extras_line
from fedmed.jobs.needed_files import needed_files

ROLES = {"supervised": "with labels", "unsupervised": "without labels", "evaluate": "only scored"}


def length(rounds: int, steps: int | None, epochs: float | None) -> str:
    """Rounds of a study, and the steps or epochs of each, in words."""
    of_round = f"{steps} steps" if steps else f"{epochs:g} epoch{'s' * (epochs != 1)}"
    return f"{rounds} round{'s' * (rounds != 1)} of {of_round}"


def summary(job: Job) -> dict[str, Any]:
    """Plain values that say what a job is: its method, bundle, sites, length and the values beside the model."""
    study = job.study
    return {
        "name": job.name,
        "method": job.method.spec()["path"],
        "algorithm": study.algorithm,
        "bundle": study.bundle,
        "sites": dict(study.sites),
        "rounds": study.rounds,
        "steps": study.steps,
        "gain": study.gain,
        "epochs": study.epochs,
        "allowed_extras": job.extras,
        "install": extras_line(job),
        "missing_here": extras_line(job, only_missing=True),
        "files": [one.name for one in needed_files(job)],
    }


def summary_lines(facts: dict[str, Any]) -> list[str]:
    """The same as sentences."""
    counts = Counter(facts["sites"].values())
    sites = ", ".join(f"{counts[role]} {words}" for role, words in ROLES.items() if counts[role])
    lines = [
        f"{facts['name']}: a sound study",
        f"  method    {facts['method']}" + (f", with {facts['algorithm']}" if facts["algorithm"] else ""),
        f"  bundle    {facts['bundle']}",
        f"  sites     {sites}: {', '.join(facts['sites'])}",
        f"  length    {length(facts['rounds'], facts['steps'], facts['epochs'])}",
    ]
    if facts["gain"]:
        lines.append("  gain      each site with labels also trains a model alone, with as many steps, and tests it")
    if names := facts["allowed_extras"]:
        lines.append(f"  beside the model it asks for {', '.join(names)}; a site lets them go by")
        lines.append(f"    privacy: {{allowed_extras: [{', '.join(names)}]}}")
    if facts["install"]:
        lines.append(f"  install   {facts['install']}" + ("" if facts["missing_here"] else "; all of it is here"))
    if facts["files"]:
        lines.append(f"  files     {', '.join(facts['files'])}: fedmed fetch-list says where they are from and belong")
    return lines
