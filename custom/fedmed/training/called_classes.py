"""What a model calls on images without labels, before and after a change: whether the change is to be trusted.

Two signs need no label: how sure the model is (the entropy of its probabilities), and which classes it calls at all.
An adaptation after which one class alone is called, or after which the model is clearly less sure and calls no more
classes than before, has rather hurt. The opposite proves nothing: a model may be sure and wrong.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

RARE = 0.01  # share of images below which a class counts as not called
CLEARLY = 0.05  # rise of the mean entropy, of the largest that there is, from which on a model is less sure
TINY = 1e-12
TOLERANCE = 1e-3  # of a sum of probabilities


@dataclass(frozen=True)
class Called:
    """What a model calls on a list of images.

    Attributes:
        entropy: mean over images, of the largest that there is: 0 = sure of everything, 1 = knows nothing.
        shares: of images in which each class is called, in the order of the channels.
    """

    entropy: float
    shares: tuple[float, ...]

    @property
    def classes(self) -> int:
        """How many classes are called in more than a few images."""
        return sum(share >= RARE for share in self.shares)

    @property
    def spread(self) -> float:
        """How evenly the classes are called: entropy of the shares, of the largest that there is, 0 to 1."""
        total = sum(self.shares)
        parts = [share / total for share in self.shares if share > 0]
        return -sum(part * math.log(part) for part in parts) / math.log(max(2, len(self.shares)))


def entropy(probabilities: Tensor, several: bool = False) -> float:
    """Entropy of the probabilities of one image, the mean over its voxels if it has some, of the largest that there is.

    Args:
        probabilities: (C, ...), which sum to 1 over C.
        several: classes may be there at once: each channel is a probability of its own.
    """
    values = probabilities.double().clamp(TINY, 1)
    if several:
        other = (1 - probabilities.double()).clamp(TINY, 1)
        return float(-(values * values.log() + other * other.log()).mean() / math.log(2))
    return float(-(values * values.log()).sum(dim=0).mean() / math.log(max(2, len(values))))


def classes_called(probabilities: Tensor, several: bool = False) -> Tensor:
    """Which classes are called in one image: the likeliest, of a voxel likewise; (C,) bool.

    Args:
        probabilities, several: as of :func:`entropy`; of ``several`` each from 0.5 on.
    """
    if several:
        return (probabilities >= 0.5).reshape(len(probabilities), -1).any(dim=1).cpu()
    likeliest = probabilities.argmax(dim=0).flatten().unique()
    found = torch.zeros(len(probabilities), dtype=torch.bool)
    found[likeliest.cpu()] = True
    return found


def called(images: Iterable[tuple[float, Tensor]]) -> Called:
    """What is called on all images together.

    Args:
        images: of each what :func:`entropy` and :func:`classes_called` say; at least one.
    """
    entropies, marked = zip(*images, strict=True)
    shares = torch.stack([one.double() for one in marked]).mean(dim=0)
    return Called(sum(entropies) / len(entropies), tuple(shares.tolist()))


def probabilities(network: nn.Module, logits: Tensor) -> Tensor:
    """Probabilities (B, C, ...) of logits: by ``network.probabilities`` where the network has it, else by softmax."""
    own: Callable[[Tensor], Tensor] | None = getattr(network, "probabilities", None)
    return own(logits) if own else logits.softmax(dim=1)


@torch.no_grad()
def called_by(network: nn.Module, infer: Callable[[Tensor], Any], batches: Iterable[Tensor]) -> Called | None:
    """What a network calls.

    Args:
        network: in its mode for inference.
        infer: the network itself, or what shows it large images by windows.
        batches: of images (B, C, ...), at least one, on the network's device.

    Returns:
        None where it says nothing of single images, as a network that needs whole videos.
    """
    found = []
    for images in batches:
        logits = infer(images)
        if not isinstance(logits, Tensor) or logits.ndim < 2 or len(logits) != len(images) or logits.shape[1] < 2:
            return None
        values = probabilities(network, logits.float())
        several = bool(((values.sum(dim=1) - 1).abs() > TOLERANCE).any())
        found += [(entropy(one, several), classes_called(one, several)) for one in values]
    return called(found)


def objection(before: Called, after: Called) -> str:
    """Why a change is rather not to be made, as the end of a sentence; empty where nothing speaks against it."""
    if after.classes <= 1 < before.classes:
        return f"the model then calls one class alone, where it called {before.classes} before"
    # A model that took nearly everything for one class was too sure: where it now tells classes apart, it is right
    # that it is less sure.
    less_sure = after.entropy > before.entropy + CLEARLY and after.spread <= before.spread
    if before.classes > 1 and less_sure:
        said = f"mean entropy {after.entropy:.2f} of 1, {before.entropy:.2f} before"
        return f"the model is then less sure ({said}) and spreads its calls over no more classes"
    return ""
