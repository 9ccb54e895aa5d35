"""The files that inference writes: a mask and a picture of each frame, and a table of all."""

import csv
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine, Events
from numpy.typing import NDArray
from PIL import Image, ImageColor
from torch import Tensor

from .clip_dataset import is_video
from .errors import BundleInputError

log = logging.getLogger(__name__)
COLOURS = ("#33c3ff", "#ffd23f", "#7be07b", "#ff7fbf", "#c9a0ff", "#ff9a5a")  # tissue is red and brown
COVER = 0.45  # opacity of a mask over its frame


class MaskWriter:
    """Write masks while inference goes on: no more than a batch of frames is held, however long a video is.

    ``masks/`` has a PNG of each frame, of the frame's own size, whose values 0, 1, … are the classes: of a picture
    under its own name, of a video in a folder of its name, named by milliseconds, so that it can be used as labels.
    ``overlays/`` has the same as JPEG, the mask's colours over the frame. ``predictions.csv`` has a row a frame: file,
    second, mask, the share of its pixels of each class, and why it could not be read; such a row has no mask.

    Args:
        output_dir: folder for all files; created if it is missing.
        classes: names of what 1, 2, … stand for.
        overlays: whether to write them.
    """

    def __init__(self, output_dir: str | Path, classes: Sequence[str], overlays: bool = True) -> None:
        self.folder, self.classes, self.overlays = Path(output_dir), list(classes), overlays
        self.rows: list[dict[str, Any]] = []

    def attach(self, engine: Engine) -> None:
        engine.add_event_handler(Events.STARTED, lambda _: self.rows.clear())
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.note)
        engine.add_event_handler(Events.COMPLETED, lambda _: self.finish())

    def note(self, engine: Engine) -> None:
        """Write a batch's masks."""
        for case, output in zip(engine.state.batch, engine.state.output, strict=True):
            second = None if math.isnan(float(case["second"])) else float(case["second"])
            row = {"image": case["name"], "second": second, "mask": "", "shares": {}, "error": case["error"]}
            if case["error"]:
                log.warning("%s", case["error"])
            else:
                row |= self._write(case, output["pred"], second)
            self.rows.append(row)

    def finish(self) -> None:
        """Write the table.

        Raises:
            BundleInputError: no frame could be read.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.rows.sort(key=lambda row: (row["image"], row["second"] or 0.0))  # workers take turns
        with (self.folder / "predictions.csv").open("w", newline="", errors="backslashreplace") as stream:
            writer = csv.writer(stream)
            writer.writerow(["image", "second", "mask", *(f"share_{name}" for name in self.classes), "error"])
            for row in self.rows:
                second = "" if row["second"] is None else f"{row['second']:.3f}"
                shares = [f"{row['shares'][name]:.6f}" if row["shares"] else "" for name in self.classes]
                writer.writerow([_cell(row["image"]), second, _cell(row["mask"]), *shares, row["error"]])
        failed = sum(bool(row["error"]) for row in self.rows)
        if failed == len(self.rows):
            raise BundleInputError(f"none of {failed} frames could be read; the first: {self.rows[0]['error']}")
        log.info("%d frames, %d not readable: %s", len(self.rows) - failed, failed, self.folder)

    def _write(self, case: Mapping[str, Any], prediction: Tensor, second: float | None) -> dict[str, Any]:
        height, width = (int(side) for side in case["shape"])
        called = prediction[0].cpu().numpy().astype(np.uint8)
        mask = Image.fromarray(called).resize((width, height), Image.Resampling.NEAREST)
        name = mask_name(case["name"], second)
        mask.save(_made(self.folder / "masks" / name))
        if self.overlays:
            frame = _picture(case["image"]).resize((width, height), Image.Resampling.BILINEAR)
            path = _made((self.folder / "overlays" / name).with_suffix(".jpg"))
            Image.fromarray(overlay(np.asarray(frame), np.asarray(mask))).save(path, quality=90)
        counts = np.bincount(called.ravel(), minlength=len(self.classes) + 1) / called.size
        return {"mask": f"masks/{name}", "shares": dict(zip(self.classes, counts[1:].tolist(), strict=True))}


def mask_name(image: str, second: float | None) -> str:
    """The mask's file below ``masks``: ``a/frame.png`` of a picture, ``a.mp4/00001200.png`` of a frame of a video."""
    if is_video(image):
        return f"{image}/{round(1000 * (second or 0.0)):08d}.png"
    return image if image.lower().endswith(".png") else f"{image}.png"


def overlay(frame: NDArray[np.uint8], mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(H, W, 3) the frame with the colour of each pixel's class over it; where the mask is 0, the frame itself."""
    colours = np.array([(0, 0, 0), *map(ImageColor.getrgb, COLOURS)], np.float32)
    inks = colours[np.where(mask, (mask.astype(int) - 1) % len(COLOURS) + 1, 0)]
    mixed = np.where(mask[..., None] > 0, (1 - COVER) * frame + COVER * inks, frame)
    return mixed.round().astype(np.uint8)


def _picture(image: Tensor) -> Image.Image:
    """The last frame of (3 · k, H, W) in [0, 1]."""
    last = (image[-3:].clamp(0, 1) * 255).round().to(torch.uint8)
    return Image.fromarray(last.permute(1, 2, 0).cpu().numpy())


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _cell(name: str) -> str:
    """A file's name, quoted where a spreadsheet would run it as a formula."""
    return f"'{name}" if name.startswith(("=", "+", "-", "@", "\t", "\r")) else name
