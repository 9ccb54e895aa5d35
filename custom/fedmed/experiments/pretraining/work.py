"""One encoder with all that is trained on it: the unit that a process works on."""

import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from fedmed.durable_files import load_tensors, save_tensors
from fedmed.errors import StateError
from fedmed.experiments.pretraining.downstream import ENCODER, Evaluation, evaluate
from fedmed.experiments.pretraining.plan import Pretraining
from fedmed.experiments.runs import Run, complete, finished
from fedmed.federation.server import Server

ENCODER_FILE, DOWNSTREAM = "encoder.pt", "downstream"


@dataclass(frozen=True)
class Work:
    """An encoder and its evaluations.

    Attributes:
        name: of the arm that asked first, with its seed, for messages.
        pretraining: how the encoder is made.
        evaluations: what is trained on it.
        folder: of the predictions.
    """

    name: str
    pretraining: Pretraining
    evaluations: tuple[Evaluation, ...]
    folder: Path

    def missing(self) -> list[Evaluation]:
        """Evaluations that were not done yet; all of them when the encoder must be made again."""
        run = self.pretraining.run
        if run is not None and not finished(run):
            return list(self.evaluations)
        return [each for each in self.evaluations if not each.file(self.folder).is_file()]


def folder_of(pretraining: Pretraining, runs: Path, data: str) -> Path:
    """Where the predictions of an encoder lie: in its run's folder, which goes when the run is made again."""
    if pretraining.run is None:
        return runs / f"{data}-no-pretraining-{pretraining.seed}"
    return pretraining.run.folder / DOWNSTREAM


def do(work: Work) -> Path:
    """Pre-train unless that was done, then every evaluation that is missing.

    Raises:
        FedMedError: the job failed, or a classifier could not be trained.
    """
    logging.getLogger("fedmed").setLevel(logging.ERROR)  # what a run has to say is in its own file
    encoder = None if work.pretraining.run is None else pretrained(work.pretraining.run)
    for each in work.missing():
        evaluate(each, encoder, work.folder)
    return work.folder


def pretrained(run: Run) -> dict[str, Tensor]:
    """The encoder of a run, which is made first unless it is there."""
    complete(run, lambda server: _keep(run, server))
    return load_tensors(run.folder / ENCODER_FILE)


def _keep(run: Run, server: Server) -> None:
    """Keep the encoder alone of a finished run: no private state, no model of every round."""
    encoder = _encoder(server.tensors)
    if not encoder:
        raise StateError(
            f"the model of {run.folder} has no tensor '{ENCODER}…'; use a bundle that names its encoder so"
        )
    save_tensors(run.folder / ENCODER_FILE, encoder)
    for models in run.folder.glob("server/*/app_server"):
        shutil.rmtree(models, ignore_errors=True)


def _encoder(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items() if name.startswith(ENCODER)}
