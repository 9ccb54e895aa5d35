"""Where the keys and negatives of momentum contrast come from, and which of them a site keeps between rounds."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedmed.errors import StateError
from fedmed.networks.momentum import key_encoder, momentum_update
from fedmed.networks.queue import KeyQueue


class MomentumKeys:
    """The key encoder and the queue of one site. Both are private.

    Args:
        queue_size: N.
        momentum: m in [0, 1).
        policy: how a run begins, see ``key_policy`` of :class:`MomentumContrastEngine`.
        device: of the queue.

    Attributes:
        network: the key encoder; None before the first run.
        queue: None before the first keys.
    """

    def __init__(self, queue_size: int, momentum: float, policy: str, device: torch.device | str) -> None:
        self.queue_size, self.momentum, self.policy, self.device = queue_size, momentum, policy, device
        self.network: nn.Module | None = None
        self.queue: KeyQueue | None = None
        self._kept: Mapping[str, Any] = {}

    @property
    def full(self) -> bool:
        """Whether there are as many keys as the queue holds."""
        return self.queue is not None and self.queue.full

    def begin(self, received: nn.Module) -> None:
        """Start a run: a copy of the received network or the encoder that was kept, and the queue that was kept.

        Raises:
            StateError: what was kept is of another network or another size of queue.
        """
        self.network = key_encoder(received)
        if self.policy == "refill":
            self.queue, self._kept = None, {}
        if self.policy == "keep" and "key_network" in self._kept:
            self._restore_network(self._kept["key_network"])
        if self.queue is None and "queue" in self._kept:
            kept = self._kept["queue"]
            self._new_queue(kept["keys"].shape[1]).load_state_dict(kept)

    def follow(self, query: nn.Module) -> None:
        """``θ_key ← m θ_key + (1 - m) θ_query`` (Eq. 2)."""
        momentum_update(self.network, query, self.momentum)

    def enqueue(self, keys: Tensor) -> None:
        """Replace the oldest keys by these, (B, d).

        Raises:
            FedMedError: they do not fit the queue.
        """
        queue = self._new_queue(keys.shape[1]) if self.queue is None else self.queue
        queue.enqueue(keys)

    def state_dict(self) -> dict[str, Any]:
        """The queue and, if the next run continues it, the key encoder; before the first run, what was loaded."""
        state = {}
        if self.queue is not None:
            state["queue"] = self.queue.state_dict()
        if self.policy == "keep" and self.network is not None:
            state["key_network"] = dict(self.network.state_dict())
        return {**self._kept, **state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Accept what :meth:`state_dict` returned, other entries are ignored; :meth:`begin` restores it."""
        self._kept = {name: state[name] for name in ("queue", "key_network") if name in state}

    def _new_queue(self, dim: int) -> KeyQueue:
        self.queue = KeyQueue(self.queue_size, dim, self.device)
        return self.queue

    def _restore_network(self, kept: Mapping[str, Tensor]) -> None:
        try:
            self.network.load_state_dict(kept)
        except RuntimeError as error:
            raise StateError(
                f"the site's kept key encoder does not fit the network: {error}. Continue with the network it was "
                "made with, or start a new job"
            ) from error
