"""NVFlare's simulator as a process: started, followed to its end, and ended with everything that it has started."""

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from rich.console import Console
from rich.live import Live

from fedmed.errors import FedMedError
from fedmed.flare.private_flare import SIMULATED_SITE
from fedmed.recovery.ends_with_parent import end_marked, marked

if TYPE_CHECKING:  # elsewhere where it is used: it takes seconds to load
    from fedmed.reports.live import Follower

POLL_INTERVAL = 2.0  # seconds between two looks at the sites' processes
KILL_GRACE = 8.0  # seconds between asking the simulator to stop and killing it


def nvflare() -> Path:
    """NVFlare's program, in the environment that runs this script."""
    program = Path(sys.executable).parent / "nvflare"
    if not program.is_file():
        raise FedMedError(f"NVFlare is missing: {program} does not exist; use FedMed's own environment")
    return program


def command_line(program: Path, job: Path, workspace: Path, threads: int, gpu: str | None) -> list[str]:
    """The simulator's command line, under a process that ends it when this one is gone."""
    # NVFlare changes its directory: every path is absolute.
    line = [sys.executable, "-m", "fedmed.recovery.ends_with_parent"]
    line += [str(program), "simulator", str(job), "-w", str(workspace), "-t", str(threads)]
    return line + (["--gpu", gpu] if gpu else [])


def stop(process: subprocess.Popen, mark: str) -> None:
    """End the simulator and every process of its run, which bear its mark; kill those that do not end when asked."""
    family = marked(mark)
    for member in family:
        with suppress(psutil.Error):  # it has just ended
            member.terminate()
    psutil.wait_procs(family, timeout=KILL_GRACE)
    end_marked(mark)
    process.wait()


class Workers:
    """Notices a site whose process was killed: NVFlare's simulator would wait for it for ever.

    Args:
        process: the simulator, with a process for each site that lasts as long as the job.
        done: whether the run's result is written, after which the sites may end.
    """

    def __init__(self, process: subprocess.Popen, done: Callable[[], bool]) -> None:
        self.process, self.done = process, done
        self._seen: set[str] = set()
        self._next = 0.0
        self._gone_since: float | None = None

    def lost(self) -> str | None:
        """Name a site that has been without its process for some time."""
        now = time.monotonic()
        if now < self._next:
            return None
        self._next = now + POLL_INTERVAL
        alive = set()
        try:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                line = child.cmdline() if child.status() != psutil.STATUS_ZOMBIE else []
                if SIMULATED_SITE in line and "-o" in line:
                    alive.add(Path(line[line.index("-o") + 1]).name)
        except psutil.Error:  # a process ended while it was looked at
            return None
        self._seen |= alive
        gone = sorted(self._seen - alive)
        since = self._gone_since or now
        self._gone_since = since if gone else None
        late = gone and now - since > KILL_GRACE
        return gone[0] if late and not self.done() else None


def follow(
    process: subprocess.Popen, follower: "Follower", console: Console, quiet: bool, workers: Workers | None = None
) -> str | None:
    """Show progress until the simulator ends: a live display in a terminal, plain lines elsewhere.

    Returns:
        A site whose process is gone, for which the simulator would wait for ever; None when it ended.
    """
    from fedmed.reports.live import render

    live = None if quiet or not console.is_terminal else Live(console=console, auto_refresh=False)
    with live or nullcontext():
        running = True
        while running:
            running = process.poll() is None
            lines = follower.poll()
            if live:
                live.update(render(follower.state, time.time()), refresh=True)
            elif not quiet:
                for line in lines:
                    print(line, flush=True)
            if running and workers and (site := workers.lost()):
                return site
            if running:
                time.sleep(0.25)
    return None
