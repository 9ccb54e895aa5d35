"""Every kind of message that NVFlare registers anywhere is tried at a site, and refused if it is on no list."""

import ast
import importlib
from pathlib import Path

import nvflare
import pytest
from nvflare.apis.fl_constant import AdminCommandNames, ReservedTopic
from nvflare.apis.shareable import Shareable
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.core_cell import CoreCell, TargetMessage
from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageHeaderKey, MessagePropKey
from nvflare.fuel.f3.cellnet.fqcn import FqcnInfo
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_const import STREAM_CHANNEL, STREAM_DATA_TOPIC, StreamHeaderKey
from nvflare.private.fed.client.admin_commands import AdminCommands
from nvflare.widgets.fed_event import FED_EVENT_TOPIC

from fedmed.errors import PrivacyError, SiteConfigError
from fedmed.flare import site_messages
from fedmed.flare.site_messages import GUARDS, REFUSED, SiteMessages, guard_messages

ROOT = Path(nvflare.__file__).parent
SITE, MAIN, PEER, SERVER = "site_a.job", "site_a", "site_b.job", "server.job"
AUX = CellChannel.AUX_COMMUNICATION
REGISTERS = {"register_request_cb": True, "register_blob_cb": True, "register_aux_message_handler": False}


def registered() -> set[tuple[str, str]]:
    """(channel, topic) of every registration in NVFlare's source, '*' standing for what only a running job knows."""
    result = set()
    for path in ROOT.rglob("*.py"):
        text = path.read_text("utf-8")
        if not any(f"{name}(" in text for name in REGISTERS):
            continue
        module = importlib.import_module(".".join(("nvflare", *path.relative_to(ROOT).with_suffix("").parts)))
        for call in ast.walk(ast.parse(text)):
            name = getattr(getattr(call, "func", None), "attr", None)
            if name in REGISTERS and (call.args or call.keywords):
                given = {word.arg: word.value for word in call.keywords}
                words = [*call.args[: 1 + REGISTERS[name]]]
                channel = given.get("channel", words.pop(0) if words and REGISTERS[name] else None)
                topic = given.get("topic", words.pop(0) if words else None)
                result.add((value_of(channel, module) if REGISTERS[name] else AUX, value_of(topic, module)))
    return result


def value_of(node, module) -> str:
    try:
        value = eval(compile(ast.Expression(node), "<registration>", "eval"), vars(module))  # noqa: S307 - NVFlare's own
    except (AttributeError, NameError, TypeError, ValueError):
        return "*"
    return value if isinstance(value, str) else "*"


KINDS = sorted(
    registered() | {(AUX, FED_EVENT_TOPIC), (AUX, ReservedTopic.ABORT_ASK), (AUX, ReservedTopic.AUX_COMMAND)}
)
# What a site takes, and from whom. Of '*' the topic is looked at where it arrives.
FROM_SERVER = {
    *(("admin", "*"), ("aux_communication", "__end_run__"), ("cellnet.channel", "bye"), ("return_only", "*")),
    *(("credential_manager", "key_exchange"), ("sm__STREAM", "sm__ACK"), ("sm__STREAM", "sm__ERROR")),
    *(("download_service__", "download_service__download"), ("download_service__", "download_service__source_failure")),
}
FROM_OWN = {
    *(("admin", "*"), ("cellnet.channel", "bye"), ("return_only", "*"), ("credential_manager", "key_exchange")),
    *(("sm__STREAM", "sm__ACK"), ("sm__STREAM", "sm__ERROR")),
    *(("workspace_transfer", "prepare_download"), ("workspace_transfer", "publish_results")),
}
TO_SERVER = {
    *(("server_command", "get_task"), ("server_command", "submit_update"), ("cellnet.channel", "bye")),
    *(("task", topic) for topic in ("challenge", "heart_beat", "quit", "register", "report_job_failure")),
    *(("return_only", "*"), ("credential_manager", "key_exchange"), ("sm__STREAM", "sm__ACK")),
    *(("download_service__", "download_service__download"), ("download_service__", "download_service__source_failure")),
    ("sm__STREAM", "sm__ERROR"),
}
BY_PIECES_TO_SERVER = TO_SERVER | {
    ("aux_communication", topic)
    for topic in ("__sync_runner__", "__job_heartbeat__", "__task_check__", FED_EVENT_TOPIC)
}


@pytest.fixture
def cell(monkeypatch):
    """A site's cell with the lists, and what has passed them: it is not started and has no connection."""
    passed = []

    def process(self, origin, message):
        passed.append(origin)
        return Message()

    def send(self, target_msgs):
        passed.extend(target_msgs)
        return dict.fromkeys(target_msgs, "")

    monkeypatch.setattr(CoreCell, "_process_request", process)
    monkeypatch.setattr(CoreCell, "_send_target_messages", send)
    for _, way, _ in GUARDS[2:]:
        monkeypatch.setattr(Cell, way, getattr(Cell, way))
    SiteMessages()
    made = CoreCell.__new__(CoreCell)
    made.my_info = FqcnInfo(SITE)
    made.passed = passed
    return made


def message(channel, topic, neighbour="server", pieces=False):
    made = Message({MessageHeaderKey.CHANNEL: channel, MessageHeaderKey.TOPIC: topic}, None)
    if pieces:
        made.headers |= {StreamHeaderKey.CHANNEL: channel, StreamHeaderKey.TOPIC: topic}
        made.headers |= {MessageHeaderKey.CHANNEL: STREAM_CHANNEL, MessageHeaderKey.TOPIC: STREAM_DATA_TOPIC}
    made.set_prop(MessagePropKey.ENDPOINT, Endpoint(neighbour))
    return made


