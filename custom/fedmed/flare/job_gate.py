"""Look at every job before NVFlare parses anything of it: at the server when it is submitted, everywhere when deployed.

NVFlare has no place of its own for this: a server's checks run on a configuration that has been parsed, and so do an
``app_validator``'s. The component replaces the two methods through which every job comes.
"""

from typing import Any

from nvflare.apis.fl_component import FLComponent
from nvflare.private.defs import TrainingTopic
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from nvflare.private.fed.server.job_meta_validator import JobMetaValidator
from nvflare.private.fed.utils.app_deployer import AppDeployer

from fedmed.errors import JobError
from fedmed.flare.deploy_codes import FAILED, NOT_PLAIN, CodedReplies, code_of, keep
from fedmed.flare.job_archive import check_app, check_job

TOPICS = {TrainingTopic.DEPLOY, TrainingTopic.START_JOB}
_validate, _deploy = JobMetaValidator.validate, AppDeployer.deploy


def validate(self: JobMetaValidator, job_name: str, job_data: bytes | str) -> tuple[bool, str, dict]:
    """Refuse a submitted job that is more than plain JSON; what is left is for NVFlare to check."""
    try:
        check_job(job_data, job_name)
    except JobError as error:  # it speaks of what the submitter sent, and goes back to nobody else
        return False, str(error), {}
    return _validate(self, job_name, job_data)


def deploy(
    self: AppDeployer, workspace: Any, job_id: str, job_meta: dict, app_name: str, app_data: bytes, fl_ctx: Any
) -> str | None:
    """Refuse an app that is more than plain JSON; of any error only a code is returned.

    Returns:
        The code; nothing when the app was deployed.
    """
    try:
        check_app(app_data)
        text = _deploy(self, workspace, job_id, job_meta, app_name, app_data, fl_ctx)
    except JobError as error:
        return keep(job_id, NOT_PLAIN, error)
    except Exception as error:  # noqa: BLE001 - whatever it is, NVFlare would send its text
        return keep(job_id, FAILED, error)
    return keep(job_id, code_of(text), text) if text else None


class PlainJobs(FLComponent):
    """Part of every kit; takes its place when NVFlare builds it."""

    def __init__(self) -> None:
        super().__init__()
        JobMetaValidator.validate, AppDeployer.deploy = validate, deploy
        processors = ClientRequestProcessors.request_processors
        processors[:] = [one if isinstance(one, CodedReplies) else _coded(one) for one in processors]


def _coded(processor: Any) -> Any:
    return CodedReplies(processor) if TOPICS & set(processor.get_topics()) else processor
