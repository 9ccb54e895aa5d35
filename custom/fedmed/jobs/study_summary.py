"""What a study is and asks of its sites, for a person and for a program."""

from collections import Counter
from typing import Any

from fedmed.jobs.job import Job

ROLES = {"supervised": "with labels", "unsupervised": "without labels", "evaluate": "only scored"}


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
        "epochs": study.epochs,
        "allowed_extras": sorted({*job.exchange.names, *job.method.with_update(needed=True)}),
    }


def summary_lines(told: dict[str, Any]) -> list[str]:
    """The same as sentences."""
    counts = Counter(told["sites"].values())
    sites = ", ".join(f"{counts[role]} {words}" for role, words in ROLES.items() if counts[role])
    length = f"{told['steps']} steps" if told["steps"] else f"{told['epochs']:g} epochs"
    lines = [
        f"{told['name']}: a sound study",
        f"  method    {told['method']}" + (f", with {told['algorithm']}" if told["algorithm"] else ""),
        f"  bundle    {told['bundle']}",
        f"  sites     {sites}: {', '.join(told['sites'])}",
        f"  length    {told['rounds']} rounds of {length}",
    ]
    if names := told["allowed_extras"]:
        lines.append(f"  beside the model it asks for {', '.join(names)}; a site lets them go by")
        lines.append(f"    privacy: {{allowed_extras: [{', '.join(names)}]}}")
    return lines
