"""All that FedMed takes from ``nvflare.private``, which may change with any version of NVFlare: names and why.

Other modules import these names from here. A name is looked up when it is imported, so a process loads only what it
uses.
"""

from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Any

from fedmed.errors import FlareVersionError, first_line

TESTED = "2.9.0"  # version of NVFlare
PROCESS = "nvflare.private.fed.app"
# Modules that NVFlare starts as processes. A process is found by its command line: NVFlare tells nobody its id.
JOB_PROCESS = f"{PROCESS}.server.runner_process"  # of a job, at the server; one that outlives its server is killed
SIMULATED_SITE = f"{PROCESS}.simulator.simulator_worker"  # of a site; the simulator waits for ever for a killed one


@dataclass(frozen=True)
class PrivateName:
    """A class, function or constant of ``nvflare.private``.

    Attributes:
        module: that defines it.
        reason: what FedMed needs it for, which NVFlare's public interface does not offer.
        parts: attributes that FedMed replaces or changes.
    """

    module: str
    reason: str
    parts: tuple[str, ...] = ()


NAMES = {
    # Commands that a server sends to the waiting process of a site: there is no public hook before they are done.
    "Message": PrivateName("nvflare.private.admin_defs", "reading the server's commands before a site does them"),
    "MsgHeader": PrivateName("nvflare.private.admin_defs", "telling whether a site's answer to a command is an error"),
    "ReturnCode": PrivateName("nvflare.private.admin_defs", "telling whether a site's answer to a command is an error"),
    "error_reply": PrivateName("nvflare.private.admin_defs", "refusing a server's command"),
    "ERROR_MSG_PREFIX": PrivateName("nvflare.private.defs", "finding errors in answers, whose texts may quote files"),
    "RequestHeader": PrivateName("nvflare.private.defs", "reading which job a server's command is about"),
    "SysCommandTopic": PrivateName(
        "nvflare.private.defs",
        "naming the commands to read a site's files, which are closed",
        ("SHELL", "REPORT_ENV", "CONFIGURE_SITE_LOG"),
    ),
    "TrainingTopic": PrivateName(
        "nvflare.private.defs",
        "naming the commands about jobs, which are guarded or closed",
        ("START_JOB", "DEPLOY", "CONFIGURE_JOB_LOG", "DELETE_RUN"),
    ),
    "RequestProcessor": PrivateName(
        "nvflare.private.fed.client.admin",
        "putting a guard before what does a server's commands",
        ("get_topics", "process"),
    ),
    "ClientRequestProcessors": PrivateName(
        "nvflare.private.fed.client.client_req_processors",
        "guarding and closing commands of a site's waiting process",
        ("request_processors",),
    ),
    "AdminCommands": PrivateName(
        "nvflare.private.fed.client.admin_commands", "closing a command of a job's process at a site", ("commands",)
    ),
    # Every job comes through these two methods; public checks run after NVFlare has parsed the job's files.
    "JobMetaValidator": PrivateName(
        "nvflare.private.fed.server.job_meta_validator",
        "refusing a submitted job that is more than plain JSON before it is parsed",
        ("validate",),
    ),
    "AppDeployer": PrivateName(
        "nvflare.private.fed.utils.app_deployer",
        "refusing a job that is more than plain JSON before it is unpacked",
        ("deploy",),
    ),
    # Public events tell neither which site's process ended nor why.
    "CellMessageHeaderKeys": PrivateName("nvflare.private.defs", "reading which site reports which jobs"),
    "JobFailureMsgKey": PrivateName("nvflare.private.defs", "reading how a site's process for a job ended"),
    "FederatedServer": PrivateName(
        "nvflare.private.fed.server.fed_server",
        "writing into a job's log which site's process ended it",
        ("_sync_client_jobs", "process_job_failure"),
    ),
    "ServerEngine": PrivateName(
        "nvflare.private.fed.server.server_engine",
        "writing into a job's log that its process at the server is gone",
        ("wait_for_complete",),
    ),
}


def __getattr__(name: str) -> Any:
    """The name of NVFlare's that is imported from here.

    Raises:
        FlareVersionError: this version of NVFlare lacks it, or a part of it.
    """
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; is it missing in its table NAMES?")
    wanted = NAMES[name]
    try:
        resolved = getattr(import_module(wanted.module), name)
        for part in wanted.parts:
            getattr(resolved, part)
    except (ImportError, AttributeError) as error:
        raise FlareVersionError(
            f"NVFlare {version('nvflare')} lacks what FedMed needs '{name}' of {wanted.module} for: {wanted.reason} "
            f"({first_line(error)}). FedMed was tested with NVFlare {TESTED}: install that, or correct "
            f"{__name__} and what uses '{name}'"
        ) from error
    return resolved
