"""A network whose weights are the sum of two parts, trained by different sites (Jeong et al. 2021)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedmed.errors import FedMedError, JobError

PARTS = ("sigma", "psi")
PSI = "psi."  # begins the names of that part's tensors


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
        own = dict(self.psi.named_parameters())
        found = {name.removeprefix(PSI): value for name, value in psi.items()}
        odd = found.keys() ^ own.keys() or {name for name in own if own[name].shape != found[name].shape}
        if odd:
            raise JobError(f"the ψ of another site does not fit this site's network at '{min(odd)}'; use the same job")
        return self._with(x, {name: value.to(own[name]) for name, value in found.items()})

    def _with(self, x: Tensor, psi: Mapping[str, Tensor]) -> Tensor:
        output: Tensor = functional_call(self.sigma, self._sums(psi, cut=not self.training), (x,))
        return output

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
