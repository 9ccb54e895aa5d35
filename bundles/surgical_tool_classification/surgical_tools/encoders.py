"""Residual networks that make features of single frames."""

from collections.abc import Sequence
from math import gcd

import torch
from monai.networks.nets import ResNet
from torch import Tensor, nn

from .frame_net import ImageNetColours

POOLINGS = ("mean", "mean_max")


class FrameEncoder(ResNet):
    """A 2D ResNet for colour images (He et al. 2016), with GroupNorm (Wu and He 2018) or BatchNorm.

    BatchNorm's statistics are those of one hospital's camera; GroupNorm has none to average or to keep apart. Names and
    shapes of the tensors are those of torchvision's ``resnet18``, with bottlenecks of its ``resnet50``, without their
    last layers. Colours are normalised inside.

    Args:
        layers: blocks in each of the four stages.
        widths: channels of each stage; with bottlenecks, of their narrow part, a quarter of what they give.
        groups: of channels that are normalised together; a layer whose channels it does not divide takes the greatest
            common divisor. None = BatchNorm.
        block: ``basic``, two convolutions, or ``bottleneck``, three.
        stem_kernel: size of the first convolution.
        stem_stride: its stride.
        stem_pool: whether a 3 x 3 pooling of stride 2 follows. Without it, small frames keep some rows for the last
            stage.
        pooling: of the last stage's maps over the whole frame: ``mean``, or ``mean_max``, mean and largest value side
            by side: a tool that fills a few cells of a small map is little in the mean.

    Attributes:
        width: number of features.

    Raises:
        ValueError: not four stages, a number below 1, or an unknown pooling.
    """

    def __init__(
        self,
        layers: Sequence[int] = (2, 2, 2, 2),
        widths: Sequence[int] = (64, 128, 256, 512),
        groups: int | None = 32,
        block: str = "basic",
        stem_kernel: int = 7,
        stem_stride: int = 2,
        stem_pool: bool = True,
        pooling: str = "mean",
    ) -> None:
        if pooling not in POOLINGS:
            raise ValueError(f"pooling is '{pooling}'; use 'mean' or 'mean_max'")
        numbers = [*layers, *widths, stem_kernel, stem_stride, *(() if groups is None else (groups,))]
        if len(layers) != 4 or len(widths) != 4 or min(numbers) < 1:
            raise ValueError(
                f"layers {list(layers)}, widths {list(widths)}, groups {groups}, stem {stem_kernel} {stem_stride}: "
                "use four layers and four widths, and whole numbers of at least 1"
            )
        super().__init__(
            block=block,
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
            replace_batch_norm(self, groups)  # MONAI's `norm` reaches the first layer alone
        if pooling == "mean_max":
            self.avgpool = MeanAndMax()
        self.width = self.in_planes * (1 + (pooling == "mean_max"))
        self.colours = ImageNetColours()

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, width) of frames (B, 3, H, W), red, green and blue in [0, 1]."""
        x = self.act(self.bn1(self.conv1(self.colours(x))))  # as MONAI's; TorchScript cannot call the method of a base
        if not self.no_max_pool:
            x = self.maxpool(x)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return torch.flatten(self.avgpool(x), 1)


class MeanAndMax(nn.Module):
    """Maps (B, C, h, w) -> (B, 2 C): the mean of each, then the largest value of each."""

    def forward(self, maps: Tensor) -> Tensor:
        return torch.cat([maps.mean(dim=(2, 3)), maps.amax(dim=(2, 3))], dim=1)


def replace_batch_norm(module: nn.Module, groups: int) -> None:
    """Put GroupNorm with the same affine tensors in the place of every BatchNorm below a module."""
    for name, part in module.named_children():
        if isinstance(part, nn.BatchNorm2d):
            made = nn.GroupNorm(gcd(groups, part.num_features), part.num_features, part.eps)
            made.load_state_dict({key: getattr(part, key) for key in ("weight", "bias")})
            setattr(module, name, made)
        else:
            replace_batch_norm(part, groups)
