"""A network of one linear layer for single frames, with one output for each tool."""

from torch import Tensor, nn

from surgical_tools.presence_net import PresenceNet


class ToolNet(PresenceNet):
    """Encoder and one linear layer.

    Args:
        encoder: frames (B, 3, H, W) in [0, 1] -> (B, features), such as
            :class:`surgical_tools.encoders.FrameEncoder`.
        features: features that the encoder gives.
        tools: number of tools, each of which may be seen or not.

    Tensors are called ``encoder.*`` and ``classifier.*``.
    """

    origin, published = "encoder.", "resnet18"

    def __init__(self, encoder: nn.Module, features: int, tools: int) -> None:
        super().__init__(tools)
        self.encoder = encoder
        self.classifier = nn.Linear(features, tools)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, tools) of frames (B, 3, H, W), red, green and blue in [0, 1]."""
        return self.classifier(self.encoder(x))
