"""Base of the networks of this bundle: each tool may be there or not, whatever the others are."""

from torch import Tensor

from surgical_tools.frame_net import FrameNet


class PresenceNet(FrameNet):
    """A network with one output for each tool."""

    def probabilities(self, logits: Tensor) -> Tensor:
        """Of each tool, (B, tools); they do not sum to 1."""
        return logits.sigmoid()
