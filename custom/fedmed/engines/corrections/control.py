"""SCAFFOLD's control variates: a site's gradients lose what is its own and get what all sites have in common."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedmed.engines.gradient_correction import Correction, Parameters, RoundStart, check_kept

CONTROL, DIFFERENCE = "control", "control_difference"  # from the server, and to it


class ControlVariate(Correction):
    """Adds ``c - c_i`` to the gradient (Karimireddy et al. 2020, arXiv 1910.06378, Eq. 3 and option II of Eq. 4).

    c comes from the server, 0 at first. The site's own c_i becomes the mean of the loss's gradients over the round's
    steps: with gradient descent at a rate η that is ``c_i - c + (ω_t - ω_end) / (steps · η)``, as printed, and it holds
    for other optimizers and for rates that change. What c_i has changed by leaves as ``control_difference``, name ->
    tensor, of the tensors that the site sends. The server's part is :class:`fedmed.aggregation.control.ControlledMean`.
    """

    takes = (CONTROL,)

    def __init__(self) -> None:
        self._own: dict[str, Tensor] = {}
        self._difference: dict[str, Tensor] = {}

    def begin(self, start: RoundStart) -> None:
        """Before the round's first step."""
        check_kept(self._own, start.parameters, "control variates")
        server = start.values.get(CONTROL, {})
        received = start.shared_parameters()
        self._shift = {
            name: _of(server, name, tensor).to(tensor) - _of(self._own, name, tensor).to(tensor)
            for name, tensor in received.items()
        }
        self._sum, self._steps = {name: torch.zeros_like(tensor) for name, tensor in received.items()}, 0

    def before_step(self, parameters: Parameters) -> None:
        """∇H - c_i + c."""
        self._steps += 1
        for name, shift in self._shift.items():
            if (gradient := parameters[name].grad) is not None:
                self._sum[name].add_(gradient)
                gradient.add_(shift)

    def end(self, parameters: Parameters) -> None:
        """The new c_i, and its difference to the one before."""
        self._difference = {}
        for name, total in self._sum.items() if self._steps else ():
            new = (total / self._steps).cpu()
            self._difference[name] = new - _of(self._own, name, new)
            self._own[name] = new

    def extras(self) -> dict[str, Any]:
        """See the class."""
        return {DIFFERENCE: dict(self._difference)}

    def state_dict(self) -> dict[str, Any]:
        """c_i."""
        return {"own": dict(self._own)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        self._own = dict(state_dict["own"])


def _of(tensors: Mapping[str, Tensor], name: str, like: Tensor) -> Tensor:
    return tensors[name] if name in tensors else torch.zeros_like(like)
