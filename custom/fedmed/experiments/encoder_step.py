"""The step of a chain that leaves an encoder: a finished job, of which nothing else is kept."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from torch import Tensor

from fedmed.durable_files import load_tensors, save_tensors
from fedmed.errors import StateError
from fedmed.experiments.federated_training import JobStep
from fedmed.experiments.job_run import complete
from fedmed.experiments.job_scores import read_rounds
from fedmed.federation.server import Server

ENCODER_FILE = "encoder.pt"


@dataclass(frozen=True)
class EncoderStep(JobStep):
    """A job that leaves an encoder.

    Attributes:
        run: the job.
        images: node -> images that it learns from, in the arm's order.
        prefix: what the names of the encoder's tensors begin with.
        node: the hospital of an encoder that one made alone.
    """

    images: Mapping[str, int]
    prefix: str
    node: str = ""

    @property
    def results(self) -> Path:
        """Folder of what is made on the encoder; it goes when the run is made again."""
        return self.run.folder / "downstream"

    def make(self) -> None:
        complete(self.run, self._keep)

    def encoder(self) -> dict[str, Tensor]:
        """Tensors of the finished run's encoder, with their names in the whole model."""
        return load_tensors(self.run.folder / ENCODER_FILE)

    def scores(self) -> pd.DataFrame | None:
        """What the rounds of several nodes recorded."""
        return read_rounds(self.run, self.images) if len(self.images) > 1 else None

    def _keep(self, server: Server) -> None:
        """Keep the encoder alone of a finished run: no private state, no model of every round."""
        encoder = {name: t.detach().clone() for name, t in server.tensors.items() if name.startswith(self.prefix)}
        if not encoder:
            raise StateError(
                f"the model of {self.run.folder} has no tensor '{self.prefix}…'; use a bundle that names its encoder so"
            )
        save_tensors(self.run.folder / ENCODER_FILE, encoder)
        for models in self.run.folder.glob("server/*/app_server"):
            shutil.rmtree(models, ignore_errors=True)
