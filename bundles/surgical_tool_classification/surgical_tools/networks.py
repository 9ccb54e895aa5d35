"""Networks for single frames, with one output for each tool; here residual ones."""

from collections.abc import Sequence

import torch
from monai.networks.nets import ResNet
from torch import Tensor, nn

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's colours


def build_encoder(
    layers: Sequence[int] = (2, 2, 2, 2),
    widths: Sequence[int] = (64, 128, 256, 512),
    groups: int | None = 32,
    stem_kernel: int = 7,
    stem_stride: int = 2,
    stem_pool: bool = True,
    pooling: str = "mean",
) -> ResNet:
    """A 2D ResNet of basic blocks for colour images (He et al. 2016), with GroupNorm (Wu and He 2018) or BatchNorm.

    BatchNorm's statistics are those of one hospital's camera; GroupNorm has none to average or to keep apart. Names and
    shapes of the tensors are those of torchvision's ``resnet18`` without its last layer.

    Args:
        layers: blocks in each of the four stages.
        widths: channels of each stage; the last is the number of features.
        groups: of channels that are normalised together; it divides every width. None = BatchNorm.
        stem_kernel: size of the first convolution.
        stem_stride: its stride.
        stem_pool: whether a 3 x 3 pooling of stride 2 follows. Without it, small frames keep some rows for the last
            stage.
        pooling: of the last stage's maps over the whole frame: ``mean``, or ``mean_max``, mean and largest value side
            by side: a tool that fills a few cells of a small map is little in the mean.

    Returns:
        A network (B, 3, H, W) -> (B, widths[-1]), or twice as many features with ``mean_max``, for any H and W.

    Raises:
        ValueError: not four stages, a number below 1, groups that do not divide the widths, or an unknown pooling.
    """
    if pooling not in ("mean", "mean_max"):
        raise ValueError(f"pooling is '{pooling}'; use 'mean' or 'mean_max'")
    if len(layers) != 4 or len(widths) != 4 or min(*layers, *widths, groups or 1, stem_kernel, stem_stride) < 1:
        raise ValueError(f"layers {list(layers)}, widths {list(widths)}: four integers of at least 1 each are needed")
    if groups is not None and any(width % groups for width in widths):
        raise ValueError(f"groups {groups} do not divide the widths {list(widths)}; use a common divisor of them")
    encoder = ResNet(
        block="basic",
        layers=list(layers),
        block_inplanes=list(widths),
        spatial_dims=2,
        n_input_channels=3,
        conv1_t_size=stem_kernel,
        conv1_t_stride=stem_stride,
        no_max_pool=not stem_pool,
        bias_downsample=False,
        feed_forward=False,
    )
    if groups is not None:
        replace_batch_norm(encoder, groups)  # MONAI's `norm` reaches the first layer alone
    if pooling == "mean_max":
        encoder.avgpool = MeanAndMax()
    return encoder


class MeanAndMax(nn.Module):
    """Maps (B, C, h, w) -> (B, 2 C): the mean of each, then the largest value of each."""

    def forward(self, maps: Tensor) -> Tensor:
        return torch.cat([maps.mean(dim=(2, 3)), maps.amax(dim=(2, 3))], dim=1)


def replace_batch_norm(module: nn.Module, groups: int) -> None:
    """Put GroupNorm with the same affine tensors in the place of every BatchNorm below a module."""
    for name, part in module.named_children():
        if isinstance(part, nn.BatchNorm2d):
            made = nn.GroupNorm(groups, part.num_features, part.eps)
            made.load_state_dict({key: getattr(part, key) for key in ("weight", "bias")})
            setattr(module, name, made)
        else:
            replace_batch_norm(part, groups)


class FrameNet(nn.Module):
    """A network of single frames; colours are normalised inside, so that any runtime takes plain images.

    Attributes:
        origin: what the names of tensors have before those of torchvision's network.
        last: name of the layer that gives the logits.
    """

    mean: Tensor
    std: Tensor
    origin, last = "", "classifier.6."

    def __init__(self, tools: int) -> None:
        super().__init__()
        if tools < 1:
            raise ValueError(f"tools is {tools}; at least one is needed")
        for name, values in (("mean", MEAN), ("std", STD)):  # constants, neither trained nor sent
            self.register_buffer(name, torch.tensor(values).view(1, 3, 1, 1), persistent=False)

    def normalised(self, x: Tensor) -> Tensor:
        """Frames (B, 3, H, W), red, green and blue in [0, 1], with mean 0 and deviation 1 of ImageNet's colours."""
        return (x - self.mean) / self.std


class ToolNet(FrameNet):
    """Encoder and one linear layer.

    Args:
        encoder: (B, 3, H, W) -> (B, features).
        features: features that the encoder gives.
        tools: number of tools, each of which may be seen or not.

    Tensors are called ``encoder.*`` and ``classifier.*``.
    """

    origin, last = "encoder.", "classifier."

    def __init__(self, encoder: nn.Module, features: int, tools: int) -> None:
        super().__init__(tools)
        self.encoder = encoder
        self.classifier = nn.Linear(features, tools)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, tools) of frames (B, 3, H, W), red, green and blue in [0, 1]."""
        return self.classifier(self.encoder(self.normalised(x)))
