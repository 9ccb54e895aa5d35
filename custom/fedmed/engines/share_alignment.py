"""Pseudo-labels among which each class is as frequent as at labelled sites."""

from collections import deque

import torch
from torch import Tensor

from fedmed.losses.agreement_loss import all_classes, reweighed

WINDOW = 20  # batches whose probabilities are remembered: a patch says little of a site's images
SAMPLES = 4096  # voxels of a batch that are remembered, evenly spread
SWEEPS = 5  # over the classes, where there are more than two
WIDEST = 4.0  # of a weight's logarithm: weights between 1/55 and 55


class ShareAlignment:
    """Distribution alignment (ReMixMatch, arXiv 1911.09785), by how often a class is named (ours).

    By mean probabilities, as in that paper, the small probabilities of foreground in an image that is mostly background
    would decide. Each class has a weight, 1 for the first; :func:`reweighed` applies it. The weights are those with
    which the classes would have had the wanted shares among the voxels, or images, of the last batches: for two classes
    a quantile of their log-odds, for more one class after the other, a few times. They lie between 1/55 and 55, so a
    class that the model hardly knows is not forced upon it.

    Nothing of a round is used in the next: what another model needed would be wrong for this one (measured: with
    weights that went on, a site's model named 4 times too much in one round and 3 times too little in the next).

    Args:
        wanted: share of each class where labels are known, (C,), summing to 1.
    """

    def __init__(self, wanted: Tensor) -> None:
        self.wanted = wanted.float()
        self.log_weights = torch.zeros_like(self.wanted)
        self._window: deque[Tensor] = deque(maxlen=WINDOW)

    def __call__(self, p: Tensor) -> Tensor:
        """Remember the probabilities (B, C, ...), or (B, 1, ...) of class 1 of two, and return them reweighed."""
        self.note(p)
        return reweighed(p, self.log_weights.exp())

    def note(self, p: Tensor) -> None:
        """Remember a batch's probabilities, and find the weights again."""
        each = all_classes(p).movedim(1, -1).flatten(end_dim=-2)
        kept = torch.linspace(0, len(each) - 1, min(SAMPLES, len(each)), device=p.device).long()
        self._window.append(each[kept].clamp_min(1e-7).log())
        self.log_weights = self._weights(torch.cat(list(self._window)))

    def _weights(self, log_p: Tensor) -> Tensor:
        """Logarithms (C,) of the weights with which the classes have the wanted shares in (N, C)."""
        wanted = self.wanted.to(log_p)
        found = torch.zeros_like(wanted)
        for _ in range(SWEEPS if len(found) > 2 else 1):
            for c in range(1, len(found)):
                others = log_p + found
                others[:, c] = -torch.inf
                margin = others.amax(dim=1) - log_p[:, c]
                found[c] = margin.kthvalue(1 + int(wanted[c] * (len(margin) - 1))).values
        return found.clamp(-WIDEST, WIDEST)
