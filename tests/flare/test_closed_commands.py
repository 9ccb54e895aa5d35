"""Commands that a site does not take, from nobody."""

import pytest
from nvflare.apis.fl_constant import AdminCommandNames
from nvflare.private.admin_defs import Message, MsgHeader, ReturnCode
from nvflare.private.defs import CellChannel, InfoCollectorTopic, RequestHeader, SysCommandTopic, TrainingTopic
from nvflare.private.fed.client.admin_commands import AdminCommands
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

from fedmed.flare.kit import CLOSED, NoRemoteReading

# What a site answers: that it is there, what it has, how its jobs do; jobs come and end.
ANSWERED = {
    *(TrainingTopic.CHECK_STATUS, TrainingTopic.GET_SCOPES, SysCommandTopic.SYS_INFO, SysCommandTopic.REPORT_RESOURCES),
    *(SysCommandTopic.REPORT_VERSION, TrainingTopic.SHUTDOWN, TrainingTopic.RESTART, TrainingTopic.NOTIFY_JOB_STATUS),
    *(InfoCollectorTopic.SHOW_STATS, InfoCollectorTopic.SHOW_ERRORS, InfoCollectorTopic.RESET_ERRORS),
    *(TrainingTopic.CHECK_RESOURCE, TrainingTopic.CANCEL_RESOURCE, TrainingTopic.DEPLOY, TrainingTopic.START_JOB),
    *(TrainingTopic.ABORT, TrainingTopic.ABORT_TASK),
}


@pytest.fixture
def processors(monkeypatch):
    """Topic -> what answers it in a kit."""
    monkeypatch.setattr(ClientRequestProcessors, "request_processors", list(ClientRequestProcessors.request_processors))
    monkeypatch.setattr(AdminCommands, "commands", list(AdminCommands.commands))
    NoRemoteReading()
    return {topic: one for one in ClientRequestProcessors.request_processors for topic in one.get_topics()}


def test_every_command_of_nvflare_is_either_answered_or_closed(processors):
    """One that a newer NVFlare has needs a look first."""
    assert set(processors) == ANSWERED | set(CLOSED) and not ANSWERED & set(CLOSED)


@pytest.mark.parametrize("topic", CLOSED)
@pytest.mark.parametrize("body", ["DEBUG", "reload", '{"version": 1}', "cat local/fedmed_site.yaml", ""])
def test_a_closed_one_is_refused_whatever_it_says(processors, topic, body):
    message = Message(topic, body)
    message.set_header(RequestHeader.JOB_ID, "local")
    reply = processors[topic].process(message, None)
    assert reply.get_header(MsgHeader.RETURN_CODE) == ReturnCode.ERROR and "takes no commands" in reply.body


def test_the_server_cannot_change_how_a_job_logs_by_asking_its_process(processors):
    """It reaches that process by the channel on which the site's own waiting process speaks to it."""
    assert CellChannel.CLIENT_COMMAND == "client_command"
    assert AdminCommands.get_command(AdminCommandNames.CONFIGURE_JOB_LOG) is None
    assert AdminCommands.get_command(AdminCommandNames.ABORT) is not None
