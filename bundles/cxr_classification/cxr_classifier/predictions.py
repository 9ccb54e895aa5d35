"""The files that inference writes: one row for each image."""

import csv
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from ignite.engine import Engine, Events
from monai.data import Dataset

from cxr_classifier.errors import BundleInputError

log = logging.getLogger("cxr_classifier")


class XrayDataset(Dataset):
    """Images of a folder; one that cannot be read becomes a black image with the reason, so that inference continues.

    Items have ``image``, a plain tensor (1, size, size); ``name``, the path below ``folder``; and ``error``, why the
    image could not be read, or "".

    Args:
        data: ``{"image": path}`` each.
        transform: the preparation of an image.
        folder: where the images are.
        size: of the black image.
    """

    def __init__(self, data: Sequence[Mapping[str, Any]], transform: Any, folder: str | Path, size: int) -> None:
        super().__init__(data, transform)
        self.folder, self.size = Path(folder), int(size)

    def _transform(self, index: int) -> dict[str, Any]:
        path = self.data[index]["image"]
        name = Path(path).relative_to(self.folder).as_posix()
        try:
            return {"image": super()._transform(index)["image"].as_tensor(), "name": name, "error": ""}
        except RuntimeError as error:  # MONAI's wrapping
            cause: BaseException = error
            while not isinstance(cause, BundleInputError):
                if cause.__cause__ is None:
                    raise
                cause = cause.__cause__
            return {"image": torch.zeros(1, self.size, self.size), "name": name, "error": str(cause)}


class PredictionWriter:
    """Write ``predictions.csv`` and ``predictions.json`` as soon as inference has ended.

    A row has the image's path below the folder, the predicted class, a probability for each class, and why an image
    could not be read; such a row has no prediction.

    Args:
        output_dir: folder for both files; created if it is missing.
        classes: names, in the order of the network's outputs.
    """

    def __init__(self, output_dir: str | Path, classes: Sequence[str]) -> None:
        self.folder, self.classes = Path(output_dir), list(classes)
        self.rows: list[dict[str, Any]] = []

    def attach(self, engine: Engine) -> None:
        engine.add_event_handler(Events.STARTED, lambda _: self.rows.clear())
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.note)
        engine.add_event_handler(Events.COMPLETED, lambda _: self.write())

    def note(self, engine: Engine) -> None:
        """Keep a batch's results."""
        for case, output in zip(engine.state.batch, engine.state.output, strict=True):
            row: dict[str, Any] = {"image": case["name"], "predicted": None}
            values = [float(value) for value in output["pred"]]
            if case["error"]:
                log.warning("%s", case["error"])
                values = [None] * len(self.classes)
            else:
                row["predicted"] = self.classes[values.index(max(values))]
            probabilities = dict(zip(self.classes, values, strict=True))
            self.rows.append({**row, "probabilities": probabilities, "error": case["error"]})

    def write(self) -> None:
        """Write both files.

        Raises:
            BundleInputError: no image could be read.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        columns = ["image", "predicted", *(f"p_{name}" for name in self.classes), "error"]
        path = self.folder / "predictions.csv"
        with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as stream:
            writer = csv.writer(stream)
            writer.writerow(columns)
            for row in self.rows:
                values = ["" if p is None else f"{p:.6f}" for p in row["probabilities"].values()]
                writer.writerow([_cell(row["image"]), row["predicted"] or "", *values, row["error"]])
        content = json.dumps(self.rows, indent=1, ensure_ascii=False)
        (self.folder / "predictions.json").write_text(content, encoding="utf-8", errors="backslashreplace")
        failed = sum(bool(row["error"]) for row in self.rows)
        if failed == len(self.rows):
            raise BundleInputError(f"none of {failed} images could be read; the first: {self.rows[0]['error']}")
        log.info("%d images classified, %d not readable: %s", len(self.rows) - failed, failed, path)


def _cell(name: str) -> str:
    """A file's name, quoted where a spreadsheet would run it as a formula."""
    return f"'{name}" if name.startswith(("=", "+", "-", "@", "\t", "\r")) else name
