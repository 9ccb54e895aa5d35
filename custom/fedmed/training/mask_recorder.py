"""Files that an evaluation of masks of videos leaves at a site: scores of each structure, frame by frame."""

import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from ignite.engine import Engine
from numpy.typing import NDArray
from torch import Tensor

from fedmed.data.listed_images import plain
from fedmed.data.video.clips import unit_float
from fedmed.errors import DataError, FedMedError
from fedmed.training.case_recorder import pictured, write_pictures
from fedmed.training.kept_features import GATES_FILE, KeptGates
from fedmed.training.label_counts import macro
from fedmed.training.metrics import hard_dice, hard_iou, islands, mask_distances
from fedmed.training.video_frames import SeenVideo, VideoMean
from fedmed.training.video_recorder import Recorded, VideoRecorder, text

OVERLAPS, DISTANCES = ("dice", "iou"), ("hd95", "assd")
SCORES = (*OVERLAPS, *DISTANCES)
Scores = NDArray[np.float64]
WHOLE = "foreground"  # name of all classes as one
FAR = 0.1  # of the frame's diagonal: what is called so far from all that is true is a distant island


def class_scores(truth: NDArray[np.uint8], called: NDArray[np.uint8], classes: int, distances: bool = True) -> Scores:
    """Return Dice, IoU, HD95 and ASSD of each class of a mask (Fang et al. 2025).

    Args:
        truth, called: (H, W), 0 where there is nothing, 1 … ``classes``.
        classes: how many there are beside 0.
        distances: compute the last two, which takes most of the time; NaN otherwise.

    Returns:
        float64 (classes, 4), distances in pixels. A class in one of both has overlap 0 and the image's diagonal as its
        distances; one that is in neither has NaN throughout.
    """
    scores = np.full((classes, len(SCORES)), np.nan)
    for place in range(classes):
        a, b = truth == place + 1, called == place + 1
        if not a.any() and not b.any():
            continue
        masks = torch.from_numpy(a), torch.from_numpy(b)
        scores[place, :2] = hard_dice(*masks), hard_iou(*masks)
        if distances:
            scores[place, 2:] = mask_distances(a, b)
    return scores


def frame_scores(of_classes: Scores) -> Scores:
    """Return (T, 4) means over the classes that occur in truth or prediction, of (T, classes, 4).

    Where none does, nothing was there and nothing was called: the overlaps are 1, and there are no distances (NaN).
    """
    means = known_means(of_classes, 1)
    means[:, :2] = np.nan_to_num(means[:, :2], nan=1.0)
    return means


def known_means(values: Scores, axis: int) -> Scores:
    """Return means of what is a number along an axis; NaN where nothing is."""
    return np.apply_along_axis(macro, axis, values)


class SeenFrame(NamedTuple):
    """Video and second as words, whether there is something to see in a mask, and both masks, packed."""

    case: str
    dice: float
    marked: bool
    masks: bytes


