"""Images that a client asks a model to look at: one of the studies, or one that it sent; no other file."""

import os
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from fedmed.errors import DataError
from fedmed.labelling.uploads import check_upload
from fedmed_label.datastore import check_plain

TEMPORARY, SESSIONS = "tmp", "sessions"  # folders of what clients send, see instance.py
EXTENSION = re.compile(r"(\.[A-Za-z0-9]{1,8}){1,2}")


def checked(infer: Callable[..., Any]) -> Callable[..., Any]:
    """``MONAILabelApp.infer`` that looks at a request first: every app's, ours and MONAI Label's own.

    Raises:
        DataError: an image that is not there, or was sent and is none; a request that names another file.
    """

    @wraps(infer)
    def run(app: Any, request: dict[str, Any], datastore: Any = None) -> Any:
        folder = Path(app.app_dir)
        named = (request.get("image"), request.get("label"))
        sent = [Path(path) for path in named if isinstance(path, str) and _inside(path, folder / TEMPORARY)]
        try:
            check_request(request, folder, datastore or app.datastore())
            return infer(app, request, datastore)
        except BaseException:
            for path in sent:  # MONAI Label removes them only after an answer
                path.unlink(missing_ok=True)
            raise

    return run


def check_request(request: dict[str, Any], folder: Path, datastore: Any) -> None:
    """Check that a request is about an image of the studies, of a session, or one that came with it.

    Args:
        request: the client's, as MONAI Label put it together: everything in it may be the client's own.
        folder: of this server, where MONAI Label puts what a client sends.
        datastore: of the studies.

    Raises:
        DataError: it names another file, or what came is no image.
        MONAILabelException: a tag that is no plain name.
    """
    image, label, ending = request.get("image"), request.get("label"), request.get("result_extension")
    if not isinstance(image, str):
        raise DataError("name one image; a request cannot name files")
    if ending is not None and not EXTENSION.fullmatch(str(ending)):
        raise DataError(f"'result_extension' is {ending!r}; give an ending such as .nii.gz")
    if request.get("label_tag") is not None:
        check_plain(str(request["label_tag"]), "tag")
    if label is not None and not (isinstance(label, str) and _inside(label, folder / TEMPORARY)):
        raise DataError("a request cannot name the file of a label; send it")
    if _inside(image, folder / TEMPORARY):
        check_upload(Path(image))
    elif not _inside(image, folder / SESSIONS) and image not in datastore.list_images():
        raise DataError(f"there is no image '{image}' among the studies")


def _inside(path: str, folder: Path) -> bool:
    """True where a file lies in a folder; MONAI Label names by absolute paths what clients sent."""
    return os.path.isabs(path) and os.path.isfile(path) and Path(path).resolve().is_relative_to(folder.resolve())
