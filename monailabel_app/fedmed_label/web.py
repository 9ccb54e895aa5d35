"""MONAI Label's web application, with errors in plain words, and closed to web pages from elsewhere.

MONAI Label has no password by default and lets every page that a browser has open ask it for images. Here a page must
come from the server itself, or from an origin in MONAI Label's setting ``MONAI_LABEL_CORS_ORIGINS``. Clients other than
browsers, such as 3D Slicer, send no origin. No client may replace or delete a bundle's weights, and the protection of
the hospital's images, see :mod:`fedmed_label.datastore`, holds for MONAI Label's own app too.
"""

import logging
import os
from urllib.parse import urlsplit

import monailabel.interfaces.app
from fastapi import Request
from fastapi.responses import JSONResponse
from monailabel.app import app
from monailabel.config import settings
from monailabel.interfaces.exception import MONAILabelException
from starlette.types import ASGIApp, Receive, Scope, Send

from fedmed.errors import BundleError, DataError, FedMedError, first_line
from fedmed_label.datastore import LinkedDatastore

HOSTS = "FEDMED_LABEL_HOSTS"  # names under which this server may be called, with commas; empty = any
SERVER = "FEDMED_LABEL_SERVER"  # which server this is, for the launcher: another may have taken the port
log = logging.getLogger("fedmed.label")


class OwnPagesOnly:
    """Refuse requests from pages of other origins, also if their host name leads to this machine's address."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.hosts = {name for name in os.environ.get(HOSTS, "").split(",") if name}
        self.origins = {str(origin).rstrip("/") for origin in settings.MONAI_LABEL_CORS_ORIGINS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (reason := self.refusal(dict(scope["headers"])) or forbidden(scope)):
            await JSONResponse({"detail": reason}, 403)(scope, receive, send)
        elif scope["type"] == "http" and scope["path"] == "/fedmed-server":
            await JSONResponse(os.environ.get(SERVER))(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def refusal(self, headers: dict[bytes, bytes]) -> str | None:
        """Why a request is refused, or None."""
        host = headers.get(b"host", b"").decode("latin-1").lower()
        origin = headers.get(b"origin", b"").decode("latin-1").lower()
        if self.hosts and urlsplit(f"//{host}").hostname not in self.hosts:
            return f"this server is not called '{host}'"
        if origin and origin not in self.origins and urlsplit(origin).netloc != host:
            return f"pages of {origin} may not use this server; allow them with MONAI_LABEL_CORS_ORIGINS"
        return None


def forbidden(scope: Scope) -> str | None:
    """Why a request is refused for every client, or None."""
    if scope["method"] in ("PUT", "DELETE") and scope["path"].startswith(f"{settings.MONAI_LABEL_API_STR}/model/"):
        return "models are not changed from here; end the server, export the bundle again and start it"
    return None


def status_of(error: Exception) -> int:
    """HTTP status for an error: 4xx if the client can correct it, else 500."""
    kinds = {DataError: 422, BundleError: 500, FedMedError: 400, MONAILabelException: 400}
    return next((status for kind, status in kinds.items() if isinstance(error, kind)), 500)


async def answer(request: Request, error: Exception) -> JSONResponse:
    """Send the client the error's first line; the log has the rest."""
    words = getattr(error, "msg", None) or first_line(error)
    log.warning("%s %s: %s", request.method, request.url.path, words)
    return JSONResponse({"detail": words}, status_of(error))


for _kind in (FedMedError, MONAILabelException, Exception):
    app.add_exception_handler(_kind, answer)
app.add_middleware(OwnPagesOnly)
monailabel.interfaces.app.LocalDatastore = LinkedDatastore
