"""The files that inference writes of phases."""

from collections.abc import Sequence
from pathlib import Path

from surgical_phase.prediction_files import PredictionFiles
from surgical_phase.ribbon import draw_ribbon


class PhaseWriter(PredictionFiles):
    """Write which phase each frame is of, the likeliest, and ``ribbons/``: the phases of each video along time."""

    column, pictures = "phase", "ribbons"

    def called(self, values: Sequence[float]) -> str:
        return max(zip(values, self.classes, strict=True), key=lambda pair: pair[0])[1]

    def draw(
        self, path: Path, title: str, values: Sequence[Sequence[float] | None], seconds: Sequence[float | None]
    ) -> None:
        draw_ribbon(path, title, self.classes, values, seconds)
