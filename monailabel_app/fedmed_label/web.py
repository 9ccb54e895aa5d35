"""MONAI Label's web application behind FedMed's door, with errors in plain words.

What a client may ask is decided in :mod:`fedmed_label.door`. What holds of images, labels and sessions holds for MONAI
Label's own app too: its parts are replaced here.
"""

import logging
import os
from pathlib import Path

import monailabel.endpoints.ohif
import monailabel.interfaces.app
from fastapi import Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from monailabel.app import app as monai_label
from monailabel.config import settings
from monailabel.interfaces.exception import MONAILabelException

from fedmed.errors import BundleError, DataError, FedMedError, first_line
from fedmed_label.datastore import DicomDatastore, LinkedDatastore
from fedmed_label.door import Door, read_rules
from fedmed_label.pages import own_only
from fedmed_label.requests import checked
from fedmed_label.sessions import CheckedSessions

log = logging.getLogger("fedmed.label")
_viewer_file = monailabel.endpoints.ohif.get_ohif


def viewer_file(path: str) -> Response:
    """A file of OHIF; its page without what it would load from other hosts."""
    answer = _viewer_file(path)
    file = Path(answer.path)
    return HTMLResponse(own_only(file.read_text(encoding="utf-8"))) if file.suffix == ".html" else answer


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
    monai_label.add_exception_handler(_kind, answer)
monailabel.endpoints.ohif.get_ohif = viewer_file
monailabel.interfaces.app.LocalDatastore = LinkedDatastore
monailabel.interfaces.app.DICOMWebDatastore = DicomDatastore
monailabel.interfaces.app.Sessions = CheckedSessions
monailabel.interfaces.app.MONAILabelApp.infer = checked(monailabel.interfaces.app.MONAILabelApp.infer)
app = Door(monai_label, read_rules(os.environ, [str(origin) for origin in settings.MONAI_LABEL_CORS_ORIGINS]))
