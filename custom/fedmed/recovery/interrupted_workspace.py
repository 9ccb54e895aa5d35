"""Make room in a workspace for the run that continues the interrupted one there."""

from collections.abc import Iterable
from pathlib import Path

from fedmed.errors import StateError
from fedmed.recovery.checkpoint import RESULT, Checkpoints

RUN = "simulate_job"  # the simulator's only job, and the in-process loop's
FACTS = "run.json"  # is written once an interrupted run was taken over, if there was one
BACKUP = "before-"  # and a number: the name under which an interrupted run makes room


def records(workspace: Path, run: str = RUN) -> Path:
    """The server's folder of a run in a workspace."""
    return workspace / "server" / run / "fedmed"


def interrupted(workspace: Path) -> Path | None:
    """The workspace of the run to continue: this one, or the backup from which nothing went on; None without a run.

    Raises:
        StateError: the run is finished.
    """
    folder = _unfinished(workspace, [records(path) for path in _backups(workspace.parent, f"{workspace.name}.")])
    return folder and folder.parents[2]


def next_backup(workspace: Path) -> Path:
    """Folder to which the workspace would be moved."""
    number = len(_backups(workspace.parent, f"{workspace.name}.")) + 1
    return workspace.with_name(f"{workspace.name}.{BACKUP}{number}")


def move_interrupted(workspace: Path, sites: Iterable[str]) -> str | None:
    """Make room for the in-process loop, which keeps the runs of a workspace side by side at each site.

    Returns:
        The name under which the interrupted run now lies; None if there is none.

    Raises:
        StateError: the run in the workspace is finished.
    """
    server = workspace / "server"
    backups = [path.name for path in _backups(server)]
    unfinished = _unfinished(workspace, [records(workspace, name) for name in backups])
    if unfinished is None or unfinished.parent.name != RUN:
        return unfinished.parent.name if unfinished else None
    name = f"{BACKUP}{len(backups) + 1}"
    for folder in (*(workspace / site for site in sites), server):  # the server last: it decides whether there is a run
        if (folder / RUN).is_dir() and not (folder / name).exists():
            (folder / RUN).rename(folder / name)
    return name


def _unfinished(workspace: Path, backups: Iterable[Path]) -> Path | None:
    """The server's folder of the run to continue, in the workspace itself or else in the newest of its backups."""
    here = records(workspace)
    if (here / RESULT).is_file():
        raise StateError(f"the run in {workspace} is finished; there is nothing to resume")
    if Checkpoints(here).there():
        return here
    unfinished = [] if (here / FACTS).is_file() else [path for path in backups if Checkpoints(path).there()]
    return unfinished[-1] if unfinished else None


def _backups(folder: Path, prefix: str = "") -> list[Path]:
    places = (folder / f"{prefix}{BACKUP}{number}" for number in range(1, 1000))
    return [path for path in places if path.is_dir()]
