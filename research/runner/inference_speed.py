"""A stage of an arm: how many frames a second the network of the job before segments, one at a time."""

import json
import time
from dataclasses import dataclass
from statistics import median
from typing import Annotated

import pandas as pd
import torch
from pydantic import Field

from fedmed.durable_files import save_json
from research.runner.job_network import JobNetwork, NetworkStage, NetworkStep
from research.runner.job_step import JobStep
from research.runner.score_table import SPEED, score_frame
from research.runner.stages import Place

FILE = "speed.json"
WARM_UP = 3  # passes that are not measured


class InferenceSpeed(NetworkStage):
    """Measures forward passes of a batch of one, on the CPU with one thread; the median of them counts.

    Attributes:
        passes: that are measured.
    """

    passes: Annotated[int, Field(ge=1)] = 21

    def step(self, place: Place, before: JobStep) -> NetworkStep:
        return SpeedStep(before, before.path / FILE, self.passes)


@dataclass(frozen=True)
class SpeedStep(NetworkStep):
    """Frames a second in a file of the job's folder; other numbers of passes are no reason to measure again."""

    passes: int

    def make(self) -> None:
        made = JobNetwork(self.before)
        save_json(self.path, {"frames_per_second": frames_per_second(made, self.passes), "passes": self.passes})

    def scores(self) -> pd.DataFrame:
        """One row of the list ``speed``, metric ``frames_per_second``."""
        value = float(json.loads(self.path.read_text(encoding="utf-8"))["frames_per_second"])
        rows = [{"site": "", "unit": "model", "metric": "frames_per_second", "value": value}]
        return score_frame(rows, arm="", seed=self.before.job.study.seed, list=SPEED, model="last")


@torch.inference_mode()
def frames_per_second(made: JobNetwork, passes: int) -> float:
    """Of a network, with noise for images; history counts as part of its frame."""
    torch.set_num_threads(1)
    network, took = made.fresh(), list[float]()
    images = torch.rand(1, 3 * made.frames, *made.size, generator=torch.Generator().manual_seed(0))
    for number in range(WARM_UP + passes):
        begun = time.perf_counter()
        network(images)
        if number >= WARM_UP:
            took.append(time.perf_counter() - begun)
    return 1 / median(took)
