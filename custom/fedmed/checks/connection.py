"""Reach the federation's server from the site: a TLS handshake of our own, then NVFlare's preflight check."""

import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from fedmed.checks.site_findings import SiteFinding
from fedmed.checks.startup_kit import Kit

PATIENCE = 10.0  # seconds for a connection
PREFLIGHT = 120.0  # seconds for NVFlare's check, which takes about 6


@dataclass
class Connection:
    """What is known of the way to the server; None where it was not tried.

    Attributes:
        reached: whether a connection could be made.
        tls: version of TLS, such as ``TLSv1.3``.
        milliseconds: time for connection and handshake.
        days: days until the first certificate ends.
        preflight: whether NVFlare's own check passed.
        registered: whether the site registered with the server during that check.
    """

    reached: bool | None = None
    tls: str | None = None
    milliseconds: float | None = None
    days: int | None = None
    preflight: bool | None = None
    registered: bool | None = None


def shake_hands(kit: Kit, found: Connection) -> SiteFinding | None:
    """Connect to the server as NVFlare does, with the kit's certificates, and fill in what was seen.

    Returns:
        Why it failed, or None.
    """
    where, started = f"{kit.host}, port {kit.port}", time.monotonic()
    found.reached = False
    try:
        with socket.create_connection((kit.host, kit.port), PATIENCE) as plain:
            found.reached = True
            if kit.secure:
                with _context(kit).wrap_socket(plain, server_hostname=kit.host) as secured:
                    found.tls = secured.version()
                    found.milliseconds = 1000 * (time.monotonic() - started)
                    _hear(secured)
    except ssl.SSLCertVerificationError as error:
        remedy = "is it the right server, and does the network open TLS connections on the way?"
        return _wrong("handshake", f"{where}: its certificate is not accepted ({error.verify_message}); {remedy}")
    except ssl.SSLError as error:
        remedy = "ask the study lead whether this kit is the newest one, and whether the port is right"
        return _wrong("handshake", f"{where}: no TLS connection ({error.reason or error}); {remedy}")
    except socket.gaierror:
        text = f"the server's name '{kit.host}' is unknown here; correct the DNS, or add it to /etc/hosts"
        return _wrong("unreachable", text)
    except TimeoutError:
        text = f"{where}: no answer in {PATIENCE:.0f} s; let the firewall open outgoing TCP connections to it"
        return _wrong("unreachable", text)
    except OSError as error:
        text = f"{where}: {error.strerror or error}; is the server running, and is the port right?"
        return _wrong("unreachable", text)
    return None


def _context(kit: Kit) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(kit.startup / "rootCA.pem"))
    context.load_cert_chain(kit.startup / "client.crt", kit.startup / "client.key")
    context.set_alpn_protocols(["h2"])
    return context


def _hear(secured: ssl.SSLSocket) -> None:
    """With TLS 1.3 a server refuses a certificate after the handshake; gRPC speaks first when it accepts."""
    secured.settimeout(PATIENCE)
    try:
        if secured.recv(1) == b"":
            raise ssl.SSLError(1, "the server closed the connection; it may not accept this site's certificate")
    except TimeoutError:
        return  # another scheme, whose server waits for the site


def preflight(kit: Kit, found: Connection) -> SiteFinding | None:
    """Run ``nvflare preflight-check``, which also starts the site for five seconds, and fill in what was seen.

    It runs on a view of the kit, a folder of links: NVFlare would write its logs into the kit, and would kill every
    process whose command line is that of the site started from there.

    Returns:
        Why it failed, or that it was left out because the site is running. A second registration would take the
        running site's token.
    """
    if pid := running(kit):
        text = f"the site runs already from this kit (process {pid}), so NVFlare's preflight check was left out"
        return SiteFinding("connection", "running", f"{text}; that it runs says more")
    with tempfile.TemporaryDirectory(prefix="fedmed-preflight-") as name:
        view = _view(kit, Path(name))
        passed, rows = False, [("nvflare", "it said nothing", "")]
        for _ in range(2):  # NVFlare forks while gRPC has threads: now and then its process dies without a word
            passed, rows = _run(view, Path(name))
            if passed or not any(problem == "Can't start successfully:" for _, problem, _ in rows):
                break
        found.preflight, found.registered = passed, _registered(view)
    if passed:
        return None
    said = "; ".join(f"{check}: {problem} ({fix})" if fix else f"{check}: {problem}" for check, problem, fix in rows)
    return _wrong("preflight", f"NVFlare's preflight check fails: {said}")


