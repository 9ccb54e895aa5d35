"""Look at every job before NVFlare parses anything of it: at the server when it is submitted, everywhere when deployed.

NVFlare has no place of its own for this: a server's checks run on a configuration that has been parsed, and so do an
``app_validator``'s. The component replaces the two methods through which every job comes. What goes wrong travels as a
code: NVFlare's texts may quote files.
"""

import logging
from typing import Any

from nvflare.apis.fl_component import FLComponent
from nvflare.private.admin_defs import Message, MsgHeader, ReturnCode, error_reply
from nvflare.private.defs import ERROR_MSG_PREFIX, RequestHeader, TrainingTopic
from nvflare.private.fed.client.admin import RequestProcessor
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from nvflare.private.fed.server.job_meta_validator import JobMetaValidator
from nvflare.private.fed.utils.app_deployer import AppDeployer

from fedmed.errors import JobError
from fedmed.flare.job_archive import check_app, check_job

log = logging.getLogger("fedmed.site")
NOT_PLAIN, FAILED, NOT_STARTED = "NOT_PLAIN_JSON", "DEPLOYMENT_FAILED", "START_FAILED"
# A part of NVFlare's own text -> its code. What is not here is DEPLOYMENT_FAILED.
PHRASES = {
    "BYOC not permitted": "BYOC_NOT_PERMITTED",
    "privacy scope": "PRIVACY_SCOPE_NOT_ALLOWED",
    "unsigned job": "NOT_SIGNED",
    "signature": "SIGNATURE_WRONG",
    "Missing required config": "CONFIG_MISSING",
    "Missing config folder": "CONFIG_MISSING",
    "not authorized": "NOT_AUTHORIZED",
}
CODES = {NOT_PLAIN, FAILED, NOT_STARTED, *PHRASES.values()}
TOPICS = {TrainingTopic.DEPLOY, TrainingTopic.START_JOB}
_validate, _deploy = JobMetaValidator.validate, AppDeployer.deploy


def code_of(text: str) -> str:
    """Return the code for a text of NVFlare's."""
    return next((code for phrase, code in PHRASES.items() if phrase in text), FAILED)


def _logged(job_id: object, code: str, text: object) -> str:
    """Write the text into this participant's own log, and return the code."""
    log.error("job %s: %s: %s", job_id, code, text)
    return code


class CodedReplies(RequestProcessor):
    """Answers as another processor does, but with a code where that one would send a text about an error.

    Args:
        inner: NVFlare's processor that deploys or starts a job.
    """

    def __init__(self, inner: RequestProcessor) -> None:
        self.inner = inner

    def get_topics(self) -> list[str]:
        """Names of the commands."""
        return self.inner.get_topics()

    def process(self, req: Message, app_ctx: Any) -> Message:
        """Answer a command of the server's."""
        job_id = req.get_header(RequestHeader.JOB_ID)
        try:
            reply = self.inner.process(req, app_ctx)
        except Exception as error:  # noqa: BLE001 - whatever it is, NVFlare would send its text
            return error_reply(_logged(job_id, self._other, error))
        failed = reply.get_header(MsgHeader.RETURN_CODE, ReturnCode.OK) != ReturnCode.OK
        if failed or str(reply.body).startswith(ERROR_MSG_PREFIX):
            reply.body = self._coded(job_id, str(reply.body).removeprefix(f"{ERROR_MSG_PREFIX}: "), failed)
        return reply

    def _coded(self, job_id: object, text: str, failed: bool) -> str:
        code = text if text in CODES else _logged(job_id, code_of(text) if failed else self._other, text)
        return code if failed else f"{ERROR_MSG_PREFIX}: {code}"  # NVFlare tells by it that a job did not start

    @property
    def _other(self) -> str:
        return NOT_STARTED if TrainingTopic.START_JOB in self.get_topics() else FAILED


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
        return _logged(job_id, NOT_PLAIN, error)
    except Exception as error:  # noqa: BLE001 - whatever it is, NVFlare would send its text
        return _logged(job_id, FAILED, error)
    return _logged(job_id, code_of(text), text) if text else None


class PlainJobs(FLComponent):
    """Part of every kit; takes its place when NVFlare builds it."""

    def __init__(self) -> None:
        super().__init__()
        JobMetaValidator.validate, AppDeployer.deploy = validate, deploy
        processors = ClientRequestProcessors.request_processors
        for place, one in enumerate(processors):
            if TOPICS & set(one.get_topics()) and not isinstance(one, CodedReplies):
                processors[place] = CodedReplies(one)
