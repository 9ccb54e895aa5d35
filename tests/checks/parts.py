"""Parts of a site in jobs of which there is no folder."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from fedmed.checks.part_in_job import PartInJob, job_of_bundle


def part_in_job(bundle: str, role: str, **study: Any) -> PartInJob:
    """Part in a job with this bundle and these further keys of its study, with ``steps`` or ``epochs``."""
    job = job_of_bundle(bundle, role)
    values = {"steps": None, **study}
    return PartInJob("study", role, replace(job, study=job.study.model_copy(update=values)), Path("a job"))
