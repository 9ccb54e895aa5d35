"""Files that an evaluation leaves at a site: scores of each case, patients, pictures of the best, median and worst."""

import csv
import io
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from ignite.engine import Engine, Events
from monai.data import MetaTensor
from torch import Tensor

from fedmed.data.listed_images import plain
from fedmed.errors import DataError, FedMedError
from fedmed.files import write_atomically
from fedmed.plain_text import in_csv
from fedmed.training.metrics import hard_dice, islands, mask_distances

COLUMNS = ("case", "dice", "hd95", "truth_ml", "prediction_ml", "islands", "islands_ml")
EVERY_CASE = "every_case"  # folder of pictures of all cases, for as long as two models are compared
UNSCORED = "unscored_"  # how the names of pictures begin whose cases nobody has marked


def require_all(seen: int, named: int, truth: str) -> None:
    """Raise DataError unless every named case was seen, at least one; ``truth``: what a case needs for its score."""
    if not seen or seen != named:
        raise DataError(
            f"evaluation saw {seen} of {named} cases; list at least one image with its {truth} under 'testing' in the "
            "site's datalist"
        )


def pictured(scores: Sequence[float]) -> dict[str, int]:
    """Return the places of the three cases that get pictures: ``best``, ``median`` and ``worst`` score."""
    ranked = sorted(range(len(scores)), key=lambda place: -scores[place])
    return {"best": ranked[0], "median": ranked[len(ranked) // 2], "worst": ranked[-1]}


def write_evaluation(
    folder: Path, header: Sequence[str], rows: Iterable[Sequence[str]], pictures: Mapping[str, Mapping[str, Any]]
) -> None:
    """Write ``cases.csv`` and the pictures, each completely or not at all; DataError as of :func:`write_table`."""
    write_table(folder / "cases.csv", header, rows)
    write_pictures(folder, pictures)


def write_patients(folder: Path, names: Sequence[str], patients: Sequence[str]) -> None:
    """Write ``patients.csv``, whose each case is: cases of one patient are not independent of one another.

    Args:
        folder: of the evaluation.
        names, patients: of the cases, in the order of ``cases.csv``; empty text where the datalist does not say.
    """
    write_table(folder / "patients.csv", ["case", "patient"], zip(names, patients, strict=True))


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a CSV completely or not at all; its folder is made; no cell is a formula.

    Raises:
        DataError: the folder cannot be written.
    """
    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator="\n")
    writer.writerows(map(in_csv, row) for row in (header, *rows))
    _write(path, lambda stream: stream.write(table.getvalue().encode()))


def write_pictures(folder: Path, pictures: Mapping[str, Mapping[str, Any]]) -> None:
    """Write compressed ``<name>.npz`` of each picture; DataError as of :func:`write_table`."""
    for name, content in pictures.items():
        _write(folder / f"{name}.npz", partial(np.savez_compressed, **content))


def _write(path: Path, write: Callable[[BinaryIO], object]) -> None:
    try:
        write_atomically(path, write)
    except OSError as error:
        raise DataError(
            f"{path.parent}: the evaluation cannot be written ({error}); free space or correct its permissions"
        ) from error


@dataclass(frozen=True)
class CaseResult:
    """One case: its scores and one axial slice, seen from below as radiologists do; small, because all stay.

    A case without a true mask has NaN for its scores and its true volume, and an empty truth.
    """

    case: str
    dice: float
    hd95: float  # mm; NaN where both masks are empty
    millilitres: tuple[float, float]  # of the truth and of the prediction, in the whole volume
    islands: int  # parts of the prediction that lie far from the truth; none without a true mask
    islands_ml: float
    image: np.ndarray  # (H, W) float16 in [0, 1]
    truth: np.ndarray  # (H, W) uint8
    prediction: np.ndarray  # (H, W) uint8
    spacing: tuple[float, float]  # (row, column) in mm


class CaseRecorder:
    """Scores each case of an evaluator and keeps one slice of it; :meth:`finish` writes them.

    The evaluator must decollate (MONAI's default) and post-process predictions to a mask (1, X, Y, Z) or two
    channels (2, X, Y, Z). Volumes are oriented RAS, as the bundles make them. The slice is the axial one with the
    largest area of the true mask; where that is empty, of the prediction; where both are empty, the middle one.

    FedMed never sends these files: ``cases.csv`` with :data:`COLUMNS`, and ``best.npz``, ``median.npz`` and
    ``worst.npz`` with ``image`` (H, W) float in [0, 1], ``truth`` and ``prediction`` (H, W) uint8, ``spacing`` (row,
    column) in mm, ``dice``, ``hd95`` in mm, ``millilitres`` (truth, prediction), ``window`` (2,) and ``case``. Cases
    without masks have no scores: :meth:`draw` writes their pictures, ``unscored_1.npz`` and so on.

    Args:
        folder: where to write.
        names: the cases' names, in the order in which the evaluator sees them.
        spacing: (x, y, z) voxel size in mm; default: that of an image with metadata, otherwise 1 mm.
        window: what 0 and 1 in an image were before, in HU of a CT; None = unknown.
    """

    def __init__(
        self,
        folder: Path | str,
        names: Sequence[str],
        spacing: Sequence[float] | None = None,
        window: Sequence[float] | None = None,
    ) -> None:
        self.folder, self.names, self.spacing = Path(folder), list(names), spacing
        self.window = np.array(window if window is not None else (np.nan, np.nan), float)
        self.results: list[CaseResult] = []

    def attach(self, engine: Engine) -> None:
        engine.add_event_handler(Events.STARTED, self.results.clear)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self._record)

    def finish(self) -> dict[str, float | int]:
        """Write the files; return only ``dice_mean``, ``dice_std`` (of two cases or more), ``hd95_median`` in mm (of
        cases with something in either mask), ``volume_error`` in ml, the mean distance of predicted and true volume,
        and ``n_cases``.

        Raises:
            DataError: no case was evaluated, or fewer than were named, or the folder cannot be written.
        """
        require_all(sum(not math.isnan(case.dice) for case in self.results), len(self.names), "mask")
        dices = [result.dice for result in self.results]
        pictures = {name: self._picture(self.results[place]) for name, place in pictured(dices).items()}
        write_evaluation(self.folder, COLUMNS, map(_row, self.results), pictures)
        scores: dict[str, float | int] = {"dice_mean": statistics.fmean(dices), "n_cases": len(dices)}
        volumes = (case.millilitres for case in self.results)
        scores["volume_error"] = statistics.fmean(abs(predicted - true) for true, predicted in volumes)
        if len(dices) > 1:
            scores["dice_std"] = statistics.stdev(dices)
        if known := [case.hd95 for case in self.results if not math.isnan(case.hd95)]:
            scores["hd95_median"] = statistics.median(known)
        return scores

    def write_every_case(self) -> None:
        """Write a picture of each case, ``every_case/1.npz`` and so on in the order of the list; DataError as above."""
        pictures = {str(n): self._picture(case) for n, case in enumerate(self.results, start=1)}
        write_pictures(self.folder / EVERY_CASE, pictures)

    def draw(self) -> None:
        """Write a picture of each case, which nobody has marked, and nothing else; DataError as :meth:`finish`."""
        numbered = enumerate(self.results, start=1)
        write_pictures(self.folder, {f"{UNSCORED}{n}": self._picture(case) for n, case in numbered})

    def _picture(self, case: CaseResult) -> dict[str, Any]:
        return {**vars(case), "image": case.image.astype(np.float32), "window": self.window}

    def _record(self, engine: Engine) -> None:
        if not isinstance(engine.state.output, list):
            raise FedMedError("CaseRecorder needs single cases; build the evaluator with decollate=True")
        for output in engine.state.output:
            if len(self.results) == len(self.names):
                raise DataError(f"evaluation saw more than the {len(self.names)} cases it has names of")
            self.results.append(self._result(self.names[len(self.results)], output))

    def _result(self, case: str, output: dict[str, Any]) -> CaseResult:
        image, label, pred = output["image"], output.get("label"), output["pred"]
        spacing = self.spacing or (image.pixdim.tolist() if isinstance(image, MetaTensor) else (1.0, 1.0, 1.0))
        prediction = foreground(pred)
        truth = torch.zeros_like(prediction) if label is None else foreground(label)
        if truth.shape != prediction.shape:
            raise DataError(
                f"case {case}: the prediction has shape {tuple(prediction.shape)}, the mask {tuple(truth.shape)}; "
                "they must lie on one grid"
            )
        z, voxel = best_slice(truth, prediction), math.prod(map(float, spacing)) / 1000
        sides, masks = [float(side) for side in spacing], (truth.cpu().numpy(), prediction.cpu().numpy())
        n_islands, of_voxels = (0, 0) if label is None else islands(*masks, sides)
        return CaseResult(
            case=case,
            dice=math.nan if label is None else hard_dice(prediction, truth),
            hd95=math.nan if label is None else mask_distances(*masks, sides)[0],
            millilitres=(math.nan if label is None else float(truth.sum()) * voxel, float(prediction.sum()) * voxel),
            islands=n_islands,
            islands_ml=of_voxels * voxel,
            image=axial(plain(image)[0], z).clip(0, 1).astype(np.float16),
            truth=axial(truth, z).astype(np.uint8),
            prediction=axial(prediction, z).astype(np.uint8),
            spacing=(float(spacing[1]), float(spacing[0])),
        )


def _row(case: CaseResult) -> tuple[str, ...]:
    """Return a line of ``cases.csv``."""
    truth, prediction, far = (f"{value:.4f}" for value in (*case.millilitres, case.islands_ml))
    return (case.case, f"{case.dice:.6f}", f"{case.hd95:.4f}", truth, prediction, str(case.islands), far)


def foreground(mask: Tensor) -> Tensor:
    """Return bool (X, Y, Z) of one channel (above 0.5) or of two (argmax)."""
    mask = plain(mask)
    if mask.ndim != 4 or len(mask) not in (1, 2):
        raise FedMedError(f"a mask has shape {tuple(mask.shape)}; use (1, X, Y, Z), or (2, X, Y, Z) for two classes")
    return mask[0] > 0.5 if len(mask) == 1 else mask[1] > mask[0]


def best_slice(truth: Tensor, prediction: Tensor) -> int:
    """Return the index of the axial slice to show, of bool (X, Y, Z)."""
    for mask in (truth, prediction):
        areas = mask.sum(dim=(0, 1))
        if areas.any():
            return int(areas.argmax())
    return truth.shape[2] // 2


def axial(volume: Tensor, z: int) -> np.ndarray:
    """Return slice z of an RAS volume (X, Y, Z): rows from front to back, the patient's right side on the left."""
    return volume[:, :, z].flip(0, 1).T.contiguous().cpu().numpy()
