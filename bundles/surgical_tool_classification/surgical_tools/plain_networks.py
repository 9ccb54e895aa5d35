"""AlexNet and VGG-13 for frames of any size, with names and shapes of torchvision's tensors."""

from torch import Tensor, nn

from surgical_tools.frame_net import ImageNetColours
from surgical_tools.presence_net import PresenceNet

WIDTH = 4096  # features of the fully connected layers
VGG13_STAGES = (64, 128, 256, 512, 512)  # channels; two convolutions each, then half the size


class PlainNet(PresenceNet):
    """Convolutions, a mean over cells to a fixed grid, and three fully connected layers.

    Args:
        features: (B, 3, H, W) -> (B, C, h, w).
        grid: height and width of the grid.
        classifier: (B, C * grid * grid) -> logits (B, tools).
        tools: number of tools, each of which may be seen or not.
        least: shortest side of a frame, in pixels.

    Tensors are called ``features.*`` and ``classifier.*``.
    """

    last = "classifier.6."

    def __init__(self, features: nn.Sequential, grid: int, classifier: nn.Sequential, tools: int, least: int) -> None:
        super().__init__(tools)
        self.features, self.avgpool, self.classifier = features, nn.AdaptiveAvgPool2d(grid), classifier
        self.colours, self.least = ImageNetColours(), least

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, tools) of frames (B, 3, H, W), red, green and blue in [0, 1].

        Raises:
            ValueError: a side is shorter than ``least``.
        """
        if x.shape[2] < self.least or x.shape[3] < self.least:
            raise ValueError("frames are too small for this network: AlexNet needs 63 pixels a side, VGG-13 32")
        return self.classifier(self.avgpool(self.features(self.colours(x))).flatten(1))


class AlexNet(PlainNet):
    """AlexNet in the form of Krizhevsky (2014, arXiv 1404.5997), as torchvision's ``alexnet``.

    Args:
        tools: number of outputs; with 1000 there are 61,100,840 parameters.
        dropout: share of features that are left out in training, before each of the first two fully connected layers.
    """

    published = "alexnet"

    def __init__(self, tools: int, dropout: float = 0.5) -> None:
        features = nn.Sequential(
            *_convolution(3, 64, 11, stride=4, padding=2),
            nn.MaxPool2d(3, 2),
            *_convolution(64, 192, 5, padding=2),
            nn.MaxPool2d(3, 2),
            *_convolution(192, 384, 3, padding=1),
            *_convolution(384, 256, 3, padding=1),
            *_convolution(256, 256, 3, padding=1),
            nn.MaxPool2d(3, 2),
        )
        classifier = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(256 * 6 * 6, WIDTH),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(inplace=True),
            nn.Linear(WIDTH, tools),
        )
        super().__init__(features, 6, classifier, tools, least=63)


class VGG13(PlainNet):
    """VGG-13, configuration B of Simonyan and Zisserman (2015, arXiv 1409.1556), as torchvision's ``vgg13``.

    Without BatchNorm. Random weights are those of He et al. (2015), with which so deep a network can begin to learn.

    Args:
        tools: number of outputs; with 1000 there are 133,047,848 parameters.
        dropout: share of features that are left out in training, after each of the first two fully connected layers.
    """

    published = "vgg13"

    def __init__(self, tools: int, dropout: float = 0.5) -> None:
        layers: list[nn.Module] = []
        for width, channels in zip((3, *VGG13_STAGES), VGG13_STAGES, strict=False):
            layers += [*_convolution(width, channels, 3, padding=1), *_convolution(channels, channels, 3, padding=1)]
            layers.append(nn.MaxPool2d(2, 2))
        classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, WIDTH),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(WIDTH, tools),
        )
        super().__init__(nn.Sequential(*layers), 7, classifier, tools, least=32)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(layer.bias)
            elif isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, 0, 0.01)
                nn.init.zeros_(layer.bias)


def _convolution(width: int, channels: int, kernel: int, stride: int = 1, padding: int = 0) -> list[nn.Module]:
    return [nn.Conv2d(width, channels, kernel, stride, padding), nn.ReLU(inplace=True)]
