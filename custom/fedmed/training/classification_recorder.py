"""The evaluation of a classifier: a score for all cases together, and pictures of three of them."""

import copy
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine
from monai.visualize import GradCAM
from torch import Tensor, nn

from fedmed.data.listed_images import plain
from fedmed.errors import FedMedError
from fedmed.training.auroc import RESAMPLES, accuracy_interval, macro_auroc, macro_auroc_interval
from fedmed.training.calibration import Collected, brier_score, expected_calibration_error
from fedmed.training.case_recorder import pictured, require_all, write_evaluation

log = logging.getLogger("fedmed.site")


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

    The evaluator's output has logits as ``pred`` and the class as ``label``; its loader has a ``dataset``.
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
        self.engine = engine
        self.collected.attach(engine)

    def finish(self) -> dict[str, float | int]:
        """Write the files; return only numbers about all cases together.

        Returns:
            ``auroc`` (macro one-vs-rest over the classes that have cases), ``auroc_low``, ``auroc_high`` (95 %
            bootstrap over cases), ``accuracy``, ``accuracy_low``, ``accuracy_high`` (95 %, Wilson), ``ece`` and
            ``brier``, see :mod:`fedmed.training.calibration`, and ``n_cases``. Where all cases are of one class, the
            AUROC is left out, and a line in the log says so.

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
        header = ["case", "label", *(f"p_{name}" for name in self.classes)]
        named = zip(self.names, labels, probabilities, strict=True)
        rows = [(case, self.classes[label], *(f"{p:.6f}" for p in row)) for case, label, row in named]
        write_evaluation(self.folder, header, rows, self._pictures(probabilities, labels))
        called, cases = probabilities.argmax(axis=1), len(labels)
        right = int((called == labels).sum())
        if cases > 1 and not np.ptp(called):
            name = self.classes[called[0]]
            log.warning("the model calls all %d test images '%s', which %d of them are", cases, name, right)
        low, high = accuracy_interval(right, cases)
        accuracy = {"accuracy": right / cases, "accuracy_low": low, "accuracy_high": high, "n_cases": cases}
        sure = {"ece": expected_calibration_error(probabilities, labels), "brier": brier_score(probabilities, labels)}
        return self._auroc(probabilities, labels) | accuracy | sure

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

    def _pictures(self, probabilities: np.ndarray, labels: np.ndarray) -> dict[str, dict[str, Any]]:
        confidence, predicted = probabilities.max(axis=1), probabilities.argmax(axis=1)
        chosen = pictured(np.where(predicted == labels, confidence, -confidence).tolist())
        pictures = {}
        for name, place in chosen.items():
            # Read again: all images of the list would need too much memory.
            image = plain(self.engine.data_loader.dataset[place]["image"]).float()
            heat = heat_map(self.engine.network, image, int(predicted[place]), self.target_layer)
            shown, hot = hottest_slice(image[0].clamp(0, 1), heat)
            pictures[name] = {
                "image": shown.numpy(),
                "heat": hot.numpy(),
                "probabilities": probabilities[place],
                "classes": np.array(self.classes),
                "label": self.classes[labels[place]],
                "case": self.names[place],
            }
        return pictures


def heat_map(network: nn.Module, image: Tensor, label: int, layer: str) -> Tensor:
    """Grad-CAM (Selvaraju et al. 2017): how much each place of a layer's output raises the logit of a class.

    Args:
        network: gives logits (1, C). A copy of it is used, because MONAI leaves hooks and gradients behind.
        image: (1, H, W), or (1, X, Y, Z) of a volume.
        label: place of the class.
        layer: name of the module whose output is weighed, such as the encoder's last stage.

    Returns:
        Of the image's shape without its channel, float32 on the CPU, 0 to 1, the largest 1; all 0 where nothing raises
        the logit.

    Raises:
        FedMedError: the network has no such layer.
    """
    if layer not in dict(network.named_modules()):
        raise FedMedError(f"heat map: {type(network).__name__} has no layer '{layer}'; name one in target_layer")
    model = copy.deepcopy(network).eval().requires_grad_(True)  # a frozen layer has no gradient
    device = next(model.parameters()).device
    with torch.enable_grad():
        heat = GradCAM(model, layer, postprocessing=lambda heat: heat)(image[None].to(device), class_idx=label)
    heat = heat[0, 0].detach().cpu().float().clamp(min=0)
    return heat / heat.max() if heat.max() > 0 else heat


def hottest_slice(image: Tensor, heat: Tensor) -> tuple[Tensor, Tensor]:
    """Return image and heat map as a picture each.

    Args:
        image, heat: (H, W), which are returned as they are; or (X, Y, Z) of a volume with axes R, A, S.

    Returns:
        (H, W) each; of a volume the slice with the most heat, front up and the patient's right side at the left.
    """
    if image.ndim == 2:
        return image, heat
    place = int(heat.sum(dim=(0, 1)).argmax())
    return image[..., place].T.flip(0, 1), heat[..., place].T.flip(0, 1)
