"""Phases of whole videos: causal temporal convolutions on the features of an encoder that does not change."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from surgical_phase.phase_net import PhaseNet

KERNEL = 3


class DilatedLayer(nn.Module):
    """Causal dilated convolution, ReLU, 1 x 1 convolution, dropout, residual.

    Args:
        maps: channels.
        dilation: frames from one tap of the kernel to the next.
        dropout: probability.
    """

    def __init__(self, maps: int, dilation: int, dropout: float) -> None:
        super().__init__()
        self.past = (KERNEL - 1) * dilation
        self.dilated = nn.Conv1d(maps, maps, KERNEL, dilation=dilation)
        self.mixed = nn.Conv1d(maps, maps, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(B, maps, T) -> (B, maps, T); frame t sees t, t - dilation and t - 2 dilation; before the first are zeros."""
        return x + self.dropout(self.mixed(F.relu(self.dilated(F.pad(x, (self.past, 0))))))


class Stage(nn.Module):
    """One temporal stage: 1 x 1 convolution, dilated layers with dilation 1, 2, 4, …, 1 x 1 convolution.

    Args:
        inputs: channels of the input.
        phases: P, of the logits.
        maps, layers, dropout: see :class:`TemporalStages`.
    """

    def __init__(self, inputs: int, phases: int, maps: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Conv1d(inputs, maps, 1)
        self.layers = nn.Sequential(*(DilatedLayer(maps, 2**n, dropout) for n in range(layers)))
        self.last = nn.Conv1d(maps, phases, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, T) -> logits (B, P, T)."""
        return self.last(self.layers(self.first(x)))


class TemporalStages(nn.ModuleList):
    """TeCNO (Czempiel et al. 2020, arXiv 2003.10751): causal stages, each but the first refines the one before it.

    A frame's logits depend on it and on what was before, never on what comes after: with 8 layers of kernel 3 on 511
    frames a stage, 1021 with two stages. So videos of unlike length may be padded at their end.

    Args:
        features: F, of a frame.
        phases: P.
        stages, layers, maps: their numbers; the paper searched, the defaults are those that were chosen.
        dropout: probability.

    Raises:
        ValueError: a number below 1, or a probability outside [0, 1).
    """

    def __init__(
        self, features: int, phases: int, stages: int = 2, layers: int = 8, maps: int = 32, dropout: float = 0.5
    ) -> None:
        for name, value in (("features", features), ("phases", phases), ("stages", stages), ("layers", layers)):
            if value < 1:
                raise ValueError(f"{name} is {value}; use at least 1")
        if maps < 1 or not 0 <= dropout < 1:
            raise ValueError(f"maps is {maps} and dropout is {dropout}; use at least 1 map, and a dropout in [0, 1)")
        widths = [features, *[phases] * (stages - 1)]
        super().__init__(Stage(width, phases, maps, layers, dropout) for width in widths)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (S, B, P, T) of each stage, of features (B, F, T); the last stage's are the result."""
        logits: list[Tensor] = []
        for stage in self:
            logits.append(stage(torch.softmax(logits[-1], dim=1) if len(logits) > 0 else x))
        return torch.stack(logits)


class TemporalPhaseNet(nn.Module):
    """The network of single frames, with temporal stages in the place of its linear layer.

    Args:
        phases: P, number of phases.
        temporal: options of :class:`TemporalStages`.
        frame_net: those of :class:`surgical_phase.phase_net.PhaseNet`.

    Attributes:
        features: those of the network of single frames; its tensors are ``features.*``, as there.
        stages: features (B, F, T) -> logits (S, B, P, T); its tensors are ``stages.*``.
    """

    def __init__(self, phases: int, temporal: Mapping[str, Any] | None = None, **frame_net: Any) -> None:
        super().__init__()
        frames = PhaseNet(phases, **frame_net)
        self.features = frames.features
        self.stages = TemporalStages(frames.classifier.in_features, phases, **(temporal or {}))

    def forward(self, frames: Tensor) -> Tensor:
        """Logits (T, P) of all frames (T, 3, H, W) of one video in their order, colours in [0, 1]."""
        return self.phases_of(self.features(frames))

    def phases_of(self, features: Tensor) -> Tensor:
        """Logits (T, P) of the features (T, F) of all frames of one video in their order."""
        return self.stages(features.T[None])[-1, 0].T
