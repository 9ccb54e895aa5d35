"""Find an interrupted run and write the job that goes on with it."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedmed.errors import JobError, StateError
from fedmed.jobs.job_folder import PLACE, read_job, whole_folder
from fedmed.jobs.job_meta import check_plain
from fedmed.recovery.checkpoint import CARRIED, CHECKPOINTS, RESULT, Checkpoints, config_of
from fedmed.recovery.interrupted_workspace import RUN
from fedmed.recovery.model_store import ModelStore
from fedmed.settings.server import load_server

# A downloaded result, a server's run folder, the folder of the records itself.
PLACES = ("workspace/fedmed", "fedmed", ".")


@dataclass(frozen=True)
class Interrupted:
    """An interrupted run: the job that made it, the server's state, and the job's folder, as far as they are known.

    Attributes:
        sites: site -> its folder of the job, of a simulation: what it kept is looked at too.
    """

    id: str
    state: Checkpoints | None = None
    job: Path | None = None
    sites: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class Resumed:
    """A job that continues a run."""

    folder: Path
    id: str  # of the job that it continues
    done: int | None  # rounds that are done, None where only the server knows
    rounds: int  # of the whole run
    private: dict[str, int]  # site -> round of the private state that it must find again


def find_interrupted(run: Path | str, job: Path | None = None) -> Interrupted:
    """Find what is known of an interrupted run.

    Args:
        run: its downloaded result, the server's own run folder, or the id of a job whose folder only the server has.
        job: its job folder; None = the one in the downloaded result.

    Raises:
        StateError: no such run, no finished round, or nothing left to do.
        JobError: ``run`` is neither a folder nor an id.
    """
    folder = Path(run).expanduser().absolute()
    if not folder.is_dir():
        return Interrupted(check_plain(str(run)), job=job)
    if (folder / "server" / RUN).is_dir():
        raise StateError(f"{folder} is a simulator's workspace; continue it with fedmed simulate JOB --resume")
    inside = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    for root in (folder, *(inside if len(inside) == 1 else [])):  # NVFlare downloads a job into a folder of its id
        for place in PLACES:
            if (root / place / RESULT).is_file():
                raise StateError(f"the run at {folder} is finished; there is nothing to resume")
            if (checkpoints := Checkpoints(root / place)).there():
                return Interrupted(_id(root), checkpoints, job or _job(root))
    looked = ", ".join(f"{place}/{CHECKPOINTS}" for place in PLACES[:2])
    raise StateError(
        f"{folder} holds no state of a run. Looked for {looked}; give the job's downloaded result or the server's run "
        "folder. If no round was finished, submit the old job again"
    )


def _id(root: Path) -> str:
    try:
        return check_plain(json.loads((root / "meta.json").read_text(encoding="utf-8"))["job_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return check_plain(root.name)


def _job(root: Path) -> Path | None:
    jobs = sorted(path.parent for path in (root / "job").glob("**/meta.json"))
    return jobs[0] if jobs else None


def write_resumed(
    run: Interrupted,
    out: Path,
    *,
    rounds: int | None = None,
    fresh: Sequence[str] = (),
    replace: bool = False,
    back: bool = False,
) -> Resumed:
    """Write the job that continues a run, whole or not at all. It carries the server's state, but no site's.

    Args:
        rounds: of the whole run, if it is to become longer.
        fresh: sites that lost their private state and start it afresh.
        back: go on from the round before the last good one, since a site has said that its own state is damaged.

    Raises:
        JobError: the old job is unknown or not the run's own, an argument does not fit, or ``out`` exists.
        StateError: the state is damaged.
    """
    if run.job is None:
        raise JobError(f"the job folder of '{run.id}' is not with its run; give it with --job")
    resume = {"job": check_plain(run.id)} | ({"fresh": list(fresh)} if fresh else {})
    longer = {} if rounds is None else {"rounds": rounds}
    job = read_job(run.job, load_server().allowed_classes).changed({"resume": resume, **longer})
    if back and not run.state:
        raise JobError(f"only the server has the state of '{run.id}': give its run folder, to go back a round in it")
    state, out = run.state.sound(run.sites, back) if run.state else None, Path(out)
    if state:
        state.check_same(config_of(job, ModelStore(job, out)))
    with whole_folder(out, replace) as new:
        shutil.copytree(run.job, new, ignore=shutil.ignore_patterns(".__nvfl*", CARRIED))  # signatures, an older state
        for path in new.glob(f"*/{PLACE}"):
            path.write_bytes(job.text.encode())
        if run.state and state:
            run.state.carry(state, new / (job.app.name if job.app else "app_server") / CARRIED)
    private = {site: round for site, round in state.server.last_round.items() if site not in fresh} if state else {}
    return Resumed(out, run.id, state.round + 1 if state else None, job.study.rounds, private)
