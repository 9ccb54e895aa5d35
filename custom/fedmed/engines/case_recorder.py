"""The evaluation of a segmentation: a score for each case, and pictures of three of them."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ignite.engine import Engine, Events
from monai.data import MetaTensor
from torch import Tensor

from fedmed.engines.evaluation_files import pictured, require_all, write_evaluation
from fedmed.engines.metrics import hard_dice
from fedmed.engines.trainer import plain
from fedmed.errors import DataError, FedMedError


@dataclass(frozen=True)
class CaseResult:
    """One case: its hard Dice and one axial slice, seen from below as radiologists do; small, because all stay."""

    case: str
    dice: float
    image: np.ndarray  # (H, W) float16 in [0, 1]
    truth: np.ndarray  # (H, W) uint8
    prediction: np.ndarray  # (H, W) uint8
    spacing: tuple[float, float]  # (row, column) in mm


class CaseRecorder:
    """Scores each case of an evaluator and keeps one slice of it; :meth:`finish` writes them.

    The evaluator must decollate (MONAI's default) and post-process predictions to a mask (1, X, Y, Z) or two
    channels (2, X, Y, Z). Volumes are oriented RAS, as the bundles make them. The slice is the axial one with the
    largest area of the true mask; where that is empty, of the prediction; where both are empty, the middle one.

    FedMed never sends these files: ``cases.csv`` (case, dice) and ``best.npz``, ``median.npz`` and
    ``worst.npz`` with ``image`` (H, W) float in [0, 1], ``truth`` and ``prediction`` (H, W) uint8, ``spacing`` (row,
    column) in mm, ``dice`` and ``case``.

    Args:
        folder: where to write.
        names: the cases' names, in the order in which the evaluator sees them.
        spacing: (x, y, z) voxel size in mm; default: that of an image with metadata, otherwise 1 mm.
    """

    def __init__(self, folder: Path | str, names: Sequence[str], spacing: Sequence[float] | None = None) -> None:
        self.folder, self.names, self.spacing = Path(folder), list(names), spacing
        self.results: list[CaseResult] = []

    def attach(self, engine: Engine) -> None:
        """Add to an evaluator."""
        engine.add_event_handler(Events.STARTED, self.results.clear)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self._record)

    def finish(self) -> dict[str, float | int]:
        """Write the files; return only ``dice_mean``, ``dice_std`` (sample, 0 for one case) and ``n_cases``.

        Raises:
            DataError: no case was evaluated, or fewer than were named, or the folder cannot be written.
        """
        require_all(len(self.results), len(self.names), "mask")
        dices = [result.dice for result in self.results]
        shown = {name: self.results[place] for name, place in pictured(dices).items()}
        pictures = {name: {**vars(case), "image": case.image.astype(np.float32)} for name, case in shown.items()}
        rows = [(result.case, f"{result.dice:.6f}") for result in self.results]
        write_evaluation(self.folder, ["case", "dice"], rows, pictures)
        spread = statistics.stdev(dices) if len(dices) > 1 else 0.0
        return {"dice_mean": statistics.fmean(dices), "dice_std": spread, "n_cases": len(dices)}

    def _record(self, engine: Engine) -> None:
        if not isinstance(engine.state.output, list):
            raise FedMedError("CaseRecorder needs single cases; build the evaluator with decollate=True")
        for output in engine.state.output:
            if len(self.results) == len(self.names):
                raise DataError(f"evaluation saw more than the {len(self.names)} cases it has names of")
            self.results.append(self._result(self.names[len(self.results)], output))

    def _result(self, case: str, output: dict[str, Any]) -> CaseResult:
        image, label, pred = (output[key] for key in ("image", "label", "pred"))
        spacing = self.spacing or (image.pixdim.tolist() if isinstance(image, MetaTensor) else (1.0, 1.0, 1.0))
        truth, prediction = foreground(label), foreground(pred)
        if truth.shape != prediction.shape:
            raise DataError(
                f"case {case}: the prediction has shape {tuple(prediction.shape)}, the mask {tuple(truth.shape)}; "
                "they must lie on one grid"
            )
        z = best_slice(truth, prediction)
        return CaseResult(
            case=case,
            dice=hard_dice(prediction, truth),
            image=axial(plain(image)[0], z).clip(0, 1).astype(np.float16),
            truth=axial(truth, z).astype(np.uint8),
            prediction=axial(prediction, z).astype(np.uint8),
            spacing=(float(spacing[1]), float(spacing[0])),
        )


def foreground(mask: Tensor) -> Tensor:
    """Bool (X, Y, Z) of one channel (above 0.5) or of two (argmax)."""
    mask = plain(mask)
    if mask.ndim != 4 or len(mask) not in (1, 2):
        raise FedMedError(f"a mask has shape {tuple(mask.shape)}; use (1, X, Y, Z), or (2, X, Y, Z) for two classes")
    return mask[0] > 0.5 if len(mask) == 1 else mask[1] > mask[0]


def best_slice(truth: Tensor, prediction: Tensor) -> int:
    """Index of the axial slice to show, of bool (X, Y, Z)."""
    for mask in (truth, prediction):
        areas = mask.sum(dim=(0, 1))
        if areas.any():
            return int(areas.argmax())
    return truth.shape[2] // 2


def axial(volume: Tensor, z: int) -> np.ndarray:
    """Slice z of an RAS volume (X, Y, Z): rows from front to back, the patient's right side on the left."""
    return volume[:, :, z].flip(0, 1).T.contiguous().cpu().numpy()
