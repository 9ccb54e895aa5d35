"""Training of one part of the weights without labels, beside models of similar sites (Jeong et al. 2021)."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedmed.engines.pseudo_label_trainer import PseudoLabelTrainer
from fedmed.losses.helper_loss import helped_loss, helper_divergence, vote
from fedmed.networks.decomposed import Decomposed

HELPERS, ANSWER = "helpers", "noise_answer"
MEAN = SPREAD = 125 / 255  # of the noise, in the range of images


class HelpedEngine(PseudoLabelTrainer):
    """A site without labels trains ψ, with σ frozen, of images of whose class its model is sure (arXiv 2006.12097).

    Of these its prediction shall be that of its helpers, models of this site's σ and another site's ψ; and its
    prediction of a strong view of them the class that most of all these models name. Helpers come every some rounds and
    serve until others come; without them only its own vote counts.

    Args:
        args, kwargs: as in :class:`PseudoLabelTrainer`; ``unlabelled_weight`` is a factor of all that is minimised. The
            network is a :class:`fedmed.networks.decomposed.Decomposed` of logits (B, C).
        confidence: largest probability from which on an image counts.
        agree_weight, learn_weight: λ_i and λ_a, of agreement with helpers and of the vote.
        size_weight, distance_weight: λ_1 and λ_2, of ‖ψ‖₁ and of ‖σ − ψ‖².

    ``engine.state.output`` also has the shares of images that count (``sure_fraction``) and of the most frequent vote
    (``commonest_fraction``), ``helper_divergence``, the mean of KL over all images, and ``psi_share``, the share of the
    entries of ψ that are not as good as 0.
    """

    network: Decomposed

    def __init__(
        self,
        *args: Any,
        confidence: float = 0.75,
        agree_weight: float = 1e-2,
        learn_weight: float = 1e-2,
        size_weight: float = 1e-3,
        distance_weight: float = 10.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.confidence, self.agree_weight, self.learn_weight = confidence, agree_weight, learn_weight
        self.size_weight, self.distance_weight = size_weight, distance_weight
        self.helpers: list[dict[str, Tensor]] = []
        self._answer: dict[str, float | Tensor] = {}
        self._shape: torch.Size | None = None

    def receive(self, extras: Mapping[str, Any]) -> None:
        """Take new helpers, if some came.

        Raises:
            JobError: something else came too.
        """
        super().receive({name: value for name, value in extras.items() if name != HELPERS})
        if HELPERS in extras:
            self.helpers = [dict(psi) for psi in extras[HELPERS]]

    def state_dict(self) -> dict[str, Any]:  # type: ignore[override] # as in StatefulTrainer
        """What must outlive a round: also the helpers."""
        return super().state_dict() | ({HELPERS: self.helpers} if self.helpers else {})

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        super().load_state_dict(state_dict)
        self.helpers = [dict(psi) for psi in state_dict.get(HELPERS, [])]

    def run(self) -> None:  # type: ignore[override] # as in StatefulTrainer
        """Train ``max_epochs`` epochs; then answer the picture of noise."""
        super().run()
        if self._shape is not None:
            picture = noise(self._shape).to(self.state.device)
            self._answer = {ANSWER: self.predicted(picture, self.network).softmax(dim=1)[0].cpu()}

    def extras(self) -> dict[str, float | Tensor]:
        """What the trained model says of the picture of noise, (C,) probabilities."""
        return self._answer

    def targets(self, images: Tensor) -> tuple[tuple[Tensor, Tensor, Tensor], dict[str, Tensor]]:
        """Helpers' probabilities (H, B, C), votes (B,) and which images count (B,)."""
        own = self.pseudo_label(images)
        helpers = self._helped(images, own)
        counts, classes = own.softmax(dim=1).amax(dim=1) >= self.confidence, vote(own, helpers)
        self._shape = images.shape[1:]
        scalars = {
            "sure_fraction": counts.float().mean(),
            "commonest_fraction": classes.bincount().max() / len(classes),
            "helper_divergence": helper_divergence(own, helpers).mean(),
            "psi_share": self.network.share(),
        }
        return (helpers, classes, counts), scalars

    def student_view(self, images: Tensor, batchdata: Mapping[str, Any]) -> Tensor:
        """The images as they came, and strong views of them: (2 B, ...)."""
        return torch.cat([images, super().student_view(images, batchdata)])

    def unlabelled_loss(self, q: Tensor, targets: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """The loss of logits (2 B, C), in float32 whatever ``amp`` is, and of ψ."""
        weak, strong = q.float().chunk(2)
        loss = helped_loss(weak, strong, *targets, self.agree_weight, self.learn_weight)
        return loss + self.size_weight * self.network.size() + self.distance_weight * self.network.distance()

    @torch.no_grad()
    def _helped(self, images: Tensor, own: Tensor) -> Tensor:
        self.network.eval()
        found = [self.network.with_psi(images, psi).float().softmax(dim=1) for psi in self.helpers]
        return torch.stack(found) if found else own.new_empty(0, *own.shape)


def noise(shape: torch.Size) -> Tensor:
    """The picture of noise, the same at all sites: (1, 3, H, W), normal, cut off to [0, 1]."""
    drawn = torch.randn(1, *shape, generator=torch.Generator().manual_seed(0))
    return (MEAN + SPREAD * drawn).clamp_(0, 1)
