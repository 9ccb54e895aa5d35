"""The files that an evaluation of a classifier writes at the site, and the score that selects a model."""

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine
from torch import Tensor

from fedmed.engines.auroc import RESAMPLES, accuracy_interval, macro_auroc, macro_auroc_interval
from fedmed.engines.collected import Collected
from fedmed.engines.evaluation import pictured, plain, require_all, save_picture, save_table, unwritable
from fedmed.engines.heat_map import heat_map
from fedmed.errors import DataError, FedMedError

log = logging.getLogger("fedmed.site")


class MacroAuroc:
    """Macro one-vs-rest AUROC of an evaluator's run, as its key metric or an additional one.

    Classes without a case are left out of the mean. ``pred`` of the output are logits.

    Args:
        classes: names of the classes, for errors.
        required: whether fewer than two classes in the list are an error; otherwise the metric is NaN.

    Raises:
        DataError: at the end of a run: fewer than two classes, NaN or infinite logits.
    """

    def __init__(self, classes: Sequence[str] | None = None, required: bool = True) -> None:
        self.classes, self.required, self.collected = classes, required, Collected()

    def attach(self, engine: Engine, name: str) -> None:
        """Add to an evaluator; the score is ``engine.state.metrics[name]``."""
        self.collected.attach(engine, lambda engine: self._finish(engine, name))

    def _finish(self, engine: Engine, name: str) -> None:
        labels = self.collected.labels
        value = macro_auroc(self.collected.probabilities(engine.network), labels)
        if math.isnan(value) and self.required:
            found = [str(label) if self.classes is None else self.classes[label] for label in labels.unique().tolist()]
            raise DataError(
                f"{name}: the {len(labels)} cases are all of the class '{', '.join(found)}', and an AUROC needs two; "
                "list cases of another class too, under 'validation' in the site's datalist"
            )
        engine.state.metrics[name] = value


class ClassificationRecorder:
    """Scores a classifier's evaluation and keeps pictures of three cases; :meth:`finish` writes them.

    FedMed never sends these files: ``cases.csv`` (case, label and a column ``p_<class>`` for each class) and
    ``best.npz``, ``median.npz`` and ``worst.npz`` with ``image`` (H, W) float in [0, 1], ``heat`` (H, W) float in
    [0, 1], Grad-CAM of the predicted class, ``probabilities`` (C,), ``classes`` (C,), ``label`` and ``case``. The best
    case is the correct one that the model is most certain of, the worst is the wrong one that it is most certain of.

    Args:
        folder: where to write.
        names: the cases' names, in the order in which the evaluator sees them.
        classes: names of the classes, in the order of the network's outputs.
        target_layer: module of the network whose output the heat map weighs.
        resamples, seed: of the bootstrap.

    The evaluator's output has logits as ``pred`` and the class as ``label``; its loader gives the same images again.
    """

    def __init__(
        self,
        folder: Path | str,
        names: Sequence[str],
        classes: Sequence[str],
        target_layer: str = "encoder.layer4",
        resamples: int = RESAMPLES,
        seed: int = 0,
    ) -> None:
        self.folder, self.names, self.classes = Path(folder), list(names), list(classes)
        self.target_layer, self.resamples, self.seed = target_layer, resamples, seed
        self.collected = Collected()
        self.engine: Any = None

    def attach(self, engine: Engine) -> None:
        """Add to an evaluator."""
        self.engine = engine
        self.collected.attach(engine)

    def finish(self) -> dict[str, float | int]:
        """Write the files; return only numbers about all cases together.

        Returns:
            ``auroc`` (macro one-vs-rest over the classes that have cases), ``auroc_low``, ``auroc_high`` (95 %
            bootstrap over cases), ``accuracy``, ``accuracy_low``, ``accuracy_high`` (95 %, Wilson) and ``n_cases``.
            Where all cases are of one class, the AUROC is left out, and a line in the log says so.

        Raises:
            DataError: no case was evaluated, or not as many as were named; NaN or infinite probabilities; the folder
                cannot be written.
            FedMedError: the network has not as many outputs as there are classes.
        """
        require_all(len(self.collected), len(self.names), "class")
        probabilities = self.collected.probabilities(self.engine.network).numpy()
        labels = self.collected.labels.numpy()
        if probabilities.shape[1] != len(self.classes):
            raise FedMedError(
                f"the network has {probabilities.shape[1]} outputs and there are {len(self.classes)} classes; correct "
                "'classes' or the network"
            )
        try:
            self._write(probabilities, labels)
        except OSError as error:
            raise unwritable(self.folder, error) from error
        return self._auroc(probabilities, labels) | _accuracy(probabilities, labels)

    def _auroc(self, probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        absent = [name for place, name in enumerate(self.classes) if place not in labels]
        if absent:
            what = "there is no AUROC" if len(self.classes) - len(absent) < 2 else "the AUROC leaves it out"
            log.warning("no test case is of the class '%s'; %s", "', '".join(absent), what)
        value = macro_auroc(probabilities, labels)
        if math.isnan(value):
            return {}
        low, high = macro_auroc_interval(probabilities, labels, self.resamples, self.seed)
        return {"auroc": value, "auroc_low": low, "auroc_high": high}

    def _write(self, probabilities: np.ndarray, labels: np.ndarray) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        header = ["case", "label", *(f"p_{name}" for name in self.classes)]
        cases = zip(self.names, labels, probabilities, strict=True)
        rows = ((case, self.classes[label], *(f"{p:.6f}" for p in row)) for case, label, row in cases)
        save_table(self.folder / "cases.csv", header, rows)
        confidence, predicted = probabilities.max(axis=1), probabilities.argmax(axis=1)
        chosen = pictured(np.where(predicted == labels, confidence, -confidence).tolist())
        images = _images(self.engine.data_loader, set(chosen.values()))
        for name, place in chosen.items():
            heat = heat_map(self.engine.network, images[place], int(predicted[place]), self.target_layer)
            content = {
                "image": images[place][0].clamp(0, 1).numpy(),
                "heat": heat.numpy(),
                "probabilities": probabilities[place],
                "classes": np.array(self.classes),
                "label": self.classes[labels[place]],
                "case": self.names[place],
            }
            save_picture(self.folder / f"{name}.npz", **content)


def _accuracy(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float | int]:
    correct, cases = int((probabilities.argmax(axis=1) == labels).sum()), len(labels)
    low, high = accuracy_interval(correct, cases)
    return {"accuracy": correct / cases, "accuracy_low": low, "accuracy_high": high, "n_cases": cases}


def _images(loader: Any, places: set[int]) -> dict[int, Tensor]:
    """float32 (1, H, W) of the cases at some places, read again: keeping all of them would need too much memory."""
    found: dict[int, Tensor] = {}
    start = 0
    for batch in loader:
        images = batch["image"]
        for place in sorted(place for place in places if start <= place < start + len(images)):
            found[place] = plain(images[place - start]).detach().cpu().to(torch.float32).clone()
        start += len(images)
        if len(found) == len(places):
            break
    return found
