"""Parts of a startup kit that NVFlare loads from its ``local/resources.json``.

NVFlare makes the kit's folder the working directory before it builds them, so a relative path lies in the kit wherever
the kit has been carried to.
"""

import os
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.job_def_manager import SimpleJobDefManager
from nvflare.app_common.storages.filesystem_storage import FilesystemStorage


def _private_folder(folder: str) -> str:
    path = Path(folder).resolve()
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return str(path)


class KitJobs(SimpleJobDefManager):
    """Keeps submitted jobs and their results below the server's kit; NVFlare's default is a shared temporary folder.

    Args:
        uri_root: folder, absolute or relative to the kit; ``$NVFL_JOB_STORE_ROOT`` comes first, as in NVFlare.
        job_store_id: component that does the writing.
    """

    def __init__(self, uri_root: str = "store/jobs", job_store_id: str = "job_store") -> None:
        super().__init__(_private_folder(uri_root), job_store_id)


class KitStorage(FilesystemStorage):
    """A storage below the kit.

    Args:
        root_dir: folder, absolute or relative to the kit.
        uri_root: as in NVFlare.
    """

    def __init__(self, root_dir: str = "store/snapshots", uri_root: str = "/") -> None:
        super().__init__(root_dir=_private_folder(root_dir), uri_root=uri_root)


class ServerTimeouts(FLComponent):
    """Timeouts that NVFlare 2.9 reads in the server's main process from the environment alone.

    Its other places for them, a job's configurations, are read by the job's own process, which is too late.

    Args:
        client_outcome_wait_timeout: seconds that a job whose rounds are done waits for the last word of a site that has
            vanished; until then its state is RUNNING, and its result cannot be downloaded. NVFlare's default is 900.
    """

    def __init__(self, client_outcome_wait_timeout: float = 60.0) -> None:
        super().__init__()
        os.environ.setdefault("NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT", str(client_outcome_wait_timeout))


class CommandGuard(FLComponent):
    """Refuses commands that NVFlare lets through to a site without asking the site's ``authorization.json``.

    ``configure_job_log`` carries a logging configuration, and Python's can name any callable: it would be a way to run
    code at a site that allows no custom code.

    Args:
        refused: names of commands.
    """

    def __init__(self, refused: list[str] | None = None) -> None:
        super().__init__()
        self.refused = ["configure_job_log"] if refused is None else refused

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Called by FLARE for every command that arrives."""
        if event_type != EventType.AUTHORIZE_COMMAND_CHECK:
            return
        command = fl_ctx.get_prop(FLContextKey.COMMAND_NAME)
        if command in self.refused:
            reason = f"this site does not take the command '{command}'"
            fl_ctx.set_prop(FLContextKey.AUTHORIZATION_RESULT, False, sticky=False)
            fl_ctx.set_prop(FLContextKey.AUTHORIZATION_REASON, reason, sticky=False)
