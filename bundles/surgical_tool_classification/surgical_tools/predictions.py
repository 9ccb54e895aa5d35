"""The frames that inference takes one after the other, and the files that it writes."""

import csv
import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine, Events
from torch.utils.data import IterableDataset, get_worker_info

from surgical_tools.errors import BundleInputError
from surgical_tools.frames import VIDEOS
from surgical_tools.timeline import draw_timeline
from surgical_tools.videos import frames_at

log = logging.getLogger("surgical_tools")


class FrameDataset(IterableDataset[dict[str, Any]]):
    """Pictures, and frames of videos; one that cannot be read becomes a black frame with the reason.

    Items have ``image`` (3, H, W); ``name``, the path below ``folder``; ``second`` in a video, not a number for a
    picture; and ``error``, why it could not be read, or "".

    Args:
        paths: pictures and videos.
        transform: the preparation of a frame.
        folder: where they are, or the video itself.
        size: (H, W) of the black frame.
        rate: frames a second of videos.
    """

    def __init__(
        self, paths: Sequence[str], transform: Any, folder: str | Path, size: Sequence[int], rate: float = 1.0
    ) -> None:
        self.paths, self.transform, self.size, self.rate = list(paths), transform, size, rate
        self.folder = Path(folder).parent if Path(folder).is_file() else Path(folder)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        for path in self.paths[worker.id :: worker.num_workers] if worker else self.paths:
            yield from self._of(Path(path))

    def _of(self, path: Path) -> Iterator[dict[str, Any]]:
        name, second = path.relative_to(self.folder).as_posix(), math.nan
        try:
            taken = frames_at(path, self.rate) if path.suffix.lower() in VIDEOS else [(math.nan, path)]
            for second, source in taken:
                image = self.transform({"image": source})["image"]
                yield {"image": image, "name": name, "second": second, "error": ""}
        except (BundleInputError, RuntimeError) as error:  # the latter is MONAI's wrapping
            cause: BaseException = error
            while not isinstance(cause, BundleInputError):
                if cause.__cause__ is None:
                    raise
                cause = cause.__cause__
            yield {"image": torch.zeros(3, *self.size), "name": name, "second": math.nan, "error": str(cause)}


class PredictionWriter:
    """Write ``predictions.csv``, ``predictions.json`` and ``timelines/`` as soon as inference has ended.

    A row has the frame's path below the folder, its second in a video, the tools that are seen, a probability for each
    tool, and why a frame could not be read; such a row has no prediction. A timeline is a PNG of each video, and of
    the pictures of each folder in the order of their names.

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
            second = None if math.isnan(float(case["second"])) else float(case["second"])
            row = {"image": case["name"], "second": second, "predicted": seen, "probabilities": probabilities}
            self.rows.append({**row, "error": case["error"]})

    def write(self) -> None:
        """Write all files.

        Raises:
            BundleInputError: no frame could be read.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.rows.sort(key=lambda row: (row["image"], row["second"] is None, row["second"]))  # workers take turns
        path = self.folder / "predictions.csv"
        with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as stream:
            writer = csv.writer(stream)
            writer.writerow(["image", "second", "predicted", *(f"p_{name}" for name in self.classes), "error"])
            for row in self.rows:
                values = ["" if p is None else f"{p:.6f}" for p in row["probabilities"].values()]
                second = "" if row["second"] is None else f"{row['second']:.3f}"
                called = " ".join(row["predicted"] or ())
                writer.writerow([_cell(row["image"]), second, called, *values, row["error"]])
        content = json.dumps(self.rows, indent=1, ensure_ascii=False)
        (self.folder / "predictions.json").write_text(content, encoding="utf-8", errors="backslashreplace")
        failed = sum(bool(row["error"]) for row in self.rows)
        if failed == len(self.rows):
            raise BundleInputError(f"none of {failed} frames could be read; the first: {self.rows[0]['error']}")
        self.draw()
        log.info("%d frames, %d not readable: %s", len(self.rows) - failed, failed, path)

    def draw(self) -> None:
        """Draw the timelines."""
        for group, found in groupby(sorted(self.rows, key=_recording), _recording):
            rows = list(found)
            seconds = [row["second"] for row in rows if row["second"] is not None]
            step = seconds[-1] / (len(seconds) - 1) if len(seconds) > 1 else 1.0 if seconds else None
            values = [None if row["error"] else list(row["probabilities"].values()) for row in rows]
            path = self.folder / "timelines" / f"{group}.png"
            draw_timeline(path, group, self.classes, values, self.threshold, step)


def _recording(row: Mapping[str, Any]) -> str:
    """The video of a frame, or the folder of a picture."""
    if Path(row["image"]).suffix.lower() in VIDEOS:
        return str(row["image"])
    folder = Path(row["image"]).parent.as_posix()
    return "frames" if folder == "." else folder


def _cell(name: str) -> str:
    """A file's name, quoted where a spreadsheet would run it as a formula."""
    return f"'{name}" if name.startswith(("=", "+", "-", "@", "\t", "\r")) else name
