"""Show where in an image a class was seen (Grad-CAM, Selvaraju et al. 2017)."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine, Events
from monai.visualize import GradCAM
from PIL import Image
from torch import Tensor, nn

from cxr_classifier.errors import BundleInputError
from cxr_classifier.files import HEAT_MAPS

LONG_SIDE = 512  # pixels of an overlay, at least
OPACITY = 0.5


class HeatMaps:
    """Map of how much each place of an image supports a class.

    Works on a copy of the network, because MONAI leaves hooks and gradients behind.

    Args:
        network: a ClassifierNet.
        layer: name of the module whose outputs are weighed; deeper ones are more specific, but coarser.

    Raises:
        BundleInputError: the network has no such layer.
    """

    def __init__(self, network: nn.Module, layer: str) -> None:
        if layer not in dict(network.named_modules()):
            raise BundleInputError(f"heat_map_layer is '{layer}', which the network does not have; use encoder.layer4")
        model = copy.deepcopy(network).eval()
        self.device = next(model.parameters()).device
        self.cam = GradCAM(model, target_layers=layer, postprocessing=lambda heat: heat)

    def __call__(self, image: Tensor, channel: int) -> Tensor:
        """Return (H, W) in [0, 1] on the CPU for an image (1, H, W) and the class of a channel.

        The strongest place is 1; all are 0 if none supports the class.
        """
        with torch.enable_grad():
            heat = _plain(self.cam(image[None].to(self.device), class_idx=channel))
        heat = heat[0, 0].detach().cpu().clamp(min=0)
        return heat / heat.max() if heat.max() > 0 else heat


class HeatMapWriter:
    """Write an overlay for each image that was classified: ``heat_maps/<path below the folder>.png``.

    It shows the image as the network saw it, on its square, and over it, from yellow to red, how much each place
    supported the predicted class. Places that did not support it have no colour.

    Args:
        network: a ClassifierNet, with the weights that it has when inference starts.
        output_dir: folder of the results.
        layer: see :class:`HeatMaps`.
        enabled: False = write nothing.
    """

    def __init__(self, network: nn.Module, output_dir: str | Path, layer: str, enabled: bool = True) -> None:
        self.network, self.folder, self.layer, self.enabled = network, Path(output_dir) / HEAT_MAPS, layer, enabled
        self.heat_maps: HeatMaps | None = None

    def attach(self, engine: Engine) -> None:
        """Add to an evaluator of an :class:`XrayDataset`."""
        if self.enabled:
            engine.add_event_handler(Events.STARTED, self.start)
            engine.add_event_handler(Events.ITERATION_COMPLETED, self.write)

    def start(self, engine: Engine) -> None:
        """Copy the network; its weights have been loaded by now."""
        self.heat_maps = HeatMaps(self.network, self.layer)

    def write(self, engine: Engine) -> None:
        """Write the overlays of a batch."""
        for case, output in zip(engine.state.batch, engine.state.output, strict=True):
            if case["error"]:
                continue
            image = _plain(case["image"])
            heat = self.heat_maps(image, int(output["pred"].argmax()))
            path = self.folder / f"{case['name']}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            overlay(image[0].cpu().numpy(), heat.numpy()).save(path)


def overlay(image: np.ndarray, heat: np.ndarray) -> Image.Image:
    """Draw heat (H, W) over an image (H, W), both in [0, 1]; the longer side becomes at least 512 pixels."""
    times = max(1, -(-LONG_SIDE // max(image.shape)))
    size = (image.shape[1] * times, image.shape[0] * times)
    grey, warm = _enlarged(image, size), _enlarged(heat, size)
    colour = np.stack([np.ones_like(warm), 1 - warm, np.zeros_like(warm)], axis=-1)  # yellow to red
    alpha = OPACITY * warm[..., None]
    mixed = (1 - alpha) * grey[..., None] + alpha * colour
    return Image.fromarray((mixed.clip(0, 1) * 255).round().astype(np.uint8))


def _enlarged(values: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    return np.asarray(Image.fromarray(values.astype(np.float32)).resize(size, Image.Resampling.BILINEAR))


def _plain(tensor: Any) -> Tensor:
    return tensor.as_tensor() if hasattr(tensor, "as_tensor") else tensor