def running(kit: Kit) -> int | None:
    """Process id of the site, if it was started from this kit."""
    for name in ("pid.fl", "daemon_pid.fl"):
        try:
            pid = int((kit.folder / name).read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        if psutil.pid_exists(pid):
            return pid
    return None


def _view(kit: Kit, folder: Path) -> Path:
    view = folder / "kit"
    (view / "transfer").mkdir(parents=True)
    for part in ("startup", "local"):
        (view / part).mkdir()  # the folders are real: NVFlare does not look into linked ones
        for path in (kit.folder / part).iterdir() if (kit.folder / part).is_dir() else ():
            (view / part / path.name).symlink_to(path)
    return view


def _run(view: Path, folder: Path) -> tuple[bool, list[tuple[str, str, str]]]:
    program = Path(sys.executable).parent / "nvflare"
    line = [str(program), "preflight-check", "--format", "json", "-p", str(view)]
    (folder / "home").mkdir(exist_ok=True)
    environment = {**os.environ, "HOME": str(folder / "home"), "GRPC_ENABLE_FORK_SUPPORT": "0"}
    try:
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=PREFLIGHT)
        return parse(done.stdout, done.stderr)
    except subprocess.TimeoutExpired:
        return False, [("nvflare", f"no result in {PREFLIGHT:.0f} s", "")]
    except OSError as error:
        return False, [("nvflare", f"{program} cannot be started ({error.strerror})", "run scripts/setup.sh")]
    finally:
        _end_all(view)


def _end_all(view: Path) -> None:
    """NVFlare ends the site that it started by ``pkill``, which not every machine has."""
    for process in psutil.process_iter(["cmdline"]):
        if str(view) in (process.info["cmdline"] or []):
            try:
                process.kill()
            except psutil.Error:
                continue


def parse(stdout: str, stderr: str) -> tuple[bool, list[tuple[str, str, str]]]:
    """Return whether NVFlare's check passed, and the rows (check, problem, remedy) that did not.

    Args:
        stdout: one JSON object with ``data.overall``.
        stderr: a table ``| check | problem | remedy |`` whose longer problems are broken into lines.
    """
    rows: list[list[str]] = []
    for line in stderr.splitlines():
        cells = [cell.strip() for cell in line.strip("| \n").split(" | ")]
        if not line.startswith("| ") or len(cells) != 3 or cells[0] == "Checks":
            cells = _continued(line)
            if cells and rows:
                rows[-1][1] += cells
            continue
        rows.append(cells)
    bad = [(check, problem, fix) for check, problem, fix in rows if problem != "PASSED"]
    passed = _overall(stdout) == "pass"
    last = [line for line in stderr.splitlines() if line.strip()][-1:]
    return passed, bad or ([] if passed else [("nvflare", (last or ["it said nothing"])[0], "")])


def _continued(line: str) -> str:
    """The next piece of a broken problem: only the middle cell holds anything."""
    cells = line.split("|")
    return cells[2].strip() if len(cells) >= 4 and not cells[1].strip() and not cells[-2].strip() else ""


def _overall(stdout: str) -> Any:
    for line in reversed(stdout.splitlines()):
        try:
            return json.loads(line)["data"]["overall"]
        except (ValueError, KeyError, TypeError):
            continue
    return None


def _registered(view: Path) -> bool:
    """A dry run passes when the site still runs after five seconds; its log tells whether it got in."""
    try:
        return "Successfully registered client" in (view / "log.txt").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _wrong(kind: str, text: str) -> SiteFinding:
    return SiteFinding("connection", kind, text)
