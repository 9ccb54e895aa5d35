"""FedMatch at the sites: weights of two parts, and helpers that agree."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from fedmed.errors import FedMedError, JobError
from fedmed.training.unlabelled import PseudoLabelTrainer

HELPERS, ANSWER = "helpers", "noise_answer"
MEAN = SPREAD = 125 / 255  # of the noise, in the range of images
PARTS = ("sigma", "psi")
PSI = "psi."  # begins the names of that part's tensors


def noise(shape: torch.Size) -> Tensor:
    """The picture of noise, the same at all sites: (1, 3, H, W), normal, cut off to [0, 1]."""
    drawn = torch.randn(1, *shape, generator=torch.Generator().manual_seed(0))
    return (MEAN + SPREAD * drawn).clamp_(0, 1)


def helper_divergence(logits: Tensor, helpers: Tensor) -> Tensor:
    """``mean_h KL(p_h || p)`` of each image, (B,); 0 without helpers.

    ``logits`` (B, C) are the site's own model's, ``helpers`` probabilities (H, B, C), constant.
    """
    if not len(helpers):
        return logits.new_zeros(len(logits))
    log_p = logits.log_softmax(dim=1).expand_as(helpers)
    return F.kl_div(log_p, helpers, reduction="none").sum(dim=2).mean(dim=0)


def vote(logits: Tensor, helpers: Tensor) -> Tensor:
    """The class (B,) that most models name, of equal numbers the first; of logits (B, C) and the helpers' (H, B, C)."""
    named = torch.cat([logits[None], helpers]).argmax(dim=2)
    return F.one_hot(named, logits.shape[1]).sum(dim=0).argmax(dim=1)


def helper_loss(
    weak: Tensor, strong: Tensor, helpers: Tensor, classes: Tensor, counts: Tensor, agree: float, learn: float
) -> Tensor:
    """``agree · mean_h KL(p_h || p) + learn · CE(vote, p_strong)``, mean over the images that count; 0 without any.

    Args:
        weak, strong: logits (B, C) of the image as it came and of its strong view.
        helpers: see :func:`helper_divergence`.
        classes: votes (B,).
        counts: (B,) bool.
        agree, learn: λ_i and λ_a.
    """
    terms = agree * helper_divergence(weak, helpers) + learn * F.cross_entropy(strong, classes, reduction="none")
    return (terms * counts).sum() / counts.sum().clamp(min=1)


class Decomposed(nn.Module):
    """θ = σ + ψ: ``sigma``, which sites with labels train, and ``psi``, which sites without do (arXiv 2006.12097).

    Every parameter has both parts; statistics of BatchNorm belong to ``sigma`` (ours). In eval mode entries of ψ that
    are nearly 0 count as 0.

    Args:
        network: becomes ``sigma``.
        ratio: ψ begins as this times σ.
        threshold: in eval mode entries with \\|ψ\\| up to this count as 0; at least 0.
        trains: ``sigma`` or ``psi``: the other part is frozen; None = both may be trained.

    Raises:
        FedMedError: a value outside its range.
    """

    def __init__(
        self, network: nn.Module, ratio: float = 0.2, threshold: float = 1e-5, trains: str | None = None
    ) -> None:
        super().__init__()
        if trains not in (None, *PARTS):
            raise FedMedError(f"Decomposed: trains is {trains!r}; use {' or '.join(PARTS)}, or null")
        if threshold < 0:
            raise FedMedError(f"Decomposed: threshold is {threshold}; use 0 or more")
        self.sigma, self.psi, self.threshold = network, _parameters(network, ratio), threshold
        for part in PARTS:
            getattr(self, part).requires_grad_(trains in (None, part))

    def forward(self, x: Tensor) -> Tensor:
        """The network's output with σ + ψ."""
        return self._with(x, dict(self.psi.named_parameters()))

    def with_psi(self, x: Tensor, psi: Mapping[str, Tensor]) -> Tensor:
        """The output with this network's σ and another's ψ, by names as in the state dict, on any device.

        Raises:
            JobError: it is not a ψ of this network.
        """
        parameters = dict(self.psi.named_parameters())
        others = {name.removeprefix(PSI): value for name, value in psi.items()}
        odd = others.keys() ^ parameters.keys() or {
            name for name in parameters if parameters[name].shape != others[name].shape
        }
        if odd:
            raise JobError(f"the ψ of another site does not fit this site's network at '{min(odd)}'; use the same job")
        return self._with(x, {name: value.to(parameters[name]) for name, value in others.items()})

    def _with(self, x: Tensor, psi: Mapping[str, Tensor]) -> Tensor:
        return functional_call(self.sigma, self._sums(psi, cut=not self.training), (x,))

    def _sums(self, psi: Mapping[str, Tensor], cut: bool) -> dict[str, Tensor]:
        """σ + ψ; ``cut``: without what counts as 0 in eval mode."""
        if cut:
            psi = {name: value * (value.abs() > self.threshold) for name, value in psi.items()}
        return {name: value + psi[name] for name, value in self.sigma.named_parameters()}

    def summed(self) -> dict[str, Tensor]:
        """The state dict of one network that answers as this one does in eval mode."""
        with torch.no_grad():
            return {**self.sigma.state_dict(), **self._sums(dict(self.psi.named_parameters()), cut=True)}

    def size(self) -> Tensor:
        """‖ψ‖₁, the sum over all entries."""
        return torch.stack([value.abs().sum() for value in self.psi.parameters()]).sum()

    def distance(self) -> Tensor:
        """‖σ − ψ‖², the sum over all entries."""
        pairs = zip(self.sigma.parameters(), self.psi.parameters(), strict=True)
        return torch.stack([(sigma - psi).square().sum() for sigma, psi in pairs]).sum()

    def share(self) -> Tensor:
        """Share of the entries of ψ that count in eval mode, 0 to 1."""
        counted = [(value.abs() > self.threshold).sum() for value in self.psi.parameters()]
        return torch.stack(counted).sum() / sum(value.numel() for value in self.psi.parameters())


