"""Every request comes through here before MONAI Label sees it; every answer leaves through here.

MONAI Label has no password by default, lets every page that a browser has open ask it for images, unpacks archives, and
changes models and files for whoever asks. Here a request must call the server by a name of its own (so that no page
reaches it under another name that leads to its address), must not come from a page of another origin, must be on the
list of :mod:`fedmed_label.routes`, must be small enough, and, where the server has a token, must bring it.
"""

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fedmed_label.pages import headers_for, overview
from fedmed_label.routes import Route, find_route, length_fault, query_fault
from fedmed_label.tokens import form_password, knows, read_token, same

HOSTS = "FEDMED_LABEL_HOSTS"  # names under which this server may be called, with commas
SERVER = "FEDMED_LABEL_SERVER"  # which server this is, for the launcher: another may have taken the port
STARTED = "FEDMED_LABEL_STARTED"  # what it was started for: delete, dicomweb; with commas
TOKEN = "FEDMED_LABEL_TOKEN"  # file of the token; empty: no token
UPLOAD = "FEDMED_LABEL_UPLOAD"  # bytes of an image that a client sends
LOCAL = ("127.0.0.1", "localhost", "::1")
MOST_UPLOAD = 1 << 30
COPIES = 4  # of an image that is being received: the form's, MONAI Label's, the kept one, an archive's beside them
SPARE = 1 << 28  # bytes of the disk that stay free


@dataclass(frozen=True)
class Rules:
    """Options with which a server was started.

    Attributes:
        hosts: names by which it may be called.
        origins: of pages of other servers that may use this one.
        started: ``delete``, ``dicomweb``.
        token: that clients must bring; "" = none.
        upload: bytes of an image that a client sends.
        server: its own name, for its launcher.
    """

    hosts: frozenset[str] = frozenset(LOCAL)
    origins: frozenset[str] = frozenset()
    started: frozenset[str] = frozenset()
    token: str = field(default="", repr=False)
    upload: int = MOST_UPLOAD
    server: str = ""


def read_rules(values: Mapping[str, str], origins: list[str]) -> Rules:
    """The rules that the launcher gave by environment variables.

    Raises:
        FedMedError: the token's file cannot be used.
    """

    def listed(name: str) -> frozenset[str]:
        return frozenset(part.lower() for part in values.get(name, "").split(",") if part)

    return Rules(
        hosts=listed(HOSTS) or frozenset(LOCAL),
        origins=frozenset(origin.rstrip("/").lower() for origin in origins),
        started=listed(STARTED),
        token=read_token(Path(values[TOKEN])) if values.get(TOKEN) else "",
        upload=int(values.get(UPLOAD) or MOST_UPLOAD),
        server=values.get(SERVER, ""),
    )


