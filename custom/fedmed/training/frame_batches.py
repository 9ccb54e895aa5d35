"""From batches of a loader of clips to what a network takes."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from fedmed.data.video.clip_loader import unit_float
from fedmed.errors import FedMedError


class StackedFrames:
    """``prepare_batch`` of an engine: the frames of a clip become channels of one image, and may be changed first.

    Args:
        views: (B, k, 3, H, W) uint8 -> float, such as :class:`fedmed.data.augment.clip_views.ClipViews`, with masks
            (B, n, H, W) both, one draw a clip; None = frames as they are.
    """

    def __init__(self, views: Callable[..., Any] | None = None) -> None:
        self.views = views

    def __call__(
        self, batch: Mapping[str, Any], device: torch.device | str | None = None, non_blocking: bool = False, **_: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Return images (B, k · 3, H, W) float32 in [0, 1], oldest frame first, and labels, None without.

        Labels are those of the last frame: (B, J) float32, 0 or 1, of uint8; classes (B,) or masks (B, H, W), which
        move with their frame, stay whole numbers (int64).

        Raises:
            FedMedError: a batch that does not hold clips.
        """
        clips, labels = batch["image"], batch.get("labels")
        self._check(clips)
        clips = clips.to(device, non_blocking=non_blocking)
        if labels is not None:
            labels = labels.to(device, non_blocking=non_blocking)
        if self.views is not None and labels is not None and labels.ndim == 4:
            images, labels = self.views(clips, labels)
        else:
            images = unit_float(clips) if self.views is None else self.views(clips)
        images = images.flatten(1, 2)
        if labels is None:
            return images, None
        return images, labels[:, -1].float() if labels.dtype == torch.uint8 else labels[:, -1]

    def _check(self, clips: Tensor) -> None:
        if clips.ndim != 5:
            raise FedMedError(f"a batch has shape {tuple(clips.shape)}; clips (B, k, 3, H, W) are needed")


class FrameBatches(StackedFrames):
    """The same of clips of one frame, for networks of single frames: (B, 3, H, W); FedMedError for longer clips."""

    def _check(self, clips: Tensor) -> None:
        if clips.ndim != 5 or clips.shape[1] != 1:
            raise FedMedError(f"a batch has shape {tuple(clips.shape)}; clips of one frame are needed: size 1")


class ClipBatches:
    """``prepare_batch`` of an engine whose network takes single frames: the frames of all clips, one after the other.

    Args:
        views: (B, k, 3, H, W) uint8 -> float, one draw a clip; None = frames as they are.
    """

    def __init__(self, views: Callable[[Tensor], Tensor] | None = None) -> None:
        self.views = views

    def __call__(
        self, batch: Mapping[str, Any], device: torch.device | str | None = None, non_blocking: bool = False, **_: Any
    ) -> tuple[Tensor, None]:
        """Return images (B · k, 3, H, W) float32 in [0, 1] of clips (B, k, 3, H, W), and no labels."""
        clips = batch["image"].to(device, non_blocking=non_blocking)
        return (unit_float(clips) if self.views is None else self.views(clips)).flatten(0, 1), None
