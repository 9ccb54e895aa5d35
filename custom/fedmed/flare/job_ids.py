"""Ids of jobs become folders beside a kit's own, so only those that NVFlare makes are taken: random UUIDs.

NVFlare lets a job bring an id of its own, takes any plain name for it, and clears the folder of that name before it
unpacks the job: with ``local`` the settings of the whole kit.
"""

import logging
import uuid
from pathlib import Path
from typing import Any

from nvflare.private.admin_defs import Message, error_reply
from nvflare.private.defs import RequestHeader
from nvflare.private.fed.client.admin import RequestProcessor

from fedmed.errors import JobError

log = logging.getLogger("fedmed.site")
WRONG_ID = "JOB_ID_WRONG"  # what the server is told


def is_job_id(value: object) -> bool:
    """Whether NVFlare could have made this id: ``str(uuid.uuid4())``, letter by letter."""
    try:
        return isinstance(value, str) and value == str(uuid.UUID(value)) and uuid.UUID(value).version == 4
    except ValueError:
        return False


def check_job_id(job_id: object) -> None:
    """Refuse what is not an id.

    Raises:
        JobError: NVFlare makes no such ids.
    """
    if not is_job_id(job_id):
        raise JobError(f"{job_id!r} is not an id that NVFlare makes; submit the job without an id")


def check_new(job_id: object, kit: Path) -> None:
    """Refuse an id whose folder may not be written.

    Args:
        job_id: of a job that is about to be unpacked.
        kit: folder in which the job's own folder will lie.

    Raises:
        JobError: NVFlare makes no such ids, or there is a file or folder of this name already.
    """
    check_job_id(job_id)
    if (folder := kit / str(job_id)).exists() or folder.is_symlink():
        raise JobError(f"{folder} exists already, and no job is unpacked twice; submit the job again")


class KnownJobs(RequestProcessor):
    """Answers a site's commands as another processor does, but none about a job that cannot be one.

    Args:
        inner: NVFlare's processor.
    """

    def __init__(self, inner: RequestProcessor) -> None:
        self.inner = inner

    def get_topics(self) -> list[str]:
        """Names of the commands."""
        topics: list[str] = self.inner.get_topics()
        return topics

    def process(self, req: Message, app_ctx: Any) -> Message:
        """Answer a command of the server's. Some are about no job."""
        job_id = req.get_header(RequestHeader.JOB_ID)
        if job_id not in (None, "") and not is_job_id(job_id):
            log.error("%s: %r is not an id that NVFlare makes; the command was refused", req.topic, job_id)
            return error_reply(WRONG_ID)
        return self.inner.process(req, app_ctx)
