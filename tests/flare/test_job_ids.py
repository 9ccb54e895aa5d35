"""Ids that may become a folder of a kit."""

import uuid

import pytest
from nvflare.private.admin_defs import Message, MsgHeader, ReturnCode, ok_reply
from nvflare.private.defs import RequestHeader, TrainingTopic
from nvflare.private.fed.client.admin import RequestProcessor

from fedmed.errors import JobError
from fedmed.flare.job_archive import KnownJobs, check_new, is_job_id

ID = "0a4c5f3e-2b1d-4c6e-8f70-9182a3b4c5d6"
FOLDERS = ["local", "startup", "transfer", "store", "snapshots", "audit.log", "logs"]  # of a kit
WRONG = [
    *FOLDERS,
    *(".", "..", "../x", "/etc", "local/x", f"{ID}/..", f"../{ID}", "a-job", "simulate_job"),
    *(ID.upper(), ID.replace("-", ""), f"{{{ID}}}", f"urn:uuid:{ID}", f"{ID}\n", f" {ID}", ID[:-1], f"{ID}0"),
    *("09b93860-e9db-11f1-b971-02fc00000001", "00000000-0000-0000-0000-000000000000"),  # of a clock, and none
    ID.replace("a", "ａ"),  # a wide letter
    *("", None, 7, ["local"], uuid.UUID(ID), b"local"),
]


class Answers(RequestProcessor):
    """A processor of NVFlare's that does as it is told, and remembers it."""

    def __init__(self, topic: str) -> None:
        self.topic, self.told = topic, []

    def get_topics(self) -> list[str]:
        return [self.topic]

    def process(self, req: Message, app_ctx: object) -> Message:
        self.told.append(req)
        return ok_reply()


def test_what_nvflare_makes_is_an_id():
    assert is_job_id(ID) and all(is_job_id(str(uuid.uuid4())) for _ in range(100))


@pytest.mark.parametrize("value", WRONG)
def test_nothing_else_is(value, tmp_path):
    assert not is_job_id(value)
    with pytest.raises(JobError, match="is not an id that NVFlare makes"):
        check_new(value, tmp_path)


@pytest.mark.parametrize("make", ["mkdir", "touch", "symlink_to"])
def test_no_job_takes_the_place_of_what_is_there(make, tmp_path):
    check_new(ID, tmp_path)
    getattr(tmp_path / ID, make)(*(["nowhere"] if make == "symlink_to" else []))
    with pytest.raises(JobError, match="exists already"):
        check_new(ID, tmp_path)


@pytest.mark.parametrize("topic", [TrainingTopic.ABORT, TrainingTopic.DEPLOY, TrainingTopic.DELETE_RUN])
def test_a_site_takes_no_command_about_a_job_that_cannot_be_one(topic, caplog):
    inner = Answers(topic)
    for job_id in (*filter(None, WRONG), ID):
        message = Message(topic, "")
        message.set_header(RequestHeader.JOB_ID, job_id)
        reply = KnownJobs(inner).process(message, None)
        assert (reply.get_header(MsgHeader.RETURN_CODE) == ReturnCode.OK) == (job_id == ID), job_id
    assert len(inner.told) == 1 and "'local' is not an id that NVFlare makes" in caplog.text


def test_commands_about_no_job_are_answered():
    inner = Answers(TrainingTopic.CHECK_STATUS)
    KnownJobs(inner).process(Message(TrainingTopic.CHECK_STATUS, ""), None)
    assert len(inner.told) == 1
