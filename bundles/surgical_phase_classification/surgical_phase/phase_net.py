"""The network for single frames of an operation: features of a ResNet, and one linear layer for the phases."""

from collections.abc import Sequence

from torch import Tensor, nn

from surgical_phase.encoders import FrameEncoder
from surgical_phase.frame_net import FrameNet


class PhaseNet(FrameNet):
    """Classifier of the phase of a frame (Kassem et al. 2023): ResNet-50 (He et al. 2016) and a linear layer.

    Args:
        phases: number of phases, one of which each frame is of.
        layers, widths, groups, block: see :class:`surgical_phase.encoders.FrameEncoder`; ResNet-50 with BatchNorm
            unless they say otherwise.
        stem_pool: likewise; False for small frames.

    Attributes:
        features: frames (B, 3, H, W), red, green and blue in [0, 1] -> (B, F); its tensors are ``features.*``.
        classifier: features (B, F) -> logits (B, phases); its tensors are ``classifier.*``.

    Raises:
        ValueError: no phases, or as :class:`surgical_phase.encoders.FrameEncoder` says.
    """

    origin, published = "features.", "resnet50"

    def __init__(
        self,
        phases: int,
        layers: Sequence[int] = (3, 4, 6, 3),
        widths: Sequence[int] = (64, 128, 256, 512),
        groups: int | None = None,
        block: str = "bottleneck",
        stem_pool: bool = True,
    ) -> None:
        super().__init__(phases)
        self.features = FrameEncoder(layers, widths, groups, block, stem_pool=stem_pool)
        self.classifier = nn.Linear(self.features.width, phases)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, phases) of frames (B, 3, H, W), red, green and blue in [0, 1]."""
        return self.classifier(self.features(x))
