"""FedDyn's terms: a site's loss is bent so that the sites' minima meet in that of all of them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedmed.engines.corrections.pull import add_pull
from fedmed.engines.gradient_correction import Correction, Parameters, RoundStart, check_kept
from fedmed.in_range import in_range


class DynamicTerm(Correction):
    """Adds ``α/2 ‖ω - ω_t‖² - ⟨g, ω⟩`` to the loss (Acar et al. 2021, arXiv 2111.04263, Algorithm 1).

    ω_t is what the site received. After the round ``g ← g - α (ω_end - ω_t)``, from 0; g is kept in float64 and
    outlives the round. Only tensors that the site sends back are moved. The server's part is
    :class:`fedmed.aggregation.dynamic.DynamicStep`.

    Args:
        alpha: α, above 0, the same as at the server.

    Raises:
        JobError: α is not such a number.
    """

    def __init__(self, alpha: float) -> None:
        self.alpha = in_range("alpha", alpha, above=0)
        self._g: dict[str, Tensor] = {}

    def begin(self, start: RoundStart) -> None:
        """Before the round's first step."""
        check_kept(self._g, start.parameters, "gradients of its earlier rounds")
        self._received = start.shared_parameters()
        self._linear = {name: self._g[name].to(t) for name, t in self._received.items() if name in self._g}

    def before_step(self, parameters: Parameters) -> None:
        """∇H + α (ω - ω_t) - g."""
        for name, received in self._received.items():
            if (gradient := parameters[name].grad) is not None:
                add_pull(gradient, parameters[name], received, self.alpha)
                if name in self._linear:
                    gradient.sub_(self._linear[name])

    def end(self, parameters: Parameters) -> None:
        """g ← g - α (ω_end - ω_t)."""
        for name, received in self._received.items():
            moved = parameters[name].detach().cpu().double() - received.cpu().double()
            self._g[name] = self._g.get(name, torch.zeros_like(moved)) - self.alpha * moved

    def state_dict(self) -> dict[str, Any]:
        """g."""
        return {"g": dict(self._g)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        self._g = {name: tensor.double() for name, tensor in state_dict["g"].items()}
