"""Fit a trained model's temperature and keep it with the weights."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


def calibrate(
    network: nn.Module,
    loader: Iterable[Mapping[str, Any]],
    path: str | Path,
    fit: Callable[[Tensor, Tensor], float],
    error: Callable[[Tensor, Tensor], float],
) -> dict[str, float]:
    """Fit the network's ``temperature`` to images that it was not trained on, and save its weights.

    Args:
        network: a ClassifierNet with its weights.
        loader: batches with ``image`` (B, 1, H, W) and ``label`` (B,).
        path: file of weights to write, ``models/model.pt``.
        fit: (logits (n, C), labels (n,)) -> temperature.
        error: (probabilities (n, C), labels (n,)) -> expected calibration error.

    Returns:
        ``temperature``, and expected calibration error and mean negative log-likelihood before and after.
    """
    logits, labels = _logits(network, loader)
    before = _scores("before", torch.softmax(logits / network.temperature.cpu(), dim=1), labels, error)
    network.temperature.fill_(fit(logits, labels))
    after = _scores("after", torch.softmax(logits / network.temperature.cpu(), dim=1), labels, error)
    temporary = Path(path).with_suffix(".tmp")
    torch.save({name: tensor.cpu() for name, tensor in network.state_dict().items()}, temporary)
    temporary.replace(path)
    return {"temperature": float(network.temperature), **before, **after}


@torch.no_grad()
def _logits(network: nn.Module, loader: Iterable[Mapping[str, Any]]) -> tuple[Tensor, Tensor]:
    """Of all images, on the CPU."""
    device = next(network.parameters()).device
    network.eval()
    batches = [(network(batch["image"].to(device)).cpu(), batch["label"]) for batch in loader]
    logits, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    return logits, labels


def _scores(when: str, probabilities: Tensor, labels: Tensor, error: Callable[[Tensor, Tensor], float]) -> dict:
    likelihood = float(functional.nll_loss(probabilities.clamp(min=1e-12).log(), labels))
    return {f"ece_{when}": float(error(probabilities, labels)), f"nll_{when}": likelihood}
