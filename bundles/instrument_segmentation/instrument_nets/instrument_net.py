"""The network that segments instruments in the newest frame of a clip."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn, stack

from .channel_selection import ChannelSelection
from .decoder import PyramidDecoder
from .encoder import FIRST_STRIDE, PvtEncoder
from .frame_net import ImageNetColours
from .levels import level_for
from .temporal_attention import TemporalAttention


class InstrumentNet(nn.Module):
    """PVT v2 encoder, attention over time, selection of channels, FPN decoder (Fang et al. 2025, arXiv, section 3).

    It takes clips (B, 3 · frames, H, W), red, green and blue of each frame in [0, 1], the oldest frame first, or single
    pictures (B, 3, H, W), which stand for all frames. Colours are normalised inside; sides that the encoder's stride
    does not divide are filled up by repeating the edge, and the logits are cropped.

    Names of tensors begin with the parts: ``encoder.``, ``temporal.``, ``selection.``, ``decoder.``, ``head.``.

    Args:
        classes: outputs, background included.
        indicator: ξ of :class:`ChannelSelection`; needed with ``selection``.
        dims, depths, heads, reductions, expansions: of :class:`PvtEncoder`.
        frames: of a clip.
        temporal: whether past frames are attended to; otherwise the newest frame alone is looked at.
        selection: whether channels are selected.
        prompt_only: see :class:`ChannelSelection`.
        rsc_level: the stage whose map passes time and selection; None = see :func:`instrument_nets.levels.level_for`.
        size: (H, W) of the frames to come, for that; None = frames large enough for the deepest stage.
        temporal_heads: None = as many as that stage has.
        window, regions, pools, cffm_block, pre_norm: of :class:`TemporalAttention`; a region and a pool for each frame.
        pyramid, segmentation, groups, dropout: of :class:`PyramidDecoder`.

    Attributes:
        level: number of that stage, counted from 0.

    Raises:
        ValueError: parts that do not fit together; when called, another number of channels.
    """

    def __init__(
        self,
        classes: int = 4,
        indicator: Sequence[float] | Tensor | None = None,
        dims: Sequence[int] = (32, 64, 160, 256),
        depths: Sequence[int] = (2, 2, 2, 2),
        heads: Sequence[int] = (1, 2, 5, 8),
        reductions: Sequence[int] = (8, 4, 2, 1),
        expansions: Sequence[int] = (8, 8, 4, 4),
        frames: int = 4,
        temporal: bool = True,
        selection: bool = True,
        prompt_only: bool = False,
        rsc_level: int | None = None,
        size: Sequence[int] | None = None,
        temporal_heads: int | None = None,
        window: int = 7,
        regions: Sequence[int] = (49, 20, 6, 7),
        pools: Sequence[int] = (7, 4, 2, 1),
        cffm_block: bool = False,
        pre_norm: bool = True,
        pyramid: int = 256,
        segmentation: int = 128,
        groups: int = 32,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        stages = len(dims)
        if rsc_level is None:
            rsc_level = level_for(size, stages) if size else -1
        _check(classes, indicator, stages, frames, temporal, selection, rsc_level, len(regions))
        self.frames, self.level = frames, rsc_level % stages
        self.colours = ImageNetColours()
        self.encoder = PvtEncoder(dims, depths, heads, reductions, expansions)
        width, level_heads = dims[self.level], heads[self.level]
        self.temporal = (
            TemporalAttention(width, temporal_heads or level_heads, window, regions, pools, cffm_block, pre_norm)
            if temporal
            else None
        )
        said = indicator if selection else None
        self.selection = None if said is None else ChannelSelection(width, said, prompt_only)
        self.decoder = PyramidDecoder(dims, pyramid, segmentation, groups, dropout)
        self.head = nn.Conv2d(segmentation, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, classes, H, W) of the newest frame of clips (B, 3 · frames, H, W) or of pictures (B, 3, H, W)."""
        count = self._frames_of(x)
        if count == 1 or self.temporal is None:
            levels = self.features(x[:, -3:])
            return self.combine(levels, [levels[self.level]] * (self.frames - 1), x.shape[2:])
        clip = self._prepared(x.unflatten(1, (count, 3)).flatten(0, 1))
        shallow = [each.unflatten(0, (-1, count)) for each in self.encoder(clip, 0, self.level + 1)]
        newest = [each[:, -1] for each in shallow]
        newest += self.encoder(newest[-1], self.level + 1)
        return self.combine(newest, list(shallow[-1][:, :-1].unbind(1)), x.shape[2:])

    def features(self, frame: Tensor) -> list[Tensor]:
        """Maps E1, E2, … of frames (B, 3, H, W), red, green and blue in [0, 1], at strides 4, 8, …"""
        return self.encoder(self._prepared(frame))

    def combine(self, levels: Sequence[Tensor], past: Sequence[Tensor], size: Sequence[int]) -> Tensor:
        """Logits (B, classes, H, W) of a frame's maps and of the frames before it.

        Args:
            levels: of :meth:`features`.
            past: the map ``level`` of each of the ``frames - 1`` frames before, the oldest first; unused without
                attention over time.
            size: (H, W) of the frames.
        """
        chosen = levels[self.level]
        if self.temporal is not None:
            chosen = self.temporal(stack([*past, chosen], dim=1))
        if self.selection is not None:
            chosen = self.selection(chosen)
        return self.decode([*levels[: self.level], chosen, *levels[self.level + 1 :]], size)

    def decode(self, levels: Sequence[Tensor], size: Sequence[int]) -> Tensor:
        """Logits (B, classes, H, W) of maps as :meth:`features` gives them, for frames of ``size`` (H, W)."""
        logits = self.head(self.decoder(levels))
        logits = F.interpolate(logits, scale_factor=float(FIRST_STRIDE), mode="bilinear", align_corners=False)
        return logits[:, :, : size[0], : size[1]]

    def forward_plain(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (B, classes, H, W) and F (B, C, h, w) of the newest frame, past attention over time and selection."""
        self._frames_of(x)
        levels = self.features(x[:, -3:])
        return self.decode(levels, x.shape[2:]), levels[self.level]

    def plain_feature(self, x: Tensor) -> Tensor:
        """F of :meth:`forward_plain` alone, without the stages and the decoder that follow it."""
        self._frames_of(x)
        return self.encoder(self._prepared(x[:, -3:]), 0, self.level + 1)[-1]

    def _prepared(self, frames: Tensor) -> Tensor:
        stride = self.encoder.stride
        fill = (0, -frames.shape[3] % stride, 0, -frames.shape[2] % stride)
        frames = self.colours(frames)
        return F.pad(frames, fill, mode="replicate") if any(fill) else frames

    def _frames_of(self, x: Tensor) -> int:
        count = x.shape[1] // 3
        if x.shape[1] not in (3, 3 * self.frames):
            raise ValueError(
                f"images have {x.shape[1]} channels; give {3 * self.frames}, colours of {self.frames} frames, or 3"
            )
        return count


def _check(
    classes: int, indicator: object, stages: int, frames: int, temporal: bool, selection: bool, level: int, regions: int
) -> None:
    if classes < 1 or frames < 1:
        raise ValueError(f"{classes} classes and {frames} frames; at least one of each is needed")
    if not -stages <= level < stages:
        raise ValueError(f"rsc_level is {level}; the encoder has stages 0 to {stages - 1}")
    if temporal and regions != frames:
        raise ValueError(f"{regions} regions for {frames} frames; give 'regions' and 'pools' one number a frame")
    if selection and indicator is None:
        raise ValueError("selection needs an indicator, the vector that describes a site; or set selection to false")
