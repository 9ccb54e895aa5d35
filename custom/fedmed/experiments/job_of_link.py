"""From a link's settings to a job: the one place of an experiment that knows how jobs are described."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmed.bundles.load import Bundle
from fedmed.bundles.score import Score
from fedmed.errors import JobError
from fedmed.jobs.app_configs import files
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import write_job
from fedmed.jobs.study import Study


@dataclass(frozen=True)
class LinkJob:
    """A job that a link runs.

    Attributes:
        job: its study with the method.
    """

    job: Job

    @property
    def seed(self) -> int:
        return self.job.study.seed

    def files(self) -> dict[str, str]:
        """Path -> text of the job's folder."""
        return files(self.job)

    def write(self, folder: Path) -> None:
        write_job(self.job, folder)

    def bundle(self) -> str:
        """Digest of the bundle with the job's overlays."""
        return Bundle(self.job.study.bundle, self.job.study.overlays).digest

    def score(self) -> Score:
        """By what the bundle's models are compared."""
        return Bundle(self.job.study.bundle).score

    def scored(self) -> set[str]:
        """Sites that must have a score: with partial sharing, sites without a decoder have none by design."""
        study = self.job.study
        all_shared = study.sharing == "full" and study.buffers != "local"
        return {site for site, role in study.sites.items() if all_shared or role == "supervised"}


def link_job(arm: str, given: Mapping[str, Any], **own: Any) -> LinkJob:
    """The job of a link.

    Args:
        arm: its name, for messages.
        given: what YAML says below ``job``.
        own: what the link says in its own words.

    Raises:
        JobError: ``job`` sets what a job does not know, or what the link says itself.
    """
    known = set(Study.model_fields) - set(own)
    if unknown := sorted(set(given) - known):
        raise JobError(f"arm '{arm}': 'job' may not set '{unknown[0]}'; it may set: {', '.join(sorted(known))}")
    return LinkJob(Job.of({**own, **given}))
