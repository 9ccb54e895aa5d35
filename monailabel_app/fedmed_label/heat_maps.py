"""Map of where a classifier saw the class that it predicts: a picture for a reader, not a label."""

import os
import tempfile
from typing import Any

import numpy as np
import torch
from monai.visualize import GradCAM
from PIL import Image
from torch import Tensor, nn

LONG_SIDE = 512  # pixels of the picture, at least
OPACITY = 0.5


def heat_map(network: nn.Module, image: Any, channel: int, layer: str) -> np.ndarray:
    """Map of how much each place of an image supports a class (Grad-CAM, Selvaraju et al. 2017).

    Args:
        network: a classifier, with its weights.
        image: (C, H, W), as the network sees it.
        channel: of the class.
        layer: name of the module whose output is weighed.

    Returns:
        (H, W) float32 in [0, 1]; all zeros if no place supports the class.
    """
    batch = torch.as_tensor(image)[None].float().to(next(network.parameters()).device)
    with torch.enable_grad():
        cam = GradCAM(network, target_layers=layer, postprocessing=lambda x: x)
        heat = torch.as_tensor(cam(batch, class_idx=channel))[0, 0].detach().clamp(min=0).cpu()
    network.zero_grad()
    return (heat / heat.max() if heat.max() > 0 else heat).numpy().astype(np.float32)


def write_overlay(image: Any, heat: np.ndarray) -> str:
    """Draw heat (H, W) over an image (C, H, W) in [0, 1] and return the PNG's path.

    Three channels are shown in colour, of any other number the first. The picture is never transposed: a bundle whose
    reader gives (W, H) gets a turned picture.
    """
    image = torch.as_tensor(image).cpu()
    channels = image if len(image) == 3 else image[:1].expand(3, *image.shape[1:])
    times = max(1, -(-LONG_SIDE // max(heat.shape)))
    shown = np.stack([_enlarged(channel, times) for channel in channels], axis=-1)
    warm = _enlarged(heat, times)
    colour = np.stack([np.ones_like(warm), 1 - warm, np.zeros_like(warm)], axis=-1)  # yellow to red
    alpha = OPACITY * warm[..., None]
    mixed = ((1 - alpha) * shown + alpha * colour).clip(0, 1)
    handle, path = tempfile.mkstemp(suffix=".png")
    with os.fdopen(handle, "wb") as stream:
        Image.fromarray((mixed * 255).round().astype(np.uint8)).save(stream, "PNG")
    return path


def _enlarged(values: np.ndarray | Tensor, times: int) -> np.ndarray:
    size = (values.shape[1] * times, values.shape[0] * times)
    return np.asarray(Image.fromarray(np.asarray(values, np.float32)).resize(size, Image.Resampling.BILINEAR))
