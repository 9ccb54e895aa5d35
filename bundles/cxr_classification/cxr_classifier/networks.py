"""The encoder, and the two networks around it: for pre-training without labels, and for classification.

Both name the encoder's tensors ``encoder.*``, so that one network's encoder is loaded into the other by name.
"""

from collections.abc import Sequence

import torch
from monai.networks.nets import ResNet
from torch import Tensor, nn
from torch.nn import functional

RESNET18 = ((2, 2, 2, 2), (64, 128, 256, 512))
ZERO_NORM = 1e-12  # below it a row counts as zero and stays zero


def build_encoder(
    layers: Sequence[int] = RESNET18[0],
    widths: Sequence[int] = RESNET18[1],
    stem_kernel: int = 7,
    stem_stride: int = 2,
    stem_pool: bool = True,
) -> ResNet:
    """A 2D ResNet of basic blocks for one-channel images (He et al. 2016); its defaults are ResNet-18.

    BatchNorm and ReLU as in the paper; shortcuts have no bias, as in the original.

    Args:
        layers: blocks in each of the four stages.
        widths: channels of each stage; the last is the number of features.
        stem_kernel: size of the first convolution.
        stem_stride: its stride.
        stem_pool: whether a 3 x 3 pooling of stride 2 follows. Without it, small images keep some rows for the last
            stage.

    Returns:
        A network (B, 1, H, W) -> (B, widths[-1]), globally averaged, for any H and W.

    Raises:
        ValueError: not four stages, or a number below 1.
    """
    if len(layers) != 4 or len(widths) != 4 or min(*layers, *widths, stem_kernel, stem_stride) < 1:
        raise ValueError(
            f"layers {list(layers)} and widths {list(widths)}: four integers of at least 1 each are needed"
        )
    return ResNet(
        block="basic",
        layers=list(layers),
        block_inplanes=list(widths),
        spatial_dims=2,
        n_input_channels=1,
        conv1_t_size=stem_kernel,
        conv1_t_stride=stem_stride,
        no_max_pool=not stem_pool,
        bias_downsample=False,
        feed_forward=False,
    )


def unit_rows(x: Tensor) -> Tensor:
    """ReLU, then rows of length 1: (B, d) -> (B, d) in [0, 1], float32 or finer.

    A row without a positive entry gives zeros, not NaN. Never in float16, as in mixed precision: there ``ZERO_NORM``
    would itself be 0.
    """
    x = x if x.dtype == torch.float64 else x.float()
    return functional.normalize(functional.relu(x), dim=1, eps=ZERO_NORM)


class ContrastiveNet(nn.Module):
    """Encoder and projection that momentum contrast trains (Dong and Voiculescu 2021).

    Args:
        encoder: (B, 1, H, W) -> (B, features).
        features: features that the encoder gives.
        dim: d, the length of a representation (not stated in the paper; 128 in He et al. 2020).

    Tensors are called ``encoder.*`` and ``projection.*``.
    """

    def __init__(self, encoder: nn.Module, features: int, dim: int = 128) -> None:
        super().__init__()
        self.encoder = encoder
        self.projection = nn.Linear(features, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Representations (B, dim) of images (B, 1, H, W): entries from 0, rows of length 1 or all zero."""
        return unit_rows(self.projection(self.encoder(x)))


class ClassifierNet(nn.Module):
    """Encoder and one linear layer.

    Args:
        encoder: (B, 1, H, W) -> (B, features).
        features: features that the encoder gives.
        num_classes: number of classes; each image has exactly one.

    Tensors are called ``encoder.*`` and ``classifier.*``; the buffer ``temperature``, shape (1,), is 1 until it is
    fitted on validation images (Guo et al. 2017).
    """

    temperature: Tensor

    def __init__(self, encoder: nn.Module, features: int, num_classes: int) -> None:
        super().__init__()
        if num_classes < 2:
            raise ValueError(f"num_classes is {num_classes}; at least two classes are needed")
        self.encoder = encoder
        self.classifier = nn.Linear(features, num_classes)
        self.register_buffer("temperature", torch.ones(1))

    def features(self, x: Tensor) -> Tensor:
        """Pooled features (B, features) of images (B, 1, H, W)."""
        return self.encoder(x)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, num_classes), not calibrated, as training needs them."""
        return self.classifier(self.features(x))

    def probabilities(self, logits: Tensor) -> Tensor:
        """Calibrated probabilities (B, num_classes): softmax of logits / temperature, in the same order."""
        return torch.softmax(logits / self.temperature, dim=1)
