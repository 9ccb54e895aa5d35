"""The files that inference writes of tools."""

from collections.abc import Sequence
from pathlib import Path

from surgical_tools.prediction_files import PredictionFiles
from surgical_tools.timeline import draw_timeline


class PredictionWriter(PredictionFiles):
    """Write which tools are seen, and ``timelines/``: each tool's probability along time.

    Args:
        output_dir, classes: see :class:`surgical_tools.prediction_files.PredictionFiles`.
        threshold: probability from which a tool counts as seen.
    """

    def __init__(self, output_dir: str | Path, classes: Sequence[str], threshold: float = 0.5) -> None:
        super().__init__(output_dir, classes)
        self.threshold = threshold

    def called(self, values: Sequence[float]) -> list[str]:
        return [name for name, value in zip(self.classes, values, strict=True) if value >= self.threshold]

    def draw(
        self, path: Path, title: str, values: Sequence[Sequence[float] | None], seconds: Sequence[float | None]
    ) -> None:
        draw_timeline(path, title, self.classes, values, self.threshold, seconds)
