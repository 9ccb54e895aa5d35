"""The files that inference writes of phases."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from surgical_phase.prediction_files import PredictionFiles
from surgical_phase.ribbon import draw_ribbon
from surgical_phase.temporal_net import TemporalPhaseNet


class PhaseWriter(PredictionFiles):
    """Write which phase each frame is of, the likeliest, and ``ribbons/``: the phases of each video along time."""

    column, pictures = "phase", "ribbons"

    def called(self, values: Sequence[float]) -> str:
        return max(zip(values, self.classes, strict=True), key=lambda pair: pair[0])[1]

    def draw(
        self, path: Path, title: str, values: Sequence[Sequence[float] | None], seconds: Sequence[float | None]
    ) -> None:
        draw_ribbon(path, title, self.classes, values, seconds)


class VideoPhaseWriter(PhaseWriter):
    """The same of features, by temporal stages: each video, or folder of pictures, is one operation.

    Args:
        output_dir, classes: see :class:`surgical_phase.prediction_files.PredictionFiles`.
        network: whose features they are.
    """

    def __init__(self, output_dir: str | Path, classes: Sequence[str], network: TemporalPhaseNet) -> None:
        super().__init__(output_dir, classes)
        self.network = network

    @torch.no_grad()
    def probabilities(self, outputs: Tensor) -> Tensor:
        """Probabilities (T, P) of features (T, F)."""
        self.network.eval()
        device = next(self.network.parameters()).device
        return torch.softmax(self.network.phases_of(outputs.to(device)), dim=1).cpu()
