"""Make room in a workspace for the run that continues the interrupted one there."""

from collections.abc import Iterable
from pathlib import Path

from fedmed.errors import StateError
from fedmed.recovery.server_state import RESULT, STATE

RUN = "simulate_job"  # the simulator's only job, and the in-process loop's
FACTS = "run.json"  # is written once an earlier run was taken over, if there was one


def records(workspace: Path, run: str = RUN) -> Path:
    """The server's folder of a run in a workspace."""
    return workspace / "server" / run / "fedmed"


def interrupted(workspace: Path) -> Path | None:
    """The workspace of the run to continue: this one, or the one that was moved aside for it in vain.

    Raises:
        StateError: the run is finished.
    """
    here = records(workspace)
    if (here / RESULT).is_file():
        raise StateError(f"the run in {workspace} is finished; there is nothing to resume")
    if (here / STATE).is_file():
        return workspace
    before = [] if (here / FACTS).is_file() else _asides(workspace)
    kept = [path for path in before if (records(path) / STATE).is_file()]
    return kept[-1] if kept else None


def next_aside(workspace: Path) -> Path:
    """Where the workspace would be moved to."""
    return _aside(workspace, len(_asides(workspace)) + 1)


def _aside(workspace: Path, number: int) -> Path:
    return workspace.with_name(f"{workspace.name}.before-{number}")


def _asides(workspace: Path) -> list[Path]:
    places = (_aside(workspace, number) for number in range(1, 1000))
    return [path for path in places if path.is_dir()]


def set_aside(workspace: Path, sites: Iterable[str]) -> str | None:
    """Make room for the in-process loop, which keeps the runs of a workspace side by side at each site.

    Args:
        workspace: of the loop.
        sites: the job's sites.

    Returns:
        The name under which the interrupted run now lies; None if there is none.

    Raises:
        StateError: the run in the workspace is finished.
    """
    server = workspace / "server"
    asides = [name for name in (f"before-{number}" for number in range(1, 1000)) if (server / name).is_dir()]
    if (records(workspace) / RESULT).is_file():
        raise StateError(f"the run in {workspace} is finished; there is nothing to resume")
    if not (records(workspace) / STATE).is_file():
        before = [] if (records(workspace) / FACTS).is_file() else asides
        kept = [name for name in before if (records(workspace, name) / STATE).is_file()]
        return kept[-1] if kept else None
    name = f"before-{len(asides) + 1}"
    for folder in (*(workspace / site for site in sites), server):  # the server last: without it nothing is set aside
        if (folder / RUN).is_dir() and not (folder / name).exists():
            (folder / RUN).rename(folder / name)
    return name
