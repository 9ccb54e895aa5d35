"""How strongly a model lets each channel of its features through, at the frames of an evaluation."""

from typing import Any

import numpy as np
import torch
from ignite.engine import Engine, Events
from numpy.typing import NDArray
from torch import Tensor, nn

from fedmed.data.cases import plain
from fedmed.errors import FedMedError

FILE = "gates"  # of the folder of an evaluation, with .npz


class KeptGates:
    """Takes what comes out of a layer that weighs channels while an evaluator runs, and keeps means over its frames.

    The gates of Fang et al. 2025, Eq. 7, are made of a site's own words by layers that never leave it, so FedMed never
    sends what :meth:`content` returns; a recorder writes it into the folder of its evaluation, at the site.

    Args:
        layer: name of the module whose output are the gates (B, C) of a batch of frames, each in 0…1.
    """

    def __init__(self, layer: str) -> None:
        self.layer = layer
        self._hook: Any = None
        self._begin()

    def attach(self, engine: Engine) -> None:
        """Add to an evaluator."""
        engine.add_event_handler(Events.STARTED, self._listen)
        for end in (Events.COMPLETED, Events.TERMINATE):
            engine.add_event_handler(end, self._leave)

    def content(self) -> dict[str, NDArray[np.float32]]:
        """``mean`` and ``spread`` (C,), the standard deviation over the frames, float32, and ``frames`` (), how many.

        Raises:
            FedMedError: the layer was not called.
        """
        if not self._frames:
            raise FedMedError(f"KeptGates: the network has not used its layer '{self.layer}'; name another in 'layer'")
        mean = self._sum / self._frames
        spread = (self._squares / self._frames - mean**2).clamp(min=0).sqrt()
        found = {"mean": mean, "spread": spread, "frames": torch.tensor(self._frames)}
        return {name: value.float().numpy() for name, value in found.items()}

    def _begin(self) -> None:
        self._frames, self._sum, self._squares = 0, torch.zeros(0), torch.zeros(0)

    def _listen(self, engine: Engine) -> None:
        network: nn.Module = engine.network  # type: ignore[attr-defined] # MONAI's evaluators have one
        layers = dict(network.named_modules())
        if self.layer not in layers:
            raise FedMedError(f"KeptGates: {type(network).__name__} has no layer '{self.layer}'; name one in 'layer'")
        self._leave()
        self._begin()
        self._hook = layers[self.layer].register_forward_hook(self._take)

    def _leave(self, *_: Any) -> None:
        if self._hook is not None:
            self._hook.remove()
        self._hook = None

    def _take(self, _: nn.Module, __: tuple[Any, ...], output: Tensor) -> None:
        gates = plain(output).detach().double().cpu()
        if gates.ndim != 2:
            raise FedMedError(
                f"KeptGates: layer '{self.layer}' gives {tuple(gates.shape)}; name one that gives a row (B, C) a frame"
            )
        if not self._frames:
            self._sum, self._squares = torch.zeros(gates.shape[1]).double(), torch.zeros(gates.shape[1]).double()
        self._frames += len(gates)
        self._sum += gates.sum(dim=0)
        self._squares += (gates**2).sum(dim=0)
