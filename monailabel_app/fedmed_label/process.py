"""The server's process: its start, and its end together with the processes that it started."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedmed.errors import FedMedError
from fedmed_label.bundles import ServedBundle
from fedmed_label.checks import local_url

KILL_GRACE = 10.0  # seconds that a server gets to finish a request before it is ended
START_SECONDS = 300.0
TAIL = 15


class Server:
    """A running server. Its processes are a process group, which is ended as one.

    Args:
        folder: of :func:`fedmed_label.instance.instance`.
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
        # MONAI Label asks its default source of models at start-up, which fails without a network.
        start += ["--port", str(address[1]), "--conf", "models", names, "--conf", "zoo_source", "ngc"]
        start += ["--uvicorn_app", "fedmed_label.web:app"]
        command = [sys.executable, "-m", "fedmed_label.server", *(str(b.root) for b in bundles), "--", *start]
        stream = self.log.open("wb") if self.log else None
        self.process = subprocess.Popen(
            command,
            cwd=folder,  # MONAI Label reads settings from the current folder's .env
            env=variables,
            stdin=subprocess.PIPE,  # it closes when this process ends, however it ends: then the server ends too
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
        """True where this server answers, and not another one that took the port meanwhile."""
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(f"{local_url(*self.address)}/fedmed-server", timeout=5) as answer:
                return json.load(answer) == self.name
        except (OSError, ValueError, http.client.HTTPException):
            return False

    def reason(self) -> str:
        """Reason why it ended by itself: its error message, or the end of its log."""
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
            self.process.wait(KILL_GRACE)
        self._signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
