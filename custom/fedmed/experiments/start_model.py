"""The model that a job of a chain starts from: that of the step before, or the same with tensors of 0."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from fedmed.durable_files import load_tensors, save_tensors
from fedmed.errors import StateError
from fedmed.experiments.job_scores import RUN
from fedmed.jobs.study import Study
from fedmed.recovery.model_store import MODELS

KEPT = re.compile(r"\.running_var$")  # a variance of 0 would make numbers without end


@contextmanager
def models_for(study: Study, start: Path | None, folder: Path, blank: bool) -> Iterator[None]:
    """A block in which the study's checkpoint is found, if it has one.

    Args:
        study: of the job that is run.
        start: folder of the finished run that left the checkpoint; None: nothing changes.
        folder: of the run itself; a blank model is written there.
        blank: whether what is taken from the checkpoint is 0: what a model makes of its input is then no part of the
            result.

    Raises:
        StateError: the run left no such model; names the folder to remove.
    """
    if start is None or study.checkpoint is None:
        yield
        return
    models = start / "server" / RUN.parent / "app_server"
    if not (models / study.checkpoint).is_file():
        raise StateError(f"{models / study.checkpoint} is missing, which this run starts from; remove {start}")
    models = _blank(models / study.checkpoint, folder / "start", study.checkpoint_tensors) if blank else models
    before = os.environ.get(MODELS)
    os.environ[MODELS] = str(models)
    try:
        yield
    finally:
        os.environ.pop(MODELS) if before is None else os.environ.update({MODELS: before})


def _blank(path: Path, folder: Path, patterns: list[str]) -> Path:
    """A folder with the same model, whose tensors that a pattern finds are 0, but for variances."""
    kept = load_tensors(path)
    model = {
        name: torch.zeros_like(t) if any(re.search(p, name) for p in patterns) and not KEPT.search(name) else t
        for name, t in kept["model"].items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_tensors(folder / path.name, {**kept, "model": model})
    return folder
