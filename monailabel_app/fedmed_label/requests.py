"""What a client asks a model to look at: an image of the studies, or one that it sent; no other file."""

import os
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from fedmed.errors import DataError
from fedmed.labelling.uploads import check_upload
from fedmed_label.datastore import check_plain

EXTENSION = re.compile(r"(\.[A-Za-z0-9]{1,8}){1,2}")


def checked(infer: Callable[..., Any]) -> Callable[..., Any]:
    """``MONAILabelApp.infer`` that looks at a request first: every app's, ours and MONAI Label's own.

    Raises:
        DataError: an image that is not there, or was sent and is none; a request that names another file.
    """

    @wraps(infer)
    def run(app: Any, request: dict[str, Any], datastore: Any = None) -> Any:
        sent = check_request(request, Path(app.app_dir), datastore or app.datastore())
        try:
            if sent:
                check_upload(sent)
            return infer(app, request, datastore)
        except BaseException:
            if sent:  # MONAI Label removes it only after an answer
                sent.unlink(missing_ok=True)
            raise

    return run


def check_request(request: dict[str, Any], folder: Path, datastore: Any) -> Path | None:
    """The file that came with the request; None where it asks about an image of the studies or of a session.

    Args:
        request: the client's, as MONAI Label put it together: everything in it may be the client's own.
        folder: of this server, where MONAI Label puts what a client sends.
        datastore: of the studies.

    Raises:
        DataError: anything else.
    """
    image, label, ending = request.get("image"), request.get("label"), request.get("result_extension")
    if not isinstance(image, str):
        raise DataError("name one image; a request cannot name files")
    if ending is not None and not EXTENSION.fullmatch(str(ending)):
        raise DataError(f"'result_extension' is {ending!r}; give an ending such as .nii.gz")
    if request.get("label_tag") is not None:
        check_plain(str(request["label_tag"]), "tag")
    temporary, sessions = folder / "tmp", folder / "sessions"
    if label is not None and not (isinstance(label, str) and _inside(label, temporary)):
        raise DataError("a request cannot name the file of a label; send it")
    if _inside(image, temporary):
        return Path(image)
    if not _inside(image, sessions) and image not in datastore.list_images():
        raise DataError(f"there is no image '{image}' among the studies")
    return None


def _inside(path: str, folder: Path) -> bool:
    """Whether a file lies in a folder; MONAI Label names by absolute paths what clients sent."""
    return os.path.isabs(path) and os.path.isfile(path) and Path(path).resolve().is_relative_to(folder.resolve())
