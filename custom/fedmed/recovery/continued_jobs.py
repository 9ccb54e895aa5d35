"""Where the jobs that a resumed run continues lie, seen from the job that goes on."""

import os
from collections.abc import Mapping
from pathlib import Path

from fedmed.jobs.job_id import check_plain

ROOT = "FEDMED_RESUME_ROOT"  # only scripts/simulate.py sets it: NVFlare deletes a simulator's workspace at every start


def folder_of_job(id: str, folder: Path) -> Path:
    """Where another job kept what this one keeps in ``folder``.

    Args:
        id: of the other job.
        folder: ``<workspace>/<this job>/fedmed``; jobs of one site or server lie side by side. Where
            ``$FEDMED_RESUME_ROOT`` is set, ``id`` is a simulator's workspace below it.

    Raises:
        JobError: the id is not a plain name.
    """
    folder, id = Path(folder), check_plain(id)
    if root := os.environ.get(ROOT):
        return Path(root, id, *folder.parts[-3:])  # <site>/simulate_job/fedmed
    return folder.parent.parent / id / folder.name


def jobs_with_state(round: int, earlier: Mapping[str, int]) -> list[str]:
    """Jobs that can hold a site's state of a round, the newest first.

    It was made by the first job that got beyond the round; later ones may hold copies. What a still earlier job has
    under that round's name was never taken into the model, and the round was repeated.

    Args:
        round: counted from 0.
        earlier: job -> rounds of the run that were done when it ended, oldest first.
    """
    return [id for id, done in reversed(list(earlier.items())) if round < done]
