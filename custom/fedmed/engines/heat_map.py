"""Where in an image a classifier sees the class that it predicts."""

import copy

import torch
from monai.visualize import GradCAM
from torch import Tensor, nn

from fedmed.errors import FedMedError


def heat_map(network: nn.Module, image: Tensor, label: int, layer: str) -> Tensor:
    """Grad-CAM (Selvaraju et al. 2017): how much each place of a layer's output raises the logit of a class.

    Args:
        network: gives logits (1, C). A copy of it is used, because MONAI leaves hooks and gradients behind.
        image: (1, H, W), or (1, X, Y, Z) of a volume.
        label: place of the class.
        layer: name of the module whose output is weighed, such as the encoder's last stage.

    Returns:
        Of the image's shape without its channel, float32 on the CPU, 0 to 1, the largest 1; all 0 where nothing raises
        the logit.

    Raises:
        FedMedError: the network has no such layer.
    """
    if layer not in dict(network.named_modules()):
        raise FedMedError(f"heat map: {type(network).__name__} has no layer '{layer}'; name one in target_layer")
    model = copy.deepcopy(network).eval().requires_grad_(True)  # a frozen layer has no gradient
    device = next(model.parameters()).device
    with torch.enable_grad():
        heat = GradCAM(model, layer, postprocessing=lambda heat: heat)(image[None].to(device), class_idx=label)
    heat = heat[0, 0].detach().cpu().float().clamp(min=0)
    return heat / heat.max() if heat.max() > 0 else heat


def hottest_slice(image: Tensor, heat: Tensor) -> tuple[Tensor, Tensor]:
    """Image and heat map as a picture each.

    Args:
        image, heat: (H, W), which are returned as they are; or (X, Y, Z) of a volume with axes R, A, S.

    Returns:
        (H, W) each; of a volume the slice with the most heat, front up and the patient's right side at the left.
    """
    if image.ndim == 2:
        return image, heat
    place = int(heat.sum(dim=(0, 1)).argmax())
    return image[..., place].T.flip(0, 1), heat[..., place].T.flip(0, 1)
