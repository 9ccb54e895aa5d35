"""A part for a server's kit that sends a site whatever a test asks for, as a server in wrong hands could.

An order is a file ``order.json`` in the kit: ``site``, ``topic``, ``headers``, and a text as ``body`` or a folder as
``app``. What the site answers is then in ``answer.json``.
"""

import json
import threading
import time
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.utils.zip_utils import zip_directory_to_bytes
from nvflare.private.admin_defs import Message

ORDER, ANSWER = "order.json", "answer.json"


class HostileServer(FLComponent):
    """Waits for orders in the process that takes jobs."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.SYSTEM_START:
            threading.Thread(target=self._serve, args=(fl_ctx.get_engine(),), daemon=True).start()

    def _serve(self, engine) -> None:
        while True:
            if Path(ORDER).exists():
                order = json.loads(Path(ORDER).read_text())
                Path(ORDER).unlink()
                answer = Path(f"{ANSWER}.new")
                answer.write_text(json.dumps(self._send(engine, **order)))
                answer.rename(ANSWER)
            time.sleep(0.1)

    def _send(self, engine, site: str, topic: str, headers: dict, body: object = "", app: str | None = None) -> str:
        message = Message(topic, zip_directory_to_bytes(app, "") if app else body)
        for name, value in headers.items():
            message.set_header(name, value)
        (client,), _ = engine.validate_targets([site])
        with engine.new_context() as fl_ctx:
            (answer,) = engine.server.admin_server.send_requests({client.token: message}, fl_ctx, timeout_secs=60)
        return str(answer.reply.body if answer.reply else None)