class Door:
    """ASGI middleware around MONAI Label's application."""

    def __init__(self, app: Any, rules: Rules) -> None:
        self.app, self.rules = app, rules

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._http(scope, receive, _with_headers(send, headers_for(scope["path"])))

    async def _http(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        method, path = scope["method"], scope["path"]
        if reason := self.caller_fault(scope["headers"], headers):
            return await _say(send, 403, reason)
        if method == "OPTIONS" and headers.get(b"origin", "").lower() in self.rules.origins:
            method = headers.get(b"access-control-request-method", "")  # a browser asks before it asks
        route, reason = find_route(method, path, self.rules.started)
        if route is None:
            return await _say(send, 403, reason)
        if self.rules.token and scope["method"] != "OPTIONS" and await self._login(route, headers, receive, send):
            return None
        if reason := query_fault(route, scope["query_string"].decode("latin-1")):
            return await _say(send, 422, reason)
        if scope["method"] != "OPTIONS" and (fault := self.length_fault(route, scope["headers"])):
            return await _say(send, *fault)
        if path in ("/", "/fedmed-server"):
            return await self._own(path, send)
        if path == "/logs/":  # as text: MONAI Label's page loads scripts of other hosts
            scope = {**scope, "query_string": b"lines=300&text=true"}
        return await self.app(scope, receive, send)

    def caller_fault(self, raw: list[tuple[bytes, bytes]], headers: Mapping[bytes, str]) -> str:
        """Reason to refuse a request by where it comes from; "" for none."""
        names = [name.lower() for name, _ in raw]
        if names.count(b"host") != 1 or names.count(b"origin") > 1:
            return "a request names one host, and at most one origin"
        host, origin = headers[b"host"].lower(), headers.get(b"origin", "").lower()
        try:
            called = urlsplit(f"//{host}").hostname
        except ValueError:
            called = None
        if called not in self.rules.hosts:
            return f"this server is not called '{host}'; use its own name, or start it with --name"
        if origin in self.rules.origins and origin:
            return ""
        if origin and origin not in (f"http://{host}", f"https://{host}"):
            return f"pages of {origin} may not use this server; allow them with MONAI_LABEL_CORS_ORIGINS"
        from_elsewhere = headers.get(b"sec-fetch-site", "none").lower() in ("cross-site", "same-site")
        if from_elsewhere and headers.get(b"sec-fetch-mode", "").lower() != "navigate":  # a link may lead here
            return "pages of other servers may not load anything of this one"
        return ""

    def length_fault(self, route: Route, raw: list[tuple[bytes, bytes]]) -> tuple[int, str] | None:
        """Status and reason for which a body is refused before it is read."""
        lengths = [value.decode("latin-1") for name, value in raw if name.lower() == b"content-length"]
        if any(name.lower() == b"transfer-encoding" for name, _ in raw) or len(lengths) > 1:
            return 411, "say once how long the request is (Content-Length)"
        if fault := length_fault(route, lengths[0] if lengths else None, self.rules.upload):
            return fault
        needed = COPIES * int(lengths[0]) if lengths else 0
        if needed > 0 and route.image and needed + SPARE > shutil.disk_usage(tempfile.gettempdir()).free:
            return 507, "the server's disk is nearly full; free some space there"
        return None

    async def _login(self, route: Route, headers: Mapping[bytes, str], receive: Any, send: Any) -> bool:
        """Answer what has to do with the token, or what lacks it; whether an answer was given.

        3D Slicer asks whether there is a login, shows its window, and sends what was typed as a form.
        """
        if route.path == "/fedmed-server":
            return False
        if route.path == "/auth/":
            await _say(send, 200, {"enabled": True, "client_id": "fedmed", "realm": ""})
        elif route.path == "/auth/token":
            if same(self.rules.token, form_password(await _body(receive))):
                await _say(send, 200, {"access_token": self.rules.token, "token_type": "bearer"})
            else:
                await _say(send, 401, "this is not the server's token")
        elif not knows(self.rules.token, headers.get(b"authorization", "")):
            login = (b"www-authenticate", b'Basic realm="label server: token as password", charset="UTF-8"')
            await _say(send, 401, "this server needs its token", login)
        elif route.path == "/auth/token/valid":
            await _say(send, 200, {"username": "", "roles": []})
        else:
            return False
        return True

    async def _own(self, path: str, send: Any) -> None:
        if path == "/":
            await _answer(send, 200, overview(self.rules.started).encode(), b"text/html; charset=utf-8")
        else:
            await _say(send, 200, self.rules.server, plain=True)


async def _body(receive: Any, most: int = 1 << 14) -> bytes:
    """A small body; "" of a larger one."""
    body, more = b"", True
    while more and len(body) <= most:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body if len(body) <= most else b""


async def _say(send: Any, status: int, what: Any, *headers: tuple[bytes, bytes], plain: bool = False) -> None:
    content = {"detail": what} if isinstance(what, str) and not plain else what
    await _answer(send, status, json.dumps(content).encode(), b"application/json", *headers)


async def _answer(send: Any, status: int, body: bytes, kind: bytes, *headers: tuple[bytes, bytes]) -> None:
    start = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})


def _with_headers(send: Any, ours: Mapping[bytes, bytes]) -> Any:
    async def sender(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            theirs = [(name, value) for name, value in message.get("headers", []) if name.lower() not in ours]
            message = {**message, "headers": [*theirs, *ours.items()]}
        await send(message)

    return sender
