"""Show where in an image a class was seen (GradCAM, Selvaraju et al. 2017)."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine, Events
from monai.visualize import GradCAM
from PIL import Image
from torch import Tensor, nn

from cxr_classifier.files import HEAT_MAPS

LONG_SIDE = 512  # pixels of an overlay, at least
OPACITY = 0.5


class HeatMapWriter:
    """Write an overlay for each image that was classified: ``heat_maps/<path below the folder>.png``.

    Shown is the image as the network saw it (on its square), and over it, from yellow to red, how much each place
    spoke for the predicted class. Where nothing did, there is no colour.

    Args:
        network: a ClassifierNet.
        output_dir: folder of the results.
        layer: module whose outputs are weighed; deeper ones know more, and have fewer places.
        enabled: False = write nothing.
    """

    def __init__(self, network: nn.Module, output_dir: str | Path, layer: str, enabled: bool = True) -> None:
        self.network, self.folder, self.layer, self.enabled = network, Path(output_dir) / HEAT_MAPS, layer, enabled

    def attach(self, engine: Engine) -> None:
        if self.enabled:
            engine.add_event_handler(Events.ITERATION_COMPLETED, self)

    def __call__(self, engine: Engine) -> None:
        for case in engine.state.output:
            if case["error"]:
                continue
            image = _plain(case["image"])
            heat = heat_map(self.network, image, int(case["pred"].argmax()), self.layer)
            path = self.folder / f"{case['name']}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            overlay(image[0].cpu().numpy(), heat.cpu().numpy()).save(path)


def heat_map(network: nn.Module, image: Tensor, channel: int, layer: str) -> Tensor:
    """How much each place of an image (1, H, W) speaks for a class.

    Returns:
        (H, W) in [0, 1]; the strongest place is 1, all zeros where no place speaks for the class.
    """
    device = next(network.parameters()).device
    with torch.enable_grad():
        cam = GradCAM(network, target_layers=layer, postprocessing=lambda x: x)
        heat = _plain(cam(image[None].to(device), class_idx=channel))[0, 0].detach().clamp(min=0)
    network.zero_grad()
    return heat / heat.max() if heat.max() > 0 else heat


def overlay(image: np.ndarray, heat: np.ndarray) -> Image.Image:
    """Paint heat (H, W) over an image (H, W), both in [0, 1], with a long side of at least 512 pixels."""
    times = max(1, -(-LONG_SIDE // max(image.shape)))
    size = (image.shape[1] * times, image.shape[0] * times)
    grey, warm = (
        np.asarray(Image.fromarray(a.astype(np.float32)).resize(size, Image.Resampling.BILINEAR)) for a in (image, heat)
    )
    colour = np.stack([np.ones_like(warm), 1 - warm, np.zeros_like(warm)], axis=-1)  # yellow to red
    alpha = OPACITY * warm[..., None]
    mixed = (1 - alpha) * grey[..., None] + alpha * colour
    return Image.fromarray((mixed.clip(0, 1) * 255).round().astype(np.uint8))


def _plain(tensor: Any) -> Tensor:
    return tensor.as_tensor() if hasattr(tensor, "as_tensor") else tensor
