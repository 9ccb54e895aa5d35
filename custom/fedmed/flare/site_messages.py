"""Messages that a site takes and sends: those of a job's tasks and of its beginning and end, with its server alone.

NVFlare's processes register dozens of kinds of messages, and answer each of them to whoever is connected: another site
can ask for the model that waits for a task, the server for texts of errors, for variables of the configuration, for any
event to be fired. Some workflows make sites send one another what no limit has looked at. So there are two lists here,
of what comes in and of what goes out, and everything else is refused and logged.

All requests of a process, whatever has registered or sends them, pass two methods of NVFlare's ``CoreCell``; messages
in pieces, and those sent in bulk, pass them piece by piece. The component puts the lists there, before the process has
its first connection. What comes in is looked at before it is decoded.
"""

import functools
import inspect
import logging
from collections.abc import Mapping
from typing import Any

from nvflare import __version__
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import AdminCommandNames, ReservedTopic, ServerCommandNames
from nvflare.app_opt.job_launcher.workspace_cell_transfer import WORKSPACE_TRANSFER_CHANNEL
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.core_cell import CoreCell, TargetMessage
from nvflare.fuel.f3.cellnet.defs import CellChannel, CellChannelTopic, MessageHeaderKey, MessagePropKey, ReturnCode
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.download_service import OBJ_DOWNLOADER_CHANNEL
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_ACK_TOPIC,
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    STREAM_ERROR_TOPIC,
    StreamHeaderKey,
)
from nvflare.widgets.fed_event import FED_EVENT_TOPIC

from fedmed.errors import PrivacyError, SiteConfigError
from fedmed.flare.lost_processes import watch_site
from fedmed.flare.scalar_events import taken

log = logging.getLogger("fedmed.site")
SERVER, THIS_SITE, PEER = "server", "own", "peer"  # whose process: the server's, one of this site's, anybody else's
BOTH = frozenset({SERVER, THIS_SITE})
ANY = frozenset({"*"})
CERTIFICATES = "credential_manager"  # NVFlare's channel on which cells show each other their certificates
ABOUT_RUN = frozenset({ReservedTopic.SYNC_RUNNER, ReservedTopic.JOB_HEART_BEAT, ReservedTopic.TASK_CHECK})
COMMANDS = frozenset(
    {AdminCommandNames.CHECK_STATUS, AdminCommandNames.ABORT, AdminCommandNames.ABORT_TASK, AdminCommandNames.SHUTDOWN}
)
Rules = Mapping[str, tuple[frozenset[str], frozenset[str]]]  # channel -> topics, and with whom
_COMMON: Rules = {
    STREAM_CHANNEL: (frozenset({STREAM_ACK_TOPIC, STREAM_ERROR_TOPIC}), BOTH),  # of pieces; of these, what they are for
    CellChannel.RETURN_ONLY: (ANY, BOTH),
    CellChannel.CELLNET: (frozenset({CellChannelTopic.Bye}), BOTH),
    CERTIFICATES: (ANY, BOTH),
    OBJ_DOWNLOADER_CHANNEL: (ANY, frozenset({SERVER})),  # large tensors of a task and of its answer
    WORKSPACE_TRANSFER_CHANNEL: (ANY, frozenset({THIS_SITE})),  # a job in a container
    CellChannel.CLIENT_COMMAND: (COMMANDS, frozenset({THIS_SITE})),
}
TAKEN: Rules = {
    **_COMMON,
    CellChannel.CLIENT_MAIN: (ANY, BOTH),  # commands; fedmed.flare.kit has taken away those that read
    CellChannel.AUX_COMMUNICATION: (frozenset({ReservedTopic.END_RUN}), frozenset({SERVER})),
}
SENT: Rules = {
    **_COMMON,
    CellChannel.CLIENT_MAIN: (ANY, frozenset({THIS_SITE})),
    CellChannel.SERVER_MAIN: (ANY, frozenset({SERVER})),
    CellChannel.SERVER_COMMAND: (
        frozenset({ServerCommandNames.GET_TASK, ServerCommandNames.SUBMIT_UPDATE}),
        frozenset({SERVER}),
    ),
    CellChannel.AUX_COMMUNICATION: (ABOUT_RUN | {FED_EVENT_TOPIC}, frozenset({SERVER})),
}
REFUSED = ReturnCode.INVALID_REQUEST
WAYS = ("_fire_and_forget", "_broadcast_request", "_send_request")  # of a cell, for what is sent in pieces


def may_pass(rules: Rules, channel: str, topic: str, party: str) -> bool:
    """Tell whether a kind of message is on a list, with this party."""
    topics, parties = rules.get(channel, (frozenset(), frozenset()))
    return party in parties and (topics is ANY or topic in topics)


