"""Base of networks for single frames."""

import torch
from torch import Tensor, nn

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's colours


class ImageNetColours(nn.Module):
    """Frames (B, 3, H, W), red, green and blue in [0, 1], with mean 0 and deviation 1 of ImageNet's colours.

    It stands inside of networks, so that any runtime takes plain images.
    """

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name, values in (("mean", MEAN), ("std", STD)):  # constants, neither trained nor sent
            self.register_buffer(name, torch.tensor(values).view(1, 3, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


class FrameNet(nn.Module):
    """A network of single frames whose layers, all but the last, may begin with ImageNet's weights.

    Attributes:
        origin: what the names of tensors have before those of torchvision's network.
        last: name of the layer that gives the logits.
        published: torchvision's name of the network whose weights it takes.
    """

    origin, last, published = "", "classifier.", ""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        if outputs < 1:
            raise ValueError(f"{outputs} outputs; at least one is needed")
