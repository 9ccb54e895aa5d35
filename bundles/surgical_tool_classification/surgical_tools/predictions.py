"""The files that inference writes: one row for each frame."""

import csv
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine, Events
from monai.data import Dataset

from surgical_tools.errors import BundleInputError

log = logging.getLogger("surgical_tools")


class FrameDataset(Dataset):
    """Frames of a folder; one that cannot be read becomes a black frame with the reason, so that inference continues.

    Items have ``image`` (3, H, W), ``name``, the path below ``folder``, and ``error``, why it could not be read, or "".

    Args:
        data: ``{"image": path}`` each.
        transform: the preparation of a frame.
        folder: where the frames are.
        size: (H, W) of the black frame.
    """

    def __init__(
        self, data: Sequence[Mapping[str, Any]], transform: Any, folder: str | Path, size: Sequence[int]
    ) -> None:
        super().__init__(data, transform)
        self.folder, self.size = Path(folder), size

    def _transform(self, index: int) -> dict[str, Any]:
        path = self.data[index]["image"]
        name = Path(path).relative_to(self.folder).as_posix()
        try:
            return {"image": super()._transform(index)["image"], "name": name, "error": ""}
        except RuntimeError as error:  # MONAI's wrapping
            cause: BaseException = error
            while not isinstance(cause, BundleInputError):
                if cause.__cause__ is None:
                    raise
                cause = cause.__cause__
            return {"image": torch.zeros(3, *self.size), "name": name, "error": str(cause)}


class PredictionWriter:
    """Write ``predictions.csv`` and ``predictions.json`` as soon as inference has ended.

    A row has the frame's path below the folder, the tools that are seen, a probability for each tool, and why a frame
    could not be read; such a row has no prediction.

    Args:
        output_dir: folder for both files; created if it is missing.
        classes: names of the tools, in the order of the network's outputs.
        threshold: probability from which a tool counts as seen.
    """

    def __init__(self, output_dir: str | Path, classes: Sequence[str], threshold: float = 0.5) -> None:
        self.folder, self.classes, self.threshold = Path(output_dir), list(classes), threshold
        self.rows: list[dict[str, Any]] = []

    def attach(self, engine: Engine) -> None:
        engine.add_event_handler(Events.STARTED, lambda _: self.rows.clear())
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.note)
        engine.add_event_handler(Events.COMPLETED, lambda _: self.write())

    def note(self, engine: Engine) -> None:
        """Keep a batch's results."""
        for case, output in zip(engine.state.batch, engine.state.output, strict=True):
            values: list[float | None] = [float(value) for value in output["pred"]]
            seen = [name for name, value in zip(self.classes, values, strict=True) if value >= self.threshold]
            if case["error"]:
                log.warning("%s", case["error"])
                values, seen = [None] * len(self.classes), None
            probabilities = dict(zip(self.classes, values, strict=True))
            row = {"image": case["name"], "predicted": seen, "probabilities": probabilities, "error": case["error"]}
            self.rows.append(row)

    def write(self) -> None:
        """Write both files.

        Raises:
            BundleInputError: no frame could be read.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "predictions.csv"
        with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as stream:
            writer = csv.writer(stream)
            writer.writerow(["image", "predicted", *(f"p_{name}" for name in self.classes), "error"])
            for row in self.rows:
                values = ["" if p is None else f"{p:.6f}" for p in row["probabilities"].values()]
                writer.writerow([_cell(row["image"]), " ".join(row["predicted"] or ()), *values, row["error"]])
        content = json.dumps(self.rows, indent=1, ensure_ascii=False)
        (self.folder / "predictions.json").write_text(content, encoding="utf-8", errors="backslashreplace")
        failed = sum(bool(row["error"]) for row in self.rows)
        if failed == len(self.rows):
            raise BundleInputError(f"none of {failed} frames could be read; the first: {self.rows[0]['error']}")
        log.info("%d frames, %d not readable: %s", len(self.rows) - failed, failed, path)


def _cell(name: str) -> str:
    """A file's name, quoted where a spreadsheet would run it as a formula."""
    return f"'{name}" if name.startswith(("=", "+", "-", "@", "\t", "\r")) else name
