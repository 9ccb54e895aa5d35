"""The folder of one server and the environment of its process; both are removed when the server has ended."""

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedmed.errors import FedMedError
from fedmed.files import fedmed_home
from fedmed.labelling.studies import exclusive, in_use
from fedmed_label.bundles import ServedBundle
from fedmed_label.door import HOSTS, SERVER, STARTED, TOKEN, UPLOAD, Rules

APP = Path(__file__).resolve().parents[1]
STOCK = Path(sys.prefix) / "monailabel" / "sample-apps" / "monaibundle"
PREFIX = "server-"
YOUNG = 60.0  # seconds that another launcher may need between making its folder and holding it


@contextlib.contextmanager
def instance(bundles: Sequence[ServedBundle], stock: bool) -> Iterator[Path]:
    """Give the folder of one server: the app, links to the bundles, places for logs and temporary files.

    MONAI Label writes into its app's folder, so every server has a copy. Mode 0700: it holds images that clients send
    and masks on their way to them. It is removed at the end, and so are those of servers that were killed.

    Raises:
        FedMedError: the folder cannot be made.
    """
    home = fedmed_home() / "label"
    with contextlib.ExitStack() as stack:
        try:
            home.mkdir(parents=True, exist_ok=True)
            remove_leftovers(home)
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=home))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            stack.enter_context(exclusive(folder))
            _fill(folder, bundles, stock)
        except OSError as error:
            raise FedMedError(f"the server's folder cannot be made in {home} ({error}); set FEDMED_HOME") from error
        yield folder


def remove_leftovers(home: Path) -> None:
    """Remove the folders of servers that did not end by themselves: they may hold patients' images."""
    for folder in home.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or another launcher removes it too
            if time.time() - folder.stat().st_mtime > YOUNG and not in_use(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _fill(folder: Path, bundles: Sequence[ServedBundle], stock: bool) -> None:
    if stock:
        shutil.copytree(STOCK, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(APP / "main.py", folder)
    for name in ("model", "tmp", "sessions", "dicom"):
        (folder / name).mkdir()
    for bundle in bundles:
        (folder / "model" / bundle.name).symlink_to(bundle.root)


def environment(folder: Path, rules: Rules, visible: str | None, token: Path | None = None) -> dict[str, str]:
    """Environment of the server: its temporary files in its own folder, no settings from elsewhere.

    Args:
        folder: of :func:`instance`.
        rules: for its clients, without a token: the environment is no place for one.
        visible: ``CUDA_VISIBLE_DEVICES``; None = as it is.
        token: file of the token that clients must bring.
    """
    values = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "TMPDIR": str(folder / "tmp"),
        "MONAI_LABEL_API_STR": "",  # the paths of routes.py
        "MONAI_LABEL_DATASTORE": "",  # of URLs, DICOMweb alone
        "MONAI_LABEL_SESSION_PATH": str(folder / "sessions"),
        "MONAI_LABEL_DICOMWEB_CACHE_PATH": str(folder / "dicom"),
        **dict.fromkeys((f"MONAI_LABEL_TASKS_{task}" for task in ("TRAIN", "SCORING", "BATCH_INFER")), "false"),
        HOSTS: ",".join(sorted(rules.hosts)),
        STARTED: ",".join(sorted(rules.started)),
        UPLOAD: str(rules.upload),
        TOKEN: str(token or ""),
        SERVER: folder.name,
    }
    if visible is not None:
        values["CUDA_VISIBLE_DEVICES"] = visible
    return {**os.environ, **values}
