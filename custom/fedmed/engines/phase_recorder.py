"""The evaluation of one class a frame on videos, such as the phase of an operation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedmed.engines.confusion import Confusion
from fedmed.engines.video_frames import SeenVideo, VideoMean
from fedmed.engines.video_recorder import Recorded, VideoRecorder
from fedmed.errors import DataError, FedMedError

PROBABILITY = "p_"  # before the name of a phase, of columns


class PhaseRecorder(VideoRecorder):
    """Scores videos whose frames have logits of several phases, of which one is true.

    ``frames/<number>_<video>.csv`` has ``second``, ``true``, ``called`` and ``p_<phase>``; a picture has ``times``
    (T,), ``truth`` (T,) and ``called`` (T,), places in ``classes`` (C,), ``f1``, ``accuracy`` and ``case``.

    :meth:`finish` also gives ``pooled_f1`` and ``pooled_accuracy`` of all frames together, and
    ``frames_<phase>><phase>``: how many frames of the first were called the second, counts that add up over sites.
    """

    scores = ("f1", "accuracy", "precision", "recall")
    spreads = ("f1", "accuracy")

    def begin(self) -> None:
        super().begin()
        self.confusion = Confusion.none(len(self.classes))

    def read(self, logits: Tensor, labels: Tensor) -> Sequence[Tensor]:
        return logits_and_phases(logits, labels)

    def record(self, video: SeenVideo) -> Recorded:
        logits, truth = video.parts
        if logits.shape[1] != len(self.classes):
            raise DataError(f"{logits.shape[1]} outputs a frame, {len(self.classes)} classes; correct 'classes'")
        found, called = confusion_of(video), logits.argmax(dim=1)
        self.confusion += found
        named = ([self.classes[place] for place in pair] for pair in zip(truth.tolist(), called.tolist(), strict=True))
        values = torch.softmax(logits.double(), dim=1).tolist()
        lines = ((*names, *(f"{p:.6f}" for p in row)) for names, row in zip(named, values, strict=True))
        return Recorded(found.scores(), ["true", "called", *(PROBABILITY + name for name in self.classes)], lines)

    def picture(self, place: int) -> dict[str, Any]:
        lines, row = self.lines(place), self.rows[place]
        true, called = (np.array([self.classes.index(line[n]) for line in lines], np.int16) for n in (1, 2))
        shown = {"times": np.array([float(line[0]) for line in lines]), "truth": true, "called": called}
        return {**shown, "classes": np.array(self.classes), "f1": row["f1"], "accuracy": row["accuracy"]}

    def together(self) -> dict[str, float]:
        pooled = self.confusion.scores()
        own = {f"pooled_{name}": pooled[name] for name in ("f1", "accuracy")}
        return own | self.confusion.numbers(self.classes)


class PhaseScore(VideoMean):
    """Mean over videos of a score of phases, as an evaluator's key metric; see ``f1_mean`` and its like above.

    Args:
        name: ``f1``, ``accuracy``, ``precision`` or ``recall``.

    Raises:
        FedMedError: another name.
    """

    def __init__(self, name: str = "f1") -> None:
        if name not in PhaseRecorder.scores:
            raise FedMedError(f"PhaseScore: name is {name!r}; use one of {', '.join(PhaseRecorder.scores)}")
        super().__init__(logits_and_phases, lambda video: confusion_of(video).scores()[name])


def logits_and_phases(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (B, C) and phases (B,), whole numbers; FedMedError for others."""
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or labels.is_floating_point():
        raise FedMedError(
            f"logits {tuple(logits.shape)} and labels {tuple(labels.shape)} of {labels.dtype}; use (B, C) and whole "
            "numbers (B,)"
        )
    return logits, labels


def confusion_of(video: SeenVideo) -> Confusion:
    """Of what :func:`logits_and_phases` read; the phase with the highest logit is called."""
    logits, truth = video.parts
    return Confusion.of(truth.numpy(), logits.argmax(dim=1).numpy(), logits.shape[1])
