"""From batches of a loader of clips to what a network of single frames takes."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from fedmed.data.video.clip_loader import unit_float
from fedmed.errors import FedMedError


class FrameBatches:
    """``prepare_batch`` of an engine: clips of one frame become frames on the device, and may be changed there.

    Args:
        views: (B, 1, 3, H, W) uint8 -> float, such as :class:`fedmed.data.augment.clip_views.ClipViews`, with masks
            (B, 1, H, W) both; None = frames as they are.
    """

    def __init__(self, views: Callable[..., Any] | None = None) -> None:
        self.views = views

    def __call__(
        self, batch: Mapping[str, Any], device: torch.device | str | None = None, non_blocking: bool = False, **_: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Return images (B, 3, H, W) float32 in [0, 1], and labels, None without.

        Labels are (B, J) float32, 0 or 1, of uint8; classes (B,) or masks (B, H, W), which move with their frames, stay
        whole numbers (int64).

        Raises:
            FedMedError: clips of more than one frame.
        """
        clips, labels = batch["image"], batch.get("labels")
        if clips.ndim != 5 or clips.shape[1] != 1:
            raise FedMedError(f"a batch has shape {tuple(clips.shape)}; clips of one frame are needed: size 1")
        clips = clips.to(device, non_blocking=non_blocking)
        if labels is not None:
            labels = labels.to(device, non_blocking=non_blocking)
        if self.views is not None and labels is not None and labels.ndim == 4:
            images, labels = self.views(clips, labels)
        else:
            images = unit_float(clips) if self.views is None else self.views(clips)
        if labels is None:
            return images[:, 0], None
        return images[:, 0], labels[:, 0].float() if labels.dtype == torch.uint8 else labels[:, 0]


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
