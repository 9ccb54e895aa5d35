"""The model that a job of a chain starts from: that of the step before, or the same with tensors of 0."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from fedmed.durable_files import load_tensors, save_tensors
from fedmed.errors import StateError
from fedmed.files import MODELS
from fedmed.jobs.study import Study
from fedmed.systems.fixmatch.fedmatch import PARTS
from research.runner.job_scores import RUN

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
    models = _prepared(models / study.checkpoint, folder / "start", study.checkpoint_tensors, blank)
    before = os.environ.get(MODELS)
    os.environ[MODELS] = str(models)
    try:
        yield
    finally:
        os.environ.pop(MODELS) if before is None else os.environ.update({MODELS: before})


def _prepared(path: Path, folder: Path, patterns: list[str], blank: bool) -> Path:
    """The folder of the model, or of a copy that is blank or whose two parts are one."""
    kept = load_tensors(path)
    model = whole(kept["model"])
    if blank:
        model = {
            name: torch.zeros_like(t) if any(re.search(p, name) for p in patterns) and not KEPT.search(name) else t
            for name, t in model.items()
        }
    elif model.keys() == kept["model"].keys():
        return path.parent
    folder.mkdir(parents=True, exist_ok=True)
    save_tensors(folder / path.name, {**kept, "model": model})
    return folder


def whole(model: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of a model; of one whose weights have two parts (:mod:`fedmed.systems.fixmatch.fedmatch`), their sums.

    Entries of the second part that are so small that they count as 0 there are added here: 1e-5 at the most.
    """
    sigma, psi = (f"{part}." for part in PARTS)
    if not any(name.startswith(psi) for name in model):
        return dict(model)
    tensors = {name.removeprefix(sigma): t for name, t in model.items() if name.startswith(sigma)}
    return {name: t + model[psi + name] if psi + name in model else t for name, t in tensors.items()}
