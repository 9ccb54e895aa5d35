"""FedAS at a site: what it received is drawn to what it had, and it tells how far its images still move the model."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedmed.errors import FedMedError
from fedmed.in_range import in_range
from fedmed.systems.fedas.method import TRACE
from fedmed.training.corrections.correction import Correction, Parameters, RoundStart, check_kept
from fedmed.training.trainer import plain_batch

log = logging.getLogger("fedmed.site")
LEAST = 1e-12  # a weight must be above 0, and a model that fits all labels has no gradient


class PrototypeAlignment(Correction):
    """Alignment before a round's training, and a weight after it (FedAS: Yang, Huang, Ye, CVPR 2024, Algorithm 1).

    Before the first step the shared layers as the site had them at the end of its last round, its old encoder, give
    the mean of each class's features, m_c. The received ones then take one pass of gradient descent over the same
    batches, towards ``Σ_c MSE(features of class c, m_c)``. In a site's first round it has no old encoder, and nothing
    is aligned. After the last step the trace of the Fisher information of all that was trained, in eval mode, ::

        fim_trace = Σ over batches of ‖∇ mean NLL‖²

    leaves as ``fim_trace``, above 0; the server weighs sites by it. All of it in float32 or more, whatever ``amp`` is.

    Args:
        network: gives logits (B, C, ...) of images.
        features: images -> (B, D) or (B, D, h, w), by layers of the network that the site sends.
        batches: of the site's labelled training images, of which each iteration gives the same; best not augmented.
        prepare_batch: as an engine's, of one class for each image or pixel.
        rate: of the alignment, 0 or more; 0 leaves it out.

    Raises:
        JobError: the rate is not such a number.
    """

    def __init__(
        self,
        network: nn.Module,
        features: Callable[[Tensor], Tensor],
        batches: Iterable[Mapping[str, Any]],
        prepare_batch: Callable[..., Any] = plain_batch,
        rate: float = 0.01,
    ) -> None:
        self.network, self.features, self.batches, self.prepare_batch = network, features, batches, prepare_batch
        self.rate = in_range("rate", rate, least=0)
        self._old: dict[str, Tensor] = {}
        self._trace: float | None = None

    def begin(self, start: RoundStart) -> None:
        """Align what was received.

        Raises:
            StateError: the kept encoder is of another network.
            FedMedError: labels are not one class an image or pixel.
        """
        check_kept(self._old, start.received, "layers of its last round")
        self._shared, self._before_batch = sorted(start.shared), start.before_batch
        if not self._old:
            log.info("this site has no layers of an earlier round yet; nothing is aligned")
        elif self.rate:
            self._align(self._prototypes(start.received), start.shared_parameters())

    def end(self, parameters: Parameters) -> None:
        tensors = self.network.state_dict()
        self._old = {name: tensors[name].detach().cpu().clone() for name in self._shared}
        with torch.enable_grad():
            self._trace = max(self._fisher([p for p in parameters.values() if p.requires_grad]), LEAST)

    def extras(self) -> dict[str, Any]:
        return {} if self._trace is None else {TRACE: self._trace}

    def state_dict(self) -> dict[str, Any]:
        return {"old": dict(self._old)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._old = dict(state_dict["old"])

    @torch.no_grad()
    def _prototypes(self, received: Mapping[str, Tensor]) -> dict[int, Tensor]:
        """m_c of the old encoder; the network is left as it was received."""
        self._load(self._old)
        self.network.eval()
        sums = PrototypeSums()
        for rows, classes in self._by_place(self.features):
            sums.add(rows, classes)
        self._load({name: received[name] for name in self._shared})
        return sums.means()

    def _align(self, prototypes: Mapping[int, Tensor], shared: Collection[str]) -> None:
        parameters = [p for name, p in self.network.named_parameters() if name in shared and p.requires_grad]
        optimizer = torch.optim.SGD(parameters, lr=self.rate)
        self.network.train()
        for rows, classes in self._by_place(self.features):
            loss = alignment_loss(rows, classes, prototypes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        optimizer.zero_grad()  # what follows begins with no gradient

    def _fisher(self, parameters: list[nn.Parameter]) -> float:
        self.network.eval()
        total = 0.0
        for logits, classes in self._by_place(self.network):
            loss = F.cross_entropy(logits, classes)
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
            total += float(sum(g.double().square().sum() for g in gradients if g is not None))
        self.network.train()
        return total

    def _by_place(self, compute: Callable[[Tensor], Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """See :func:`features_by_place`; of each batch, in float32 or more."""
        device = next(self.network.parameters()).device
        for batch in self.batches:
            self._before_batch()
            images, labels = self.prepare_batch(batch, device)
            values = compute(images)
            yield features_by_place(values.to(torch.promote_types(values.dtype, torch.float32)), labels)

    def _load(self, tensors: Mapping[str, Tensor]) -> None:
        current = self.network.state_dict()
        with torch.no_grad():
            for name, tensor in tensors.items():
                current[name].copy_(tensor)


def features_by_place(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the features of every place that has a class, (N, D), and these classes, (N,) int64.

    Args:
        features: of images (B, D), or maps (B, D, h, w, ...).
        labels: whole numbers, (B,); of maps (B, H, W, ...) or (B, 1, H, W, ...) of any size: each place of a map gets
            the class of the pixel at its middle. Places below 0 are left out.

    Raises:
        FedMedError: labels that are not one class an image, or a pixel, of these features.
    """
    labels = labels[:, 0] if labels.ndim == features.ndim and labels.shape[1:2] == (1,) else labels
    if labels.is_floating_point() or labels.ndim != features.ndim - 1 or len(labels) != len(features):
        raise FedMedError(
            f"features {tuple(features.shape)} and labels {tuple(labels.shape)} of {labels.dtype}: a prototype needs "
            "one class, a whole number, for each image or pixel"
        )
    if features.ndim > 2 and labels.shape[1:] != features.shape[2:]:
        smaller = F.interpolate(labels[:, None].double(), features.shape[2:], mode="nearest-exact")
        labels = smaller[:, 0].long()
    rows, classes = features.movedim(1, -1).flatten(0, -2), labels.flatten().long()
    return rows[classes >= 0], classes[classes >= 0]


class PrototypeSums:
    """Adds up features by class, in float64."""

    def __init__(self) -> None:
        self._sums: dict[int, Tensor] = {}
        self._counts: dict[int, int] = {}

    def add(self, rows: Tensor, classes: Tensor) -> None:
        """Count features (N, D) of classes (N,)."""
        for label in classes.unique().tolist():
            features = rows[classes == label].double()
            self._sums[label] = self._sums.get(label, torch.zeros_like(features[0])) + features.sum(dim=0)
            self._counts[label] = self._counts.get(label, 0) + len(features)

    def means(self) -> dict[int, Tensor]:
        """Class -> its prototype (D,), float64, of every class that occurred."""
        return {label: total / self._counts[label] for label, total in sorted(self._sums.items())}


def alignment_loss(rows: Tensor, classes: Tensor, prototypes: Mapping[int, Tensor]) -> Tensor:
    """Return Σ_c MSE(features of class c, m_c), the mean over its features and their D numbers.

    ``rows`` are (N, D), ``classes`` (N,), ``prototypes`` class -> m_c (D,); a class without one adds nothing.
    """
    loss = rows.sum() * 0
    for label in classes.unique().tolist():
        if label in prototypes:
            loss = loss + (rows[classes == label] - prototypes[label].to(rows)).square().mean()
    return loss
