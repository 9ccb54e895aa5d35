"""Codes that a site answers when deploying or starting a job fails; the text stays in its log."""

from pathlib import Path

import nvflare
import pytest
from nvflare.private.admin_defs import Message, MsgHeader, ReturnCode, error_reply, ok_reply
from nvflare.private.defs import ERROR_MSG_PREFIX, TrainingTopic
from nvflare.private.fed.client.admin import RequestProcessor
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

from fedmed.flare import job_gate
from fedmed.flare.job_gate import CODES, PHRASES, CodedReplies, code_of

PATIENT = "/data/Meier-4711"


class Answers(RequestProcessor):
    """A processor of NVFlare's that answers as it is told."""

    def __init__(self, topic: str, answer: Message | Exception) -> None:
        self.topic, self.answer = topic, answer

    def get_topics(self) -> list[str]:
        return [self.topic]

    def process(self, req: Message, app_ctx: object) -> Message:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def requested(topic: str, answer: Message | Exception) -> Message:
    return CodedReplies(Answers(topic, answer)).process(Message(topic, b""), None)


@pytest.mark.parametrize(
    ("topic", "answer", "code"),
    [
        (TrainingTopic.DEPLOY, ValueError(f"cannot read {PATIENT}"), "DEPLOYMENT_FAILED"),
        (TrainingTopic.DEPLOY, error_reply(f"exception {PATIENT}"), "DEPLOYMENT_FAILED"),
        (TrainingTopic.DEPLOY, error_reply(f"Missing required config inside {PATIENT} folder."), "CONFIG_MISSING"),
        (TrainingTopic.DEPLOY, error_reply(f"{ERROR_MSG_PREFIX}: NOT_PLAIN_JSON"), "NOT_PLAIN_JSON"),
        (TrainingTopic.START_JOB, ValueError(PATIENT), "START_FAILED"),
    ],
)
def test_an_error_becomes_a_code(topic, answer, code, caplog):
    reply = requested(topic, answer)
    assert reply.body == code and reply.get_header(MsgHeader.RETURN_CODE) == ReturnCode.ERROR
    assert (PATIENT in caplog.text) == (code != "NOT_PLAIN_JSON"), "the text stays in the site's own log"


def test_nvflare_still_sees_that_a_job_did_not_start(caplog):
    """It looks at the beginning of the text."""
    reply = requested(TrainingTopic.START_JOB, Message("reply", f"{ERROR_MSG_PREFIX}: Start job exception: {PATIENT}."))
    assert reply.body == f"{ERROR_MSG_PREFIX}: START_FAILED" and PATIENT in caplog.text


@pytest.mark.parametrize("answer", [ok_reply(body="deployed app to site"), Message("reply", "OK"), ok_reply()])
def test_what_is_no_error_stays(answer):
    body = answer.body
    assert requested(TrainingTopic.DEPLOY, answer).body == body


def test_every_phrase_is_one_of_nvflares():
    root = Path(nvflare.__file__).parent
    texts = [path.read_text("utf-8") for path in (root / "private" / "fed").rglob("*.py")]
    assert not [phrase for phrase in PHRASES if not any(phrase in text for text in texts)]
    assert code_of("BYOC not permitted") == "BYOC_NOT_PERMITTED" and code_of(PATIENT) == "DEPLOYMENT_FAILED"
    assert all(code.replace("_", "").isalpha() and code.isupper() for code in CODES)


def test_nvflare_has_the_commands_that_are_wrapped():
    topics = [topic for one in ClientRequestProcessors.request_processors for topic in one.get_topics()]
    assert topics.count(TrainingTopic.DEPLOY) == topics.count(TrainingTopic.START_JOB) == 1
    assert job_gate.NOT_PLAIN in CODES
