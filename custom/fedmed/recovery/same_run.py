"""Whether a job continues the run that it says it continues, and where that run's state lies."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedmed.errors import JobError, StateError
from fedmed.jobs.plan import Plan
from fedmed.recovery.model_store import ModelStore
from fedmed.recovery.saved_state import SavedState, folder_of_job
from fedmed.recovery.server_state import RESULT, STATE, ServerState

CARRIED = "resume"  # folder in the server's app in which a job brings the state that it continues
MAY_CHANGE = {  # how long, for whom to wait, what to tell; all else would make it another run
    "job", "rounds", "min_clients", "max_failed_rounds", "task_timeout", "evaluate", "evaluate_last",
    "evaluate_first", "release_from", "collapse_guard", "resume", "fresh", "patience", "min_rounds",
    "release_weights", "release_partial", "release_keep", "max_norm_ratio",
    "max_samples",
}  # fmt: skip


def find_state(id: str, app: Path, folder: Path) -> ServerState:
    """Find the state of the job that is resumed: brought by this one, or in the server's own workspace.

    Args:
        id: of that job.
        app: this job's app folder at the server.
        folder: this job's folder at the server.

    Raises:
        StateError: it is in neither place, or that job was finished; says where it was looked for.
    """
    places = [app / CARRIED, folder_of_job(id, folder)]
    for place in places:
        if (place / RESULT).is_file():
            raise StateError(f"job '{id}' was finished ({place / RESULT}); there is nothing to resume")
        if (place / STATE).is_file():
            return ServerState(place)
    looked = "\n".join(f"    {place / STATE}" for place in places)
    raise StateError(
        f"the state of job '{id}' is not at this server. Looked for\n{looked}\nDownload that job's result, or find its "
        "run folder, and write the job with scripts/resume.py; without a finished round, submit the old job again"
    )


def config_of(plan: Plan, aggregator: Mapping[str, Any], store: ModelStore) -> dict[str, Any]:
    """What a run is made of, as plain values."""
    parts = {"controller": asdict(plan), "aggregator": dict(aggregator), "model": store.describe()}
    return dict(json.loads(json.dumps(parts)))


def check_same(state: SavedState, config: Mapping[str, Any]) -> None:
    """Refuse to continue a run with a job that would make another one of it.

    Raises:
        JobError: names the argument that differs, or says that the job asks for no further round.
    """
    for part, ours in config.items():
        theirs = state.config.get(part, {})
        for key in sorted(set(ours) | set(theirs)):
            if ours.get(key) != theirs.get(key) and not (part == "controller" and key in MAY_CHANGE):
                raise JobError(
                    f"the job is not the one that it resumes: {part} argument '{key}' is {ours.get(key)!r}, it was "
                    f"{theirs.get(key)!r}; use the same job and the same version of the bundle, or start a new run"
                )
    asked = config["controller"]["rounds"]
    if asked <= state.round:
        raise JobError(f"the run that the job resumes has {state.round + 1} rounds; 'rounds' is {asked}, ask for more")
