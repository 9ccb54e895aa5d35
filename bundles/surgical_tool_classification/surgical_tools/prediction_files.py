"""The files that inference writes: a table of all frames, and a picture along time of each video."""

import csv
import json
import logging
import math
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine, Events
from torch import Tensor

from .errors import BundleInputError
from .frames import VIDEOS

log = logging.getLogger(__name__)


class PredictionFiles:
    """Write ``predictions.csv``, ``predictions.json`` and a PNG of each video as soon as inference has ended.

    A row has the frame's path below the folder, its second, what is called, a probability for each class, and why a
    frame could not be read; such a row has no prediction. A PNG is of a video, or of the pictures of a folder, in the
    order of time or, where that is not known, of their names.

    Args:
        output_dir: folder for all files; created if it is missing.
        classes: names of the classes, in the order of the network's outputs.

    Attributes:
        column: of the table, for what is called.
        pictures: folder of the PNGs.
    """

    column, pictures = "predicted", "timelines"

    def __init__(self, output_dir: str | Path, classes: Sequence[str]) -> None:
        self.folder, self.classes = Path(output_dir), list(classes)
        self.rows: list[dict[str, Any]] = []

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Probabilities (T, C) of what the network gave, (T, …), of the frames of a video in their order."""
        return outputs

    def called(self, values: Sequence[float]) -> str | list[str]:
        """The name, or the names, that the probabilities of a frame stand for."""
        raise NotImplementedError

    def draw(
        self, path: Path, title: str, values: Sequence[Sequence[float] | None], seconds: Sequence[float | None]
    ) -> None:
        """Draw the frames of a video: their probabilities, None for one that could not be read, and their times."""
        raise NotImplementedError

    def attach(self, engine: Engine) -> None:
        engine.add_event_handler(Events.STARTED, lambda _: self.rows.clear())
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.note)
        engine.add_event_handler(Events.COMPLETED, lambda _: self.write())

    def note(self, engine: Engine) -> None:
        """Keep a batch's results."""
        for case, output in zip(engine.state.batch, engine.state.output, strict=True):
            if case["error"]:
                log.warning("%s", case["error"])
            second = None if math.isnan(float(case["second"])) else float(case["second"])
            row = {"image": case["name"], "second": second, "predicted": None, "probabilities": {}}
            self.rows.append({**row, "error": case["error"], "output": None if case["error"] else output["pred"].cpu()})

    def write(self) -> None:
        """Write all files.

        Raises:
            BundleInputError: no frame could be read.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.rows.sort(key=_place)  # workers take turns
        for _, of_video in groupby(self.rows, _recording):
            self._call(list(of_video))
        self._write_table(self.folder / "predictions.csv")
        content = json.dumps(self.rows, indent=1, ensure_ascii=False)
        (self.folder / "predictions.json").write_text(content, encoding="utf-8", errors="backslashreplace")
        failed = sum(bool(row["error"]) for row in self.rows)
        if failed == len(self.rows):
            raise BundleInputError(f"none of {failed} frames could be read; the first: {self.rows[0]['error']}")
        for group, of_video in groupby(self.rows, _recording):
            rows = list(of_video)
            values = [None if row["error"] else list(row["probabilities"].values()) for row in rows]
            path = self.folder / self.pictures / f"{group}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            self.draw(path, group, values, [row["second"] for row in rows])
        log.info("%d frames, %d not readable: %s", len(self.rows) - failed, failed, self.folder / "predictions.csv")

    def _call(self, rows: Sequence[dict[str, Any]]) -> None:
        """Put what is called, and the probabilities, in the place of what the network gave of a video."""
        outputs = [row.pop("output") for row in rows]
        readable = [output for output in outputs if output is not None]
        values = iter(self.probabilities(torch.stack(readable)).tolist() if readable else ())
        for row, output in zip(rows, outputs, strict=True):
            scores = [None] * len(self.classes) if output is None else next(values)
            row["predicted"] = None if output is None else self.called(scores)
            row["probabilities"] = dict(zip(self.classes, scores, strict=True))

    def _write_table(self, path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as stream:
            writer = csv.writer(stream)
            writer.writerow(["image", "second", self.column, *(f"p_{name}" for name in self.classes), "error"])
            for row in self.rows:
                values = ["" if p is None else f"{p:.6f}" for p in row["probabilities"].values()]
                second = "" if row["second"] is None else f"{row['second']:.3f}"
                called = row["predicted"] or ""
                called = called if isinstance(called, str) else " ".join(called)
                writer.writerow([_cell(row["image"]), second, called, *values, row["error"]])


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """By video or folder, then by time, frames without any last, then by name with its numbers as numbers."""
    second = row["second"]
    name = [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", row["image"])]
    return _recording(row), second is None, second or 0.0, name


def _recording(row: Mapping[str, Any]) -> str:
    """The video of a frame, or the folder of a picture."""
    if Path(row["image"]).suffix.lower() in VIDEOS:
        return str(row["image"])
    folder = Path(row["image"]).parent.as_posix()
    return "frames" if folder == "." else folder


def _cell(name: str) -> str:
    """A file's name, quoted where a spreadsheet would run it as a formula."""
    return f"'{name}" if name.startswith(("=", "+", "-", "@", "\t", "\r")) else name
