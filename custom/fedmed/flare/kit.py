"""Parts of a startup kit that NVFlare loads from its ``local/resources.json``.

NVFlare makes the kit's folder the working directory before it builds them, so a relative path lies in the kit wherever
the kit has been carried to.
"""

import os
from pathlib import Path

from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import AdminCommandNames
from nvflare.apis.impl.job_def_manager import SimpleJobDefManager
from nvflare.app_common.storages.filesystem_storage import FilesystemStorage

from fedmed.flare.private_flare import (
    AdminCommands,
    ClientRequestProcessors,
    Message,
    RequestProcessor,
    SysCommandTopic,
    TrainingTopic,
    error_reply,
)


def _private_folder(folder: str) -> str:
    path = Path(folder).resolve()
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return str(path)


class KitJobs(SimpleJobDefManager):
    """Keeps submitted jobs and their results below the server's kit; NVFlare's default is a shared temporary folder.

    Args:
        uri_root: folder, absolute or relative to the kit; ``$NVFL_JOB_STORE_ROOT`` comes first, as in NVFlare.
    """

    def __init__(self, uri_root: str = "store/jobs", job_store_id: str = "job_store") -> None:
        super().__init__(_private_folder(uri_root), job_store_id)


class KitStorage(FilesystemStorage):
    """A storage below the kit.

    Args:
        root_dir: folder, absolute or relative to the kit.
    """

    def __init__(self, root_dir: str = "store/snapshots", uri_root: str = "/") -> None:
        super().__init__(root_dir=_private_folder(root_dir), uri_root=uri_root)


class ServerTimeouts(FLComponent):
    """Timeouts that NVFlare 2.9 reads in the server's main process from the environment alone.

    Args:
        client_outcome_wait_timeout: seconds that a job whose rounds are done waits for the last word of a site that has
            vanished; until then its state is RUNNING, and its result cannot be downloaded. NVFlare's default is 900.
    """

    def __init__(self, client_outcome_wait_timeout: float = 60.0) -> None:
        super().__init__()
        os.environ.setdefault("NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT", str(client_outcome_wait_timeout))


CLOSED = (
    SysCommandTopic.SHELL,
    SysCommandTopic.REPORT_ENV,
    SysCommandTopic.CONFIGURE_SITE_LOG,
    TrainingTopic.CONFIGURE_JOB_LOG,
    TrainingTopic.DELETE_RUN,
)


class _Closed(RequestProcessor):
    """Answers commands that a site does not take."""

    def get_topics(self) -> list[str]:
        """Names of the commands."""
        return list(CLOSED)

    def process(self, req: Message, app_ctx: object) -> Message:
        """Refuse, whoever asks."""
        return error_reply("this site takes no commands that read or delete its files or change what and where it logs")


class NoRemoteReading(FLComponent):
    """Takes away the commands that read a site's files or tell its paths: cat, grep, head, ls, pwd, tail, report_env.

    With them go ``configure_job_log`` and ``configure_site_log``: what a site logs, and where, is its own decision, and
    the settings of a job's log may name any function, which Python's logging then calls. A job's process has a command
    of its own for that, which the server can reach without the waiting process. ``delete_run`` goes too: it would
    remove the ledger of a job, or with a wrong id the settings of the site.

    NVFlare's client runs them on any path for whoever speaks for the server: only the server checks the path, and the
    site's ``authorization.json`` is asked only when the message itself says so.
    """

    def __init__(self) -> None:
        super().__init__()
        processors = ClientRequestProcessors.request_processors
        processors[:] = [one for one in processors if not set(one.get_topics()) & set(CLOSED)] + [_Closed()]
        commands = AdminCommands.commands
        commands[:] = [one for one in commands if one.get_command_name() != AdminCommandNames.CONFIGURE_JOB_LOG]
