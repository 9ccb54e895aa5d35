"""Training on images without labels where the local model and the labelled sites' mean agree."""

import copy
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from ignite.engine import Events
from torch import Tensor, nn

from fedmed.errors import JobError
from fedmed.systems.agreement.loss import AgreementLoss, agreed, all_classes, likeliest, reweighed
from fedmed.training.unlabelled import PseudoLabelTrainer

MEAN, GATE, SHARES = "labelled_mean", "gate", "class_shares"  # what the server's rule sends
AHEAD = 10  # batches that are looked at before the first step of a round, to align to the classes' shares
WINDOW = 20  # batches whose probabilities are remembered: a patch says little of a site's images
SAMPLES = 4096  # voxels of a batch that are remembered, evenly spread
SWEEPS = 5  # over the classes, where there are more than two
WIDEST = 4.0  # of a weight's logarithm: weights between 1/55 and 55


class AgreementEngine(PseudoLabelTrainer):
    """After Zhang et al. 2023 (IEEE TMI, DOI 10.1109/TMI.2023.3314430), without its prototypes and its contrast.

    Two models look at the patch: the local one, or its teacher, and the mean of the labelled sites, which is frozen.
    Where they name the same class, the student learns it from its own view of the patch. With ``flips`` (ours) each of
    the two sees a random mirror image of the patch, so what they say does not depend on how it lies. The model that
    came is the labelled sites' mean where the server sends no other; without a gate every voxel on which both agree
    counts. With the shares of the classes at labelled sites, the probabilities of each of the two are first drawn
    towards them, see :class:`ShareAlignment`.

    Args:
        args, kwargs: as in :class:`PseudoLabelTrainer`. The inferer returns probabilities (B, C, ...), or (B, 1, ...)
            of class 1 of two. Batches may have ``strong``, the student's view of ``image``, of the same shape.
        agreement_loss: called with the student's probabilities and what :func:`agreed` returned.
        flips: spatial axes, counted from 0, along which a patch may be flipped for a model that makes pseudo-labels;
            the probabilities of voxels are flipped back.
        agree: whether the labelled sites' mean must agree; if not, it is a training with a teacher, or with itself.

    ``engine.state.output`` also has the shares, 0 to 1, of voxels, or images, that count (``agreed_fraction``), and of
    voxels that the local model takes for another class than the first (``foreground_fraction``).
    """

    def __init__(
        self,
        *args: Any,
        agreement_loss: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None,
        agree: bool = True,
        flips: Sequence[int] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.agreement_loss, self.agree, self.flips = agreement_loss or AgreementLoss(), agree, tuple(flips)
        self.frozen: nn.Module | None = None
        self.gate: Tensor | None = None
        self._alignments: dict[str, ShareAlignment] = {}
        self._mean: Mapping[str, Tensor] = {}
        self._counted, self._batches = torch.zeros(()), 0

    def receive(self, extras: Mapping[str, Any]) -> None:
        """Take the labelled sites' mean, without what is private at this site, and what they tell of their labels."""
        super().receive({name: value for name, value in extras.items() if name not in (MEAN, GATE, SHARES)})
        self._mean, self.gate = extras.get(MEAN, {}), extras.get(GATE)
        if SHARES in extras:
            self._alignments = {model: ShareAlignment(extras[SHARES]) for model in ("local", "labelled")}

    def run(self) -> None:  # type: ignore[override] # as in StatefulTrainer
        """Train ``max_epochs`` epochs; private layers of the frozen model are this site's own."""
        if self.agree:
            self.frozen = copy.deepcopy(self.network).requires_grad_(False)
            if unknown := self.frozen.load_state_dict(dict(self._mean), strict=False).unexpected_keys:
                raise JobError(f"the labelled sites' mean has '{unknown[0]}', which this site's network has not")
        with self.add_event_handler(Events.STARTED, self._look_ahead):
            super().run()

    def _look_ahead(self) -> None:
        """Let the alignments see some batches before anything is learned from them."""
        for batch in islice(self.data_loader, AHEAD if self._alignments else 0):
            images, _ = self.prepare_batch(batch, self.state.device, self.non_blocking)
            self._both(images)

    def extras(self) -> dict[str, float | Tensor]:
        return {"agreed_share": float(self._counted) / max(1, self._batches)}

    def student_view(self, images: Tensor, batchdata: Mapping[str, Any]) -> Tensor:
        """``strong`` of the batch, or else the patch, changed by ``augment``."""
        if "strong" in batchdata:
            view, _ = self.prepare_batch({"image": batchdata["strong"]}, self.state.device, self.non_blocking)
            images = view.to(images)
        return super().student_view(images, batchdata)

    def targets(self, images: Tensor) -> tuple[tuple[Tensor, Tensor], dict[str, Tensor]]:
        """Probabilities of each voxel's classes, and whether it counts."""
        local, labelled = self._both(images)
        p, counts = agreed(local, labelled, self.gate)
        share = counts.float().mean()
        self._counted, self._batches = self._counted.to(share) + share, self._batches + 1
        scalars = {"agreed_fraction": share}
        if counts.ndim > 1:  # of an image's class nobody says foreground
            scalars["foreground_fraction"] = (likeliest(all_classes(local)) > 0).float().mean()
        return (p, counts), scalars

    def _both(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities of the local model and of the labelled sites' mean, aligned."""
        local = self._aligned(self.pseudo_label(images), "local")
        if self.frozen is not None:
            return local, self._aligned(self.predicted(images, self.frozen), "labelled")
        return local, self._aligned(self.pseudo_label(images), "local") if self.flips else local

    def predicted(self, images: Tensor, model: nn.Module) -> Tensor:
        """As in :class:`PseudoLabelTrainer`, of a random mirror image."""
        axes = [2 + axis for axis in self.flips if torch.rand(()) < 0.5]
        p = super().predicted(images.flip(axes) if axes else images, model)
        return p.flip(axes) if axes and p.ndim == images.ndim else p

    def _aligned(self, p: Tensor, model: str) -> Tensor:
        return self._alignments[model](p) if model in self._alignments else p

    def unlabelled_loss(self, q: Tensor, targets: tuple[Tensor, Tensor]) -> Tensor:
        return self.agreement_loss(q, *targets)


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
        log_weights = torch.zeros_like(wanted)
        for _ in range(SWEEPS if len(log_weights) > 2 else 1):
            for c in range(1, len(log_weights)):
                others = log_p + log_weights
                others[:, c] = -torch.inf
                margin = others.amax(dim=1) - log_p[:, c]
                log_weights[c] = margin.kthvalue(1 + int(wanted[c] * (len(margin) - 1))).values
        return log_weights.clamp(-WIDEST, WIDEST)
