"""Codes for what goes wrong when a job is deployed; they travel instead of NVFlare's texts, which may quote files."""

import logging
from typing import Any

from nvflare.private.admin_defs import Message, MsgHeader, ReturnCode, error_reply
from nvflare.private.defs import ERROR_MSG_PREFIX, RequestHeader, TrainingTopic
from nvflare.private.fed.client.admin import RequestProcessor

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


def code_of(text: str) -> str:
    """Return the code for a text of NVFlare's."""
    return next((code for phrase, code in PHRASES.items() if phrase in text), FAILED)


def keep(job_id: object, code: str, text: object) -> str:
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
            return error_reply(keep(job_id, self._other, error))
        failed = reply.get_header(MsgHeader.RETURN_CODE, ReturnCode.OK) != ReturnCode.OK
        if failed or str(reply.body).startswith(ERROR_MSG_PREFIX):
            reply.body = self._coded(job_id, str(reply.body).removeprefix(f"{ERROR_MSG_PREFIX}: "), failed)
        return reply

    def _coded(self, job_id: object, text: str, failed: bool) -> str:
        code = text if text in CODES else keep(job_id, code_of(text) if failed else self._other, text)
        return code if failed else f"{ERROR_MSG_PREFIX}: {code}"  # NVFlare tells by it that a job did not start

    @property
    def _other(self) -> str:
        return NOT_STARTED if TrainingTopic.START_JOB in self.get_topics() else FAILED