def takes(cell, channel, topic, origin, neighbour="server", pieces=False) -> bool:
    """Tell whether a request reaches NVFlare; if not, it was answered with a refusal."""
    before = len(cell.passed)
    reply = cell._process_request(origin, message(channel, topic, neighbour, pieces))
    if len(cell.passed) > before:
        return True
    assert reply.get_header(MessageHeaderKey.RETURN_CODE) == REFUSED
    return False


def sends(cell, channel, topic, target, pieces=False) -> bool:
    """Tell whether a request leaves; if not, the sender is told."""
    before, made = len(cell.passed), message(channel, topic, pieces=pieces)
    outer = made.get_header(MessageHeaderKey.CHANNEL), made.get_header(MessageHeaderKey.TOPIC)
    errors = cell._send_target_messages({target: TargetMessage(target, *outer, made)})
    if len(cell.passed) > before:
        return True
    assert errors == {target: REFUSED}
    return False


def test_these_are_the_messages_of_nvflare():
    """The scan finds them; a version of NVFlare that has others needs a look at the lists first."""
    assert len(KINDS) > 80 and {channel for channel, _ in KINDS} >= {"_net_manager", "aux_communication", "admin"}
    assert set(KINDS) >= FROM_SERVER | FROM_OWN | BY_PIECES_TO_SERVER
    commands = {command.get_command_name() for command in AdminCommands.commands}
    assert commands - site_messages.COMMANDS == {
        *(AdminCommandNames.SHOW_STATS, AdminCommandNames.SHOW_ERRORS, AdminCommandNames.RESET_ERRORS),
        AdminCommandNames.CONFIGURE_JOB_LOG,
    }


@pytest.mark.parametrize(("channel", "topic"), KINDS)
def test_each_is_tried_at_a_site(cell, channel, topic, caplog):
    kind = channel, topic
    for pieces in (False, True):
        assert not takes(cell, *kind, PEER, pieces=pieces), "from another site"
        assert not takes(cell, *kind, "relay.x", "relay", pieces=pieces)
        assert not takes(cell, *kind, MAIN, pieces=pieces), "it came from outside and says that it is the site's own"
        assert takes(cell, *kind, SERVER, pieces=pieces) == (kind in FROM_SERVER), "from the server"
        assert takes(cell, *kind, MAIN, MAIN, pieces=pieces) == (kind in FROM_OWN), "within the site"
        assert not sends(cell, *kind, PEER, pieces=pieces), "to another site"
        assert sends(cell, *kind, SERVER, pieces) == (kind in (BY_PIECES_TO_SERVER if pieces else TO_SERVER))
    said = f"topic {topic!r} of channel {channel!r}"
    assert f"site_a.job: a message refused: {said}, '{PEER}'" in caplog.text
    assert f"site_a.job: sending refused: {said}, '{PEER}'" in caplog.text


def test_a_site_ends_its_own_job_and_tells_nobody_its_errors(cell):
    for command in site_messages.COMMANDS:
        assert takes(cell, CellChannel.CLIENT_COMMAND, command, MAIN, MAIN)
    for command in (AdminCommandNames.SHOW_ERRORS, AdminCommandNames.SHOW_STATS, AdminCommandNames.CONFIGURE_JOB_LOG):
        assert not takes(cell, CellChannel.CLIENT_COMMAND, command, MAIN, MAIN)
    assert not takes(cell, CellChannel.CLIENT_COMMAND, AdminCommandNames.ABORT, SERVER), "it asks the main process"


def test_each_target_of_one_message_is_looked_at(cell):
    made = message(CellChannel.RETURN_ONLY, "x")
    targets = {name: TargetMessage(name, CellChannel.RETURN_ONLY, "x", made) for name in (PEER, SERVER)}
    assert cell._send_target_messages(targets) == {PEER: REFUSED, SERVER: ""} and cell.passed == [SERVER]


@pytest.mark.parametrize("way", ["_fire_and_forget", "_broadcast_request", "_send_request"])
def test_an_event_is_looked_into_before_it_is_cut_in_pieces(cell, way, monkeypatch):
    sent = []

    def fire(self, channel, topic, targets, message):
        sent.append(message)

    def ask(self, channel, target, topic, request):
        sent.append(request)

    original = fire if way == "_fire_and_forget" else ask
    monkeypatch.setattr(Cell, way, site_messages.guard_events(original))
    made = Cell.__new__(Cell)
    made.core_cell = cell
    event = Message({}, Shareable({"text": "/srv/patients/Meier-4711"}))
    other = {"message": event, "targets": SERVER} if original is fire else {"request": event, "target": SERVER}
    with pytest.raises(PrivacyError, match="may not leave"):
        getattr(made, way)(channel=AUX, topic=FED_EVENT_TOPIC, **other)
    with pytest.raises(PrivacyError, match="may not leave"):
        getattr(made, way)(AUX, *((FED_EVENT_TOPIC, SERVER) if original is fire else (SERVER, FED_EVENT_TOPIC)), event)
    assert not sent
    getattr(made, way)(channel=AUX, topic=ReservedTopic.SYNC_RUNNER, **other)
    assert sent == [event]


def test_a_second_component_changes_nothing(cell):
    before = [getattr(owner, name) for owner, name, _ in GUARDS]
    guard_messages()
    assert before == [getattr(owner, name) for owner, name, _ in GUARDS]


def test_another_nvflare_is_an_error_and_no_open_door(monkeypatch):
    monkeypatch.delattr(CoreCell, "_process_request")
    with pytest.raises(SiteConfigError, match="CoreCell._process_request.*requirements.txt"):
        SiteMessages()
