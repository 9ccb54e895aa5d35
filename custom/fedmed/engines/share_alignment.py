"""Pseudo-labels among which each class is as frequent as at labelled sites."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedmed.losses.agreement_loss import all_classes, reweighed

MEMORY = 0.95  # of the classes' shares, in each batch: a patch says little of a site's images
RATE = 0.1  # of the weights' logarithms, in each batch
STEEPEST = 1.0  # what counts of the logarithm of wanted / seen
WIDEST = 4.0  # of a weight's logarithm: weights between 1/55 and 55
LEAST = 1e-5  # share of a class that is not seen


class ShareAlignment:
    """Distribution alignment (ReMixMatch, arXiv 1911.09785), by how often a class is named (ours).

    By mean probabilities, as in that paper, the small probabilities of foreground in an image that is mostly background
    would decide. A class c has a weight w, 1 at first; :func:`reweighed` applies it. With s its share among the voxels,
    or images, a moving mean over batches that starts at the wanted share, each batch then changes it::

        log w  <-  log w + 0.1 · clamp(log(wanted / s), -1, 1)

    relative to the first class and within ±4. So a model that names a class too often needs to be surer of it.

    Args:
        wanted: share of each class where labels are known, (C,), summing to 1.
    """

    def __init__(self, wanted: Tensor) -> None:
        self.wanted = wanted.float().clamp_min(LEAST)
        self.seen, self.log_weights = self.wanted.clone(), torch.zeros_like(self.wanted)

    def __call__(self, p: Tensor) -> Tensor:
        """Return the probabilities (B, C, ...), or (B, 1, ...) of class 1 of two, reweighed; and remember the batch."""
        self.wanted, self.seen, self.log_weights = (t.to(p.device) for t in (self.wanted, self.seen, self.log_weights))
        drawn = reweighed(p, self.log_weights.exp())
        named = all_classes(drawn).argmax(dim=1)
        share = torch.stack([(named == c).float().mean() for c in range(len(self.wanted))])
        self.seen = torch.lerp(share, self.seen, MEMORY)
        missing = (self.wanted / self.seen.clamp_min(LEAST)).log().clamp(-STEEPEST, STEEPEST)
        moved = self.log_weights + RATE * missing
        self.log_weights = (moved - moved[0]).clamp(-WIDEST, WIDEST)
        return drawn

    def state(self) -> dict[str, Tensor]:
        """What must outlive a round."""
        return {"seen": self.seen.cpu(), "log_weights": self.log_weights.cpu()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Inverse of :meth:`state`; of other classes it is left out."""
        if state["seen"].shape == self.wanted.shape:
            self.seen, self.log_weights = state["seen"], state["log_weights"]