def kind_of(channel: str, topic: str, headers: Mapping[str, Any]) -> tuple[str, str]:
    """Channel and topic that a message is for; a piece says so in its headers."""
    if (channel, topic) == (STREAM_CHANNEL, STREAM_DATA_TOPIC):
        return str(headers.get(StreamHeaderKey.CHANNEL)), str(headers.get(StreamHeaderKey.TOPIC))
    return channel, topic


def party_of(cell: CoreCell, name: str) -> str:
    """Party whose process a cell is, by its full name."""
    root = FQCN.split(name)[0] if name else ""
    return THIS_SITE if root == cell.my_info.root else SERVER if root == FQCN.ROOT_SERVER else PEER


def sender_of(cell: CoreCell, origin: str, message: Message) -> str:
    """Party that has sent a request; one of the own site's is believed only over a connection within the site."""
    party, endpoint = party_of(cell, origin), message.get_prop(MessagePropKey.ENDPOINT)
    return PEER if party == THIS_SITE and (endpoint is None or party_of(cell, endpoint.name) != THIS_SITE) else party


def _refuse(cell: CoreCell, did: str, channel: str, topic: str, name: str) -> Message:
    log.warning("%s: %s refused: topic %r of channel %r, '%s'", cell.my_info.fqcn, did, topic, channel, name)
    return make_reply(REFUSED, error="this site neither takes nor sends messages of this kind")


def guard_requests(original: Any) -> Any:
    """``CoreCell._process_request`` that answers what is not on the list with a refusal."""

    def process(self: CoreCell, origin: str, message: Message) -> Message | None:
        outer = message.get_header(MessageHeaderKey.CHANNEL, ""), message.get_header(MessageHeaderKey.TOPIC, "")
        channel, topic = kind_of(*outer, message.headers)
        if may_pass(TAKEN, channel, topic, sender_of(self, origin, message)):
            passed: Message | None = original(self, origin, message)
            return passed
        return _refuse(self, "a message", channel, topic, origin)

    return process


def guard_sending(original: Any) -> Any:
    """``CoreCell._send_target_messages`` that sends what is on the list, and returns an error for the rest."""

    def send(self: CoreCell, target_msgs: dict[str, TargetMessage]) -> dict[str, str]:
        allowed, errors = {}, {}
        for target, wanted in target_msgs.items():
            channel, topic = kind_of(wanted.channel, wanted.topic, wanted.message.headers)
            whole = wanted.channel == CellChannel.AUX_COMMUNICATION  # what is not sent in pieces nobody has looked into
            if may_pass(SENT, channel, topic, party_of(self, target)) and not whole:
                allowed[target] = wanted
            else:
                _refuse(self, "sending", channel, topic, target)
                errors[target] = REFUSED
        return {**(original(self, allowed) if allowed else {}), **errors}

    return send


def guard_events(original: Any) -> Any:
    """A method with which a ``Cell`` sends in pieces: of events only a scalar passes, put together anew."""

    signature = inspect.signature(original)

    def send(self: Cell, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(self, *args, **kwargs).arguments
        if (given["channel"], given["topic"]) == (CellChannel.AUX_COMMUNICATION, FED_EVENT_TOPIC):
            message: Message = given["message" if "message" in given else "request"]
            try:
                message.payload = taken(message.payload)
            except PrivacyError as error:
                log.warning("%s: sending refused: %s", self.core_cell.my_info.fqcn, error)
                raise
        return original(self, *args, **kwargs)

    return send


GUARDS = (
    (CoreCell, "_process_request", guard_requests),
    (CoreCell, "_send_target_messages", guard_sending),
    *((Cell, way, guard_events) for way in WAYS),
)


def guard_messages() -> None:
    """Put the lists into this process; a second call does nothing.

    Raises:
        SiteConfigError: this NVFlare is built differently from the one that FedMed was tested with.
    """
    for owner, name, guard in GUARDS:
        original = getattr(owner, name, None)
        if original is None:
            text = f"NVFlare {__version__} has no {owner.__name__}.{name}, so a site's messages could not be looked at"
            raise SiteConfigError(f"{text}; install the version in requirements.txt (scripts/setup.sh)")
        if not hasattr(original, "__wrapped__"):
            setattr(owner, name, functools.wraps(original)(guard(original)))


class SiteMessages(FLComponent):
    """Part of every site's kit; does its work when NVFlare builds it."""

    def __init__(self) -> None:
        super().__init__()
        guard_messages()
        watch_site()
