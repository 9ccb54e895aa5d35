"""A stage of an arm: boxes round tips of instruments in real frames that a model hits, beside ways without one."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from pydantic import Field
from torch import nn

from fedmed.errors import DataError, JobError
from fedmed.files import data_root
from fedmed.reports.run_files import column, read_table
from fedmed.seeds import derive_seed
from fedmed.training.case_recorder import write_table
from research.runner.experiment_data import ExperimentData
from research.runner.federation_data import FederationData
from research.runner.job_network import JobNetwork, NetworkStage, NetworkStep
from research.runner.job_step import JobStep
from research.runner.score_table import score_frame
from research.runner.stages import Place
from research.runner.tip_boxes import COVERED, BoxedFrame, boxed_frames, hits, least_saturated, moved, scattered

WAYS = ("model", "random", "moved", "saturation")  # how pixels are chosen, the same number of each frame
Share = Annotated[float, Field(gt=0, le=1)]


class TipData(FederationData):
    """A federation, and operations with boxes in single frames below the folder of real images.

    Attributes:
        folder: below ``$FEDMED_DATA``; see :func:`research.runner.tip_boxes.boxed_frames`.
        operations: names of its videos, which a table shows as its sites.
    """

    folder: str
    operations: list[str]

    def shown_sites(self, wanted: list[str]) -> dict[str, str]:
        shown = {name: name for name in wanted if name in self.operations}
        return shown | super().shown_sites([name for name in wanted if name not in shown])


class TipHits(NetworkStage):
    """Share of the boxes that the last model of the job before hits.

    The job must share all tensors: there is no site whose private ones the frames could have.

    Attributes:
        covered: share of a box's pixels that must be called an instrument for a hit.
    """

    needs: ClassVar[type[ExperimentData]] = TipData

    covered: Share = COVERED

    def step(self, place: Place, before: JobStep) -> NetworkStep:
        if before.job.keeps_private:
            raise JobError(
                f"arm '{place.arm}': sites keep layers of their own, which real frames do not have; share all"
            )
        data: TipData = place.data
        folder = data_root("../shared/data") / data.folder
        settings = {"folder": str(folder), "operations": data.operations, "covered": self.covered}
        name = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:8]
        return TipStep(before, before.path / f"tips-{name}.csv", folder, tuple(data.operations), self.covered)


@dataclass(frozen=True)
class TipStep(NetworkStep):
    """A line for each frame with boxes: how many it has, and how many each way hits."""

    folder: Path
    operations: tuple[str, ...]
    covered: float

    def make(self) -> None:
        torch.set_num_threads(max(site.threads for site in self.machines()))
        frames = [frame for video in self.operations for frame in boxed_frames(self.folder, video)]
        made = JobNetwork(self.before)
        network, size = made.last(), made.size
        generator = np.random.default_rng(derive_seed(self.before.job.study.seed, "pixels beside a model"))
        rows = [self._row(frame, network, size, generator) for frame in frames]
        write_table(self.path, ["video", "second", "boxes", "called", *WAYS], rows)

    def scores(self) -> pd.DataFrame:
        """Share of an operation's boxes that each way hits, metrics ``hit_<way>``, and ``called``, of its pixels."""
        table, rows = read_table(self.path), []
        for video, frames in table.groupby("video", sort=False):
            boxes = column(frames, "boxes").sum()
            numbers = {f"hit_{way}": column(frames, way).sum() / boxes for way in WAYS}
            numbers |= {"called": column(frames, "called").mean(), "boxes": boxes}
            rows += [{"site": video, "unit": video, "metric": name, "value": v} for name, v in numbers.items()]
        return score_frame(rows, arm="", seed=self.before.job.study.seed, list="test", model="last")

    def _row(
        self, frame: BoxedFrame, network: nn.Module, size: tuple[int, int], generator: np.random.Generator
    ) -> list[str]:
        image = read_rgb(frame.path, size)
        mask = called(network, image)
        masks = (mask, scattered(mask, generator), moved(mask, generator), least_saturated(mask, image))
        counts = [hits(one, frame.boxes, self.covered) for one in masks]
        return [frame.video, str(frame.second), str(len(frame.boxes)), f"{mask.mean():.6f}", *map(str, counts)]


def read_rgb(path: Path, size: tuple[int, int]) -> NDArray[np.uint8]:
    """A picture (H, W, 3) of a size; DataError for a damaged one."""
    try:
        with Image.open(path) as picture:
            small = picture.convert("RGB").resize((size[1], size[0]), Image.Resampling.BILINEAR)
    except (OSError, UnidentifiedImageError) as error:
        raise DataError(f"{path}: cannot be read ({error}); copy it again") from error
    return np.asarray(small)


@torch.inference_mode()
def called(network: nn.Module, image: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Mask (H, W) of where a network calls any class but the first in a picture (H, W, 3)."""
    values = torch.from_numpy(image.copy()).permute(2, 0, 1)[None].float() / 255
    mask: NDArray[np.bool_] = (network(values).argmax(dim=1)[0] > 0).numpy()
    return mask
