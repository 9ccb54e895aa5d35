"""The evaluation of one class a frame on videos, such as the phase of an operation."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from ignite.engine import Engine
from torch import Tensor

from fedmed.errors import DataError, FedMedError
from fedmed.training.confusion import Confusion
from fedmed.training.evaluation_files import write_pictures
from fedmed.training.kept_features import FILE, KeptFeatures
from fedmed.training.video_frames import SeenVideo, VideoMean
from fedmed.training.video_recorder import PROBABILITY, TRUTH, Recorded, VideoRecorder


class PhaseRecorder(VideoRecorder):
    """Scores videos whose frames have logits of several phases, of which one is true.

    ``frames/<number>_<video>.csv`` has ``second``, ``true_phase``, a name, and ``p_<phase>``; a picture has ``times``
    (T,), ``truth`` (T,) and ``called`` (T,), places in ``classes`` (C,), ``f1`` and ``case``. With ``features``,
    ``features.npz`` has what these say of frames of all videos, and ``classes``.

    :meth:`finish` also gives ``pooled_f1`` and ``pooled_accuracy`` of all frames together, and
    ``frames_<phase>><phase>``: how many frames of the first were called the second, counts that add up over sites.

    Args:
        folder, names, classes: as of the base class.
        features: what keeps the frames' features; None = they are not looked at.
    """

    scores = ("f1", "accuracy", "precision", "recall")
    spreads = ("f1", "accuracy")

    def __init__(
        self, folder: Path | str, names: Sequence[str], classes: Sequence[str], features: KeptFeatures | None = None
    ) -> None:
        self.features = features
        super().__init__(folder, names, classes)

    def attach(self, engine: Engine) -> None:
        """Add to an evaluator."""
        if self.features:
            self.features.attach(engine)
        super().attach(engine)

    def begin(self) -> None:
        super().begin()
        self.confusion = Confusion.none(len(self.classes))

    def read(self, logits: Tensor, labels: Tensor) -> Sequence[Tensor]:
        found = logits_and_phases(logits, labels)
        return (*found, self.features.of_batch()) if self.features else found

    def record(self, video: SeenVideo) -> Recorded:
        logits, truth = video.parts[:2]
        if logits.shape[1] != len(self.classes):
            raise DataError(f"{logits.shape[1]} outputs a frame, {len(self.classes)} classes; correct 'classes'")
        found, called = confusion_of(video), logits.argmax(dim=1)
        self.confusion += found
        if self.features:
            self.features.keep(video, video.parts[2], truth)
        values = torch.softmax(logits.double(), dim=1).tolist()
        pairs = zip(truth.tolist(), values, strict=True)
        lines = ((self.classes[true], *(f"{p:.6f}" for p in row)) for true, row in pairs)
        shown = {"times": video.times, "truth": truth.short().numpy(), "called": called.short().numpy()}
        header = [f"{TRUTH}phase", *(PROBABILITY + name for name in self.classes)]
        return Recorded(found.scores(), header, lines, shown)

    def finish(self) -> dict[str, float | int]:
        """As the base class; the picture of the features is written too."""
        found = super().finish()
        if self.features:
            write_pictures(self.folder, {FILE: {**self.features.content(), "classes": np.array(self.classes)}})
        return found

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
    logits, truth = video.parts[:2]
    return Confusion.of(truth.numpy(), logits.argmax(dim=1).numpy(), logits.shape[1])
