"""The pre-trained network with the descriptor of its images' domain, and the averaged network's moving average."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedmed.errors import DataError, FedMedError
from fedmed.training.server_engine import Ask, Batch, load_network, load_optimizer, on_cpu

POOLED = "'server_pooled: true' among the method's 'server_settings'"  # what helps with several sizes
DEVIATION = 0.02  # of the descriptor's first values; the paper does not say it


class Separation:
    """State over the rounds that separates instruments from the images' domain (Fang et al. 2025, Eq. 10 to 12).

    Args:
        network: gives v_pre its layers.
        parameters: those of a network that an optimizer gets.
        rate: of Adam.
        mu: weight of a round's own feature in the moving average.
        pooled: whether descriptor and average are the same at all places.
        seed: of the descriptor's first values.

    Attributes:
        pre: v_pre.
        domain: D_sy (c, h, w), or (c, 1, 1); None before the first round.
        average: F̂_g of the same shape, likewise.
        optimizer: of v_pre and D_sy, likewise.
    """

    def __init__(self, network: nn.Module, parameters: Any, rate: float, mu: float, pooled: bool, seed: int) -> None:
        self.pre, self.parameters, self.rate = copy.deepcopy(network), parameters, rate
        self.mu, self.pooled, self.seed = mu, pooled, seed
        self.domain: nn.Parameter | None = None
        self.average: Tensor | None = None
        self.optimizer: torch.optim.Optimizer | None = None

    def load_state_dict(self, state: Mapping[str, Any], start: Mapping[str, Tensor]) -> None:
        """Go on from an earlier round, or with ``{}`` from the model that the job began with.

        Raises:
            StateError: it is of another network.
        """
        load_network(self.pre, state["pre"] if state else start, "pre-trained network")
        if state:
            device = next(self.pre.parameters()).device
            self._describe(state["domain"].to(device, copy=True))
            self.average = state["average"].to(device, copy=True)
            load_optimizer(self.optimizer, state["optimizer"])

    def state_dict(self) -> dict[str, Any]:
        """Copies on the CPU."""
        assert self.domain is not None and self.average is not None and self.optimizer is not None  # after a round
        kept = {"pre": self.pre.state_dict(), "domain": self.domain, "average": self.average}
        return on_cpu({**kept, "optimizer": self.optimizer.state_dict()})

    def take_average(self, network: nn.Module, batches: Iterable[Batch], ask: Ask) -> None:
        """Take the mean of the averaged network's features into the moving average (Eq. 10); no gradient, no noise.

        Raises:
            DataError: without a batch, or with images of another size than before.
        """
        total, images = None, 0
        network.eval()
        for batch in batches:
            ask()
            with torch.no_grad():
                feature = self.map_of(plain_feature(network, batch["image"]))
            self.check_shape(feature[0], total)
            total = feature.sum(0) if total is None else total + feature.sum(0)
            images += len(feature)
        if total is None:
            raise DataError("the server's loader gave no batch; look at the server's datalist")
        if self.domain is None:
            draw = torch.Generator().manual_seed(self.seed)
            self._describe((DEVIATION * torch.randn(total.shape, generator=draw)).to(total))
        self.average = moving_average(self.average, total / images, self.mu)

    def check_shape(self, feature: Tensor, like: Tensor | None) -> None:
        """Raise a DataError for features of another shape than D_sy, or than ``like`` before there is one."""
        wanted = self.domain if self.domain is not None else like
        if wanted is not None and feature.shape != wanted.shape:
            raise DataError(
                f"features of the server's images have shape {tuple(feature.shape)}, those before, and the descriptor "
                f"of their domain, {tuple(wanted.shape)}; use images of one size in all rounds, or {POOLED}"
            )

    def map_of(self, features: Tensor) -> Tensor:
        """Features (B, c, h, w), or their means (B, c, 1, 1)."""
        return features.mean(tuple(range(2, features.ndim)), keepdim=True) if self.pooled else features

    def descriptor_penalty(self, images: Tensor, features: Tensor) -> Tensor:
        """The second term of Eq. 11, of v_pre's features."""
        return descriptor_penalty(features, *self._maps())

    def instrument_penalty(self, images: Tensor, features: Tensor) -> Tensor:
        """The second term of Eq. 12, of v_g's features; v_pre and D_sy get no gradient."""
        with torch.no_grad():
            synthetic = plain_feature(self.pre.eval(), images)
        return instrument_penalty(features, synthetic, self._maps()[0])

    @property
    def domain_norm(self) -> float:
        """``‖D_sy‖``."""
        return float(self._maps()[0].detach().double().norm())

    def check_finite(self) -> None:
        """Raise a FedMedError where v_pre, D_sy or F̂_g has values that are NaN or infinite."""
        tensors = [*self.pre.state_dict().values(), *self._maps()]
        if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors):
            raise FedMedError("the pre-trained network has values that are NaN or infinite; use a lower rate")

    def _maps(self) -> tuple[nn.Parameter, Tensor]:
        assert self.domain is not None and self.average is not None  # `take_average` comes first
        return self.domain, self.average

    def _describe(self, domain: Tensor) -> None:
        self.domain = nn.Parameter(domain)
        self.optimizer = torch.optim.Adam([*self.parameters(self.pre), self.domain], lr=self.rate)