class MaskRecorder(VideoRecorder):
    """Scores the frames of videos that have masks: of each class, then of each frame, of each video, of all videos.

    ``frames/<number>_<video>.csv`` has ``second``, the frame's ``dice``, ``iou``, ``hd95`` and ``assd``, and the same
    of each class: ``dice_<class>``; ``cases.csv`` also has ``islands``, parts that are called anything at least
    :data:`FAR` from all that is true, and ``island_frames``, in how many frames those are. A picture is of a frame and
    has ``image`` (H, W, 3) uint8, ``truth`` and ``prediction`` (H, W) uint8, ``classes``, ``dice`` and ``case``.
    Distances are in pixels of the frames that the network sees.

    :meth:`finish` also gives ``dice_<class>`` and so on: means over the videos in whose truth or prediction it is.

    Args:
        folder, names: see :class:`fedmed.training.video_recorder.VideoRecorder`.
        classes: names of what 1, 2, … stand for; the network's first output is everything else.
        whole: all classes are scored as one foreground, because the site's masks do not tell them apart (Fang et al.
            2025, Table VIII); :meth:`finish` then gives no numbers of single classes.
        gates: what keeps the gates of channels, for ``gates.npz``; None = they are not looked at.

    The evaluator's loader has a ``dataset`` whose items, in the order in which they are seen, have ``image``
    (k, 3, H, W).
    """

    scores = SCORES
    spreads = ("dice", "iou")
    truth = "masks"

    def __init__(
        self,
        folder: Path | str,
        names: Sequence[str],
        classes: Sequence[str],
        whole: bool = False,
        gates: KeptGates | None = None,
    ) -> None:
        self.engine: Any = None
        self.gates, self.outputs = gates, len(classes) + 1
        super().__init__(folder, names, [WHOLE] if whole else classes)
        self.whole, self.columns = whole, ("islands", "island_frames")

    def attach(self, engine: Engine) -> None:
        self.engine = engine
        if self.gates:
            self.gates.attach(engine)
        super().attach(engine)

    def begin(self) -> None:
        super().begin()
        self.seen: list[SeenFrame] = []

    def read(self, logits: Tensor, labels: Tensor) -> Sequence[Tensor]:
        if logits.shape[1] != self.outputs:
            raise DataError(f"{logits.shape[1]} outputs a pixel, {self.outputs - 1} classes and the rest; correct one")
        masks = called_and_true(logits, labels)
        return [mask.clamp(max=1) for mask in masks] if self.whole else masks

    def record(self, video: SeenVideo) -> Recorded:
        each = scores_of(video, len(self.classes))
        frames, name = frame_scores(each), self.names[video.place]
        masks = np.stack([part.numpy() for part in video.parts], axis=1)
        self.size, first = masks.shape[1:], len(self.seen)
        for second, dice, pair in zip(video.times, frames[:, 0].tolist(), masks, strict=True):
            packed = zlib.compress(pair.tobytes())
            self.seen.append(SeenFrame(f"{name}, {second:.1f} s", dice, bool(pair.any()), packed))
        header = [*SCORES, *(f"{score}_{label}" for label in self.classes for score in SCORES)]
        lines = (map(text, row) for row in np.hstack([frames, each.reshape(len(each), -1)]))
        far = [islands(true, called, apart=FAR * math.hypot(*self.size))[0] for called, true in masks]
        row: dict[str, Any] = {"islands": sum(far), "island_frames": sum(count > 0 for count in far)}
        row |= zip(SCORES, known_means(frames, 0).tolist(), strict=True)
        return Recorded(row | {"of_classes": known_means(each, 0)}, header, map(tuple, lines), {"first": first})

    def finish(self) -> dict[str, float | int]:
        """Do as the base class, and write the gates."""
        scores = super().finish()
        if self.gates:
            write_pictures(self.folder, {GATES_FILE: self.gates.content()})
        return scores

    def together(self) -> dict[str, float]:
        if self.whole:  # the means say it already, and no class of the model's is meant
            return {}
        videos = np.stack([row["of_classes"] for row in self.rows])
        labels = enumerate(self.classes)
        return {f"{s}_{label}": macro(videos[:, i, j]) for i, label in labels for j, s in enumerate(SCORES)}

    def pictures(self) -> dict[str, dict[str, Any]]:
        """Return those of the best, median and worst frame with something to see; of all frames if none has that."""
        places = [place for place, frame in enumerate(self.seen) if frame.marked] or range(len(self.seen))
        shown = pictured([self.seen[place].dice for place in places])
        return {kind: self._of_frame(places[n]) for kind, n in shown.items()}

    def picture(self, place: int) -> dict[str, Any]:
        """Return the masks of a video, and no image: from these a reader chooses a frame.

        ``frames`` (T,), video and second as words; ``dice`` (T,); ``first``, of how many frames of the loader's dataset
        those of the video follow; of each frame ``masks_0`` and so on, called and true (2, H, W) uint8; ``classes``.
        """
        row = self.rows[place]
        first = row["shown"]["first"]
        frames = self.seen[first : first + row["n_frames"]]
        facts = {"frames": np.array([frame.case for frame in frames]), "dice": np.array([one.dice for one in frames])}
        masks = {f"masks_{n}": self._masks(frame) for n, frame in enumerate(frames)}
        return {"first": first, "classes": np.array(self.classes), **facts, **masks}

    def _masks(self, frame: SeenFrame) -> NDArray[np.uint8]:
        return np.frombuffer(zlib.decompress(frame.masks), np.uint8).reshape(self.size)

    def _of_frame(self, place: int) -> dict[str, Any]:
        frame = self.seen[place]
        called, truth = self._masks(frame)
        # Read again: the images of all frames would need too much memory.
        return {
            "image": newest_frame(self.engine.data_loader.dataset[place]["image"]),
            "truth": truth,
            "prediction": called,
            "classes": np.array(self.classes),
            "dice": frame.dice,
            "case": frame.case,
        }


def newest_frame(clip: Tensor) -> NDArray[np.uint8]:
    """Return the last frame (H, W, 3) of a clip (k, 3, H, W), uint8 or float in 0…1."""
    image: NDArray[np.uint8] = (unit_float(plain(clip)[-1]).clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    return image


class MaskDice(VideoMean):
    """Mean over videos of the Dice of their frames, as an evaluator's key metric; see ``dice_mean`` above."""

    def __init__(self) -> None:
        super().__init__(called_and_true, self._of_video)

    @staticmethod
    def _of_video(video: SeenVideo) -> float:
        classes = max(int(part.max()) for part in video.parts)  # those above are in neither
        return float(frame_scores(scores_of(video, max(classes, 1), distances=False))[:, 0].mean())


def scores_of(video: SeenVideo, classes: int, distances: bool = True) -> Scores:
    """Return (T, classes, 4) of what :func:`called_and_true` read."""
    pairs = zip(*(part.numpy() for part in video.parts), strict=True)
    return np.stack([class_scores(true, called, classes, distances) for called, true in pairs])


def called_and_true(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return masks uint8 (B, H, W) that are called and true.

    Args:
        logits: (B, 1 + classes, H, W).
        labels: whole numbers (B, H, W) or (B, 1, H, W).

    Raises:
        FedMedError: other shapes, or a value that no output stands for.
    """
    truth = labels[:, 0] if labels.ndim == 4 else labels
    if logits.ndim != 4 or truth.shape != (len(logits), *logits.shape[2:]) or labels.is_floating_point():
        raise FedMedError(
            f"logits {tuple(logits.shape)} and masks {tuple(labels.shape)} of {labels.dtype}; use (B, C, H, W) and "
            "whole numbers (B, H, W)"
        )
    if int(truth.max()) >= logits.shape[1]:
        raise FedMedError(f"a mask has the value {int(truth.max())}, and the network {logits.shape[1]} outputs a pixel")
    return logits.argmax(dim=1).byte(), truth.byte()
