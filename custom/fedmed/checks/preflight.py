"""NVFlare's own preflight check of a site's startup kit."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

from fedmed.checks.server_connection import Connection
from fedmed.checks.site_findings import SiteFinding, link_finding
from fedmed.checks.startup_kit import Kit

PATIENCE = 120.0  # seconds; it takes about 6
Row = tuple[str, str, str]  # of NVFlare's report: check, problem, remedy


def preflight(kit: Kit, found: Connection) -> SiteFinding | None:
    """Run ``nvflare preflight-check``, which also starts the site for five seconds, and fill in what was seen.

    It runs on a view of the kit, a folder of links: NVFlare would write its logs into the kit, and would kill every
    process whose command line is that of the site started from there.

    Returns:
        Why it failed, or that it was left out because the site is running. A second registration would take the
        running site's token.
    """
    if pid := running(kit):
        text = f"the site is already running from this kit (process {pid}), so NVFlare's preflight check was left out"
        return link_finding("running", f"{text}; that it is running tells more")
    with tempfile.TemporaryDirectory(prefix="fedmed-preflight-") as name:
        view = _view(kit, Path(name))
        passed, rows = _run(view)
        if not passed and any(problem == "Can't start successfully:" for _, problem, _ in rows):
            passed, rows = _run(view)  # NVFlare forks while gRPC has threads: now and then its process dies silently
        found.preflight, found.registered = passed, _registered(view)
    if passed:
        return None
    failed = "; ".join(f"{check}: {problem} ({fix})" if fix else f"{check}: {problem}" for check, problem, fix in rows)
    return link_finding("preflight", f"NVFlare's preflight check fails: {failed}")


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
    for part in ("transfer", "startup", "local"):
        (view / part).mkdir(parents=True)  # the folders are real: NVFlare does not look into linked ones
        for path in (kit.folder / part).iterdir() if part != "transfer" and (kit.folder / part).is_dir() else ():
            (view / part / path.name).symlink_to(path)
    return view


def _run(view: Path) -> tuple[bool, list[Row]]:
    program, home = Path(sys.executable).parent / "nvflare", view.parent / "home"
    home.mkdir(exist_ok=True)
    environment = {**os.environ, "HOME": str(home), "GRPC_ENABLE_FORK_SUPPORT": "0"}
    line = [str(program), "preflight-check", "--format", "json", "-p", str(view)]
    try:
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=PATIENCE)
        return parse(done.stdout, done.stderr)
    except subprocess.TimeoutExpired:
        return False, [("nvflare", f"no result in {PATIENCE:.0f} s", "")]
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


def parse(stdout: str, stderr: str) -> tuple[bool, list[Row]]:
    """Return whether NVFlare's check passed, and the rows (check, problem, remedy) that did not.

    Args:
        stdout: one JSON object with ``data.overall``.
        stderr: a table ``| check | problem | remedy |`` whose longer problems are broken into lines.
    """
    rows: list[list[str]] = []
    for line in stderr.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 3 and cells[0] not in ("", "Checks"):
            rows.append(cells)
        elif len(cells) == 3 and rows and not cells[0]:
            rows[-1][1] += cells[1]
    if _overall(stdout) == "pass":
        return True, []
    last = next((line for line in reversed(stderr.splitlines()) if line.strip()), "it gave no output")
    failed = [(check, problem, fix) for check, problem, fix in rows if problem != "PASSED"]
    return False, failed or [("nvflare", last, "")]


def _overall(stdout: str) -> object:
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