def plain_feature(network: Any, images: Tensor) -> Tensor:
    """Features of images alone, without the decoder where the network can leave it out."""
    return network.plain_feature(images) if hasattr(network, "plain_feature") else network.forward_plain(images)[1]


def moving_average(earlier: Tensor | None, new: Tensor, mu: float) -> Tensor:
    """Return ``(1 - mu) · earlier + mu · new``; ``new`` where there is no earlier one (Fang et al. 2025, Eq. 10).

    Args:
        earlier: the average so far, or None in the first round.
        new: the round's own, of the same shape.
        mu: weight of the new one, in [0, 1].

    Raises:
        FedMedError: ``mu`` is outside its range, or the shapes differ.
    """
    if not 0 <= mu <= 1:
        raise FedMedError(f"moving average: mu is {mu}; use a number from 0 to 1")
    if earlier is None:
        return new.clone()
    if earlier.shape != new.shape:
        raise FedMedError(
            f"moving average: the earlier one has shape {tuple(earlier.shape)}, the new one {tuple(new.shape)}; "
            "features of one network and image size are needed"
        )
    return torch.lerp(earlier, new, mu)


def descriptor_penalty(features: Tensor, domain: Tensor, average: Tensor) -> Tensor:
    """Return ``mean((F_sy - D_sy - F̂_g)²)``, a scalar: the second term, unweighted, of Fang et al. 2025, Eq. 11.

    It draws the instruments' part of the pre-trained network's features to what the federation's network makes of them.

    Args:
        features: F_sy of a batch (B, c, h, w), of the pre-trained network.
        domain: D_sy (c, h, w), or (c, 1, 1) where one descriptor stands for all places.
        average: F̂_g, of the same shape as ``domain``; its gradient is not taken.

    Raises:
        FedMedError: shapes that do not fit.
    """
    _check("the domain descriptor", features, domain)
    _check("the average feature", features, average)
    return (features - domain - average.detach()).square().mean()


def instrument_penalty(features: Tensor, synthetic: Tensor, domain: Tensor) -> Tensor:
    """Return ``mean((F_g - (F_sy - D_sy))²)``, a scalar: the second term, unweighted, of Fang et al. 2025, Eq. 12.

    It draws the averaged network's features to the instruments' part of the pre-trained network's.

    Args:
        features: F_g of a batch (B, c, h, w), of the averaged network.
        synthetic: F_sy of the same batch; its gradient is not taken.
        domain: D_sy (c, h, w) or (c, 1, 1), likewise.

    Raises:
        FedMedError: shapes that do not fit.
    """
    if features.shape != synthetic.shape:
        raise FedMedError(
            f"the averaged network's features have shape {tuple(features.shape)}, the pre-trained network's "
            f"{tuple(synthetic.shape)}; both networks must be the same"
        )
    _check("the domain descriptor", features, domain)
    return (features - (synthetic - domain).detach()).square().mean()


def _check(what: str, features: Tensor, map: Tensor) -> None:
    whole, pooled = features.shape[1:], (features.shape[1], *[1] * (features.ndim - 2))
    if map.shape != whole and tuple(map.shape) != pooled:
        raise FedMedError(
            f"{what} has shape {tuple(map.shape)}, features of these images have {tuple(whole)}; use images of one "
            "size, or a descriptor that is the same at all places"
        )