def _parameters(module: nn.Module, ratio: float) -> nn.Module:
    """Modules of the same names that hold the parameters alone, times ``ratio``."""
    made = nn.Module()
    for name, parameter in module.named_parameters(recurse=False):
        made.register_parameter(name, nn.Parameter(parameter.detach() * ratio))
    for name, child in module.named_children():
        made.add_module(name, _parameters(child, ratio))
    return made


class HelpedEngine(PseudoLabelTrainer):
    """A site without labels trains ψ, with σ frozen, of images of whose class its model is sure (arXiv 2006.12097).

    Of these its prediction shall be that of its helpers, models of this site's σ and another site's ψ; and its
    prediction of a strong view of them the class that most of all these models name. Helpers come every some rounds and
    serve until others come; without them only its own vote counts.

    Args:
        args, kwargs: as in :class:`PseudoLabelTrainer`; ``unlabelled_weight`` is a factor of all that is minimised. The
            network is a :class:`fedmed.systems.fixmatch.fedmatch.Decomposed` of logits (B, C).
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
        super().receive({name: value for name, value in extras.items() if name != HELPERS})
        if HELPERS in extras:
            self.helpers = [dict(psi) for psi in extras[HELPERS]]

    def state_dict(self) -> dict[str, Any]:  # type: ignore[override] # as in StatefulTrainer
        return super().state_dict() | ({HELPERS: self.helpers} if self.helpers else {})

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.helpers = [dict(psi) for psi in state_dict.get(HELPERS, [])]

    def run(self) -> None:  # type: ignore[override] # as in StatefulTrainer
        """Train ``max_epochs`` epochs; then answer the picture of noise."""
        super().run()
        if self._shape is not None:
            picture = noise(self._shape).to(self.state.device)
            self._answer = {ANSWER: self.predicted(picture, self.network).softmax(dim=1)[0].cpu()}

    def extras(self) -> dict[str, float | Tensor]:
        """Answer of the trained model to the picture of noise, (C,) probabilities."""
        return self._answer

    def targets(self, images: Tensor) -> tuple[tuple[Tensor, Tensor, Tensor], dict[str, Tensor]]:
        """Helpers' probabilities (H, B, C), votes (B,) and which images count (B,)."""
        logits = self.pseudo_label(images)
        helpers = self._by_helpers(images, logits)
        counts, classes = logits.softmax(dim=1).amax(dim=1) >= self.confidence, vote(logits, helpers)
        self._shape = images.shape[1:]
        scalars = {
            "sure_fraction": counts.float().mean(),
            "commonest_fraction": classes.bincount().max() / len(classes),
            "helper_divergence": helper_divergence(logits, helpers).mean(),
            "psi_share": self.network.share(),
        }
        return (helpers, classes, counts), scalars

    def student_view(self, images: Tensor, batchdata: Mapping[str, Any]) -> Tensor:
        """The images as they came, and strong views of them: (2 B, ...)."""
        return torch.cat([images, super().student_view(images, batchdata)])

    def unlabelled_loss(self, q: Tensor, targets: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """The loss of logits (2 B, C), in float32 whatever ``amp`` is, and of ψ."""
        weak, strong = q.float().chunk(2)
        loss = helper_loss(weak, strong, *targets, self.agree_weight, self.learn_weight)
        return loss + self.size_weight * self.network.size() + self.distance_weight * self.network.distance()

    @torch.no_grad()
    def _by_helpers(self, images: Tensor, logits: Tensor) -> Tensor:
        self.network.eval()
        probabilities = [self.network.with_psi(images, psi).float().softmax(dim=1) for psi in self.helpers]
        return torch.stack(probabilities) if probabilities else logits.new_empty(0, *logits.shape)
