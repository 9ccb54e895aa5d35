"""The server's process: its own folder, its start, and its end with all that it started."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedmed.errors import FedMedError
from fedmed.files import fedmed_home
from fedmed_label.bundles import ServedBundle
from fedmed_label.checks import local_url

APP = Path(__file__).resolve().parents[1]
STOCK = Path(sys.prefix) / "monailabel" / "sample-apps" / "monaibundle"
PATIENCE = 10.0  # seconds that a server gets to finish a request before it is ended
START_SECONDS = 300.0
TAIL = 15


def make_instance(bundles: Sequence[ServedBundle], stock: bool) -> Path:
    """Make the folder of one server: the app, links to the bundles, room for logs and temporary files.

    MONAI Label writes into its app's folder, so every server has a copy. Mode 0700: images that clients send and masks
    on their way to them lie in it.

    Raises:
        FedMedError: it cannot be made.
    """
    home = fedmed_home() / "label"
    try:
        home.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="server-", dir=home))
        if stock:
            shutil.copytree(STOCK, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(APP / "main.py", folder)
        for name in ("model", "tmp", "sessions", "dicom"):
            (folder / name).mkdir()
        for bundle in bundles:
            (folder / "model" / bundle.name).symlink_to(bundle.root)
    except OSError as error:
        raise FedMedError(f"the server's folder cannot be made in {home} ({error}); set FEDMED_HOME") from error
    return folder


def environment(folder: Path, hosts: Sequence[str], visible: str | None, linked: bool = False) -> dict[str, str]:
    """Environment of the server: its temporary files in its own folder, no settings from elsewhere.

    Args:
        folder: of :func:`make_instance`.
        hosts: names by which it may be called; none = any.
        visible: ``CUDA_VISIBLE_DEVICES``; None = as it is.
        linked: MONAI Label's own app serves links, which it would follow to replace or delete the hospital's images.
    """
    values = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "TMPDIR": str(folder / "tmp"),
        "MONAI_LABEL_SESSION_PATH": str(folder / "sessions"),
        "MONAI_LABEL_DICOMWEB_CACHE_PATH": str(folder / "dicom"),
        "FEDMED_LABEL_HOSTS": ",".join(hosts),
        "FEDMED_LABEL_SERVER": folder.name,
    }
    if linked:
        values["FEDMED_LABEL_LINKED"] = "1"
    if visible is not None:
        values["CUDA_VISIBLE_DEVICES"] = visible
    return {**os.environ, **values}


class Server:
    """A running server. Its processes are a group of their own, which ends as a whole.

    Args:
        folder: of :func:`make_instance`.
        bundles: to serve.
        studies: the folder of links, or a URL.
        address: host and port.
        variables: its environment.
        verbose: its log goes to this terminal.
    """

    def __init__(
        self,
        folder: Path,
        bundles: Sequence[ServedBundle],
        studies: str,
        address: tuple[str, int],
        variables: Mapping[str, str],
        verbose: bool = False,
    ) -> None:
        self.address, self.name = address, folder.name
        self.log = None if verbose else folder / "server.log"
        names = ",".join(bundle.name for bundle in bundles)
        start = ["start_server", "--app", str(folder), "--studies", studies, "--host", address[0]]
        # MONAI Label's default source of models is asked at start-up, and without a network that is the end.
        start += ["--port", str(address[1]), "--conf", "models", names, "--conf", "zoo_source", "ngc"]
        start += ["--uvicorn_app", "fedmed_label.web:app"]
        command = [sys.executable, "-m", "fedmed_label.server", *(str(b.root) for b in bundles), "--", *start]
        stream = self.log.open("wb") if self.log else None
        self.process = subprocess.Popen(
            command,
            cwd=folder,  # MONAI Label reads settings from the current folder's .env
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT if stream else None,
            start_new_session=True,
        )
        if stream:
            stream.close()

    def wait_until_ready(self) -> None:
        """Return when it answers, which MONAI Label does once its models are loaded.

        Raises:
            FedMedError: it ended, or takes too long; with its reason.
        """
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise FedMedError(self.reason())
            if self._answers():
                return
            time.sleep(0.2)
        raise FedMedError(f"MONAI Label did not start within {START_SECONDS:.0f} seconds{self._shown_log()}")

    def _answers(self) -> bool:
        """Whether this server, and no other that took the port meanwhile, answers."""
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(f"{local_url(*self.address)}/fedmed-server", timeout=5) as answer:
                return json.load(answer) == self.name
        except (OSError, ValueError, http.client.HTTPException):
            return False

    def reason(self) -> str:
        """Why it ended by itself: what it said in plain words, or the end of its log."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log else []
        if lines and lines[-1].startswith("error: "):
            return lines[-1].removeprefix("error: ")
        return f"MONAI Label ended with exit code {self.process.returncode}{self._shown_log()}"

    def _shown_log(self) -> str:
        if not self.log:
            return "; the reason is above"
        return "; the end of its log:\n" + "\n".join(self.log.read_text(errors="replace").splitlines()[-TAIL:])

    def stop(self) -> None:
        """End the server and every process that it started."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(PATIENCE)
        self._signal(signal.SIGKILL)
        self.process.wait()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
