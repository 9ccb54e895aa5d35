"""A kit that is started on two machines: said in the server's log and in that of the site.

NVFlare keeps one connection for each name, so the two processes push each other out every 10 to 40 s, for ever; at the
site there are timeouts alone, and a job waits. Once is no sign of it: a site that starts anew, or a broken line, does
the same.
"""

import functools
import logging
import time
from collections import defaultdict, deque
from typing import Any

from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.connection import Connection
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.sfm.conn_manager import ConnManager
from nvflare.fuel.f3.sfm.sfm_conn import SfmConnection
from nvflare.fuel.f3.sfm.sfm_endpoint import SfmEndpoint

from fedmed.plain_text import in_terminal

TIMES, SECONDS = 3, 150.0  # so often within so long
AT_SERVER = (
    "site '{site}' connects again and again while it is connected, from {old} and from {new}: its kit is probably "
    "started twice; let the site stop all but one"
)
AT_SITE = (
    "the connection to the server ends again and again: the network breaks it, or this site's kit is started twice, on "
    "another machine or as a copy, which the server's log says; stop all but one"
)


class Repeats:
    """Tells when something has happened to a name ``TIMES`` times within ``SECONDS``, and counts anew then."""

    def __init__(self) -> None:
        self._when: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=TIMES))

    def again(self, name: str) -> bool:
        """Count once more."""
        when, now = self._when[name], time.monotonic()
        when.append(now)
        if len(when) < TIMES or now - when[0] > SECONDS:
            return False
        when.clear()
        return True


def watch_server() -> None:
    """Let this process, a server's waiting one, say which sites connect while they are connected."""
    original, repeats, log = SfmEndpoint.add_connection, Repeats(), logging.getLogger("fedmed.server")

    @functools.wraps(original)
    def add_connection(self: SfmEndpoint, sfm_conn: SfmConnection) -> None:
        before, site = list(self.connections), self.endpoint.name
        original(self, sfm_conn)
        if before and len(FQCN.split(site)) == 1 and repeats.again(site):
            old, new = (in_terminal(_peer(one.conn), 80) for one in (before[-1], sfm_conn))
            log.warning(AT_SERVER.format(site=in_terminal(site, 80), old=old, new=new))

    if not hasattr(original, "__wrapped__"):
        SfmEndpoint.add_connection = add_connection


def watch_site() -> None:
    """Let this process, of a site, say when its connection to the server ends again and again."""
    original, repeats, log = ConnManager.close_connection, Repeats(), logging.getLogger("fedmed.site")

    @functools.wraps(original)
    def close_connection(self: ConnManager, connection: Connection) -> None:
        known = self.sfm_conns.get(connection.name)
        name = known.sfm_endpoint.endpoint.name if known and known.sfm_endpoint else ""
        original(self, connection)
        if name == FQCN.ROOT_SERVER and not self.stopped and repeats.again(name):
            log.warning(AT_SITE)

    if not hasattr(original, "__wrapped__"):
        ConnManager.close_connection = close_connection


def _peer(connection: Any) -> str:
    return str(connection.get_conn_properties().get(DriverParams.PEER_ADDR.value, "?"))
