"""The step of an arm that leaves an encoder: a finished job, of which nothing else stays."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from torch import Tensor

from fedmed.durable_files import load_tensors, save_tensors
from fedmed.errors import StateError
from fedmed.federation.server import Server
from research.runner.job_scores import read_rounds
from research.runner.job_step import JobStep

ENCODER_FILE = "encoder.pt"


@dataclass(frozen=True)
class EncoderStep(JobStep):
    """A job that leaves an encoder; of one that a hospital made alone, that is the ``node``."""

    images: Mapping[str, int] = field(kw_only=True)  # node -> images that it learns from, in the arm's order
    prefix: str = field(kw_only=True)  # what the names of the encoder's tensors begin with

    @property
    def results(self) -> Path:
        """Folder of what is made on the encoder; it goes when the run is made again."""
        return self.path / "downstream"

    def encoder(self) -> dict[str, Tensor]:
        """Tensors of the finished run's encoder, with their names in the whole model."""
        return load_tensors(self.path / ENCODER_FILE)

    def scores(self) -> pd.DataFrame | None:
        """Scores that the rounds of several nodes recorded."""
        return read_rounds(self.path, self.job.study.seed, self.images) if len(self.images) > 1 else None

    def conclude(self, server: Server) -> None:
        """Save the encoder alone: no model of every round."""
        encoder = {name: t.detach().clone() for name, t in server.tensors.items() if name.startswith(self.prefix)}
        if not encoder:
            raise StateError(
                f"the model of {self.path} has no tensor '{self.prefix}…'; use a bundle that names its encoder so"
            )
        save_tensors(self.path / ENCODER_FILE, encoder)
        for models in self.path.glob("server/*/app_server"):
            shutil.rmtree(models, ignore_errors=True)
