"""Where the keys and negatives of momentum contrast come from, and which of them a site keeps between rounds."""

import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedmed.engines.contrast_options import ContrastOptions
from fedmed.engines.synthetic_negatives import SyntheticNegatives
from fedmed.engines.trainer import restore
from fedmed.errors import FedMedError
from fedmed.networks.momentum import key_encoder, momentum_update
from fedmed.networks.queue import KeyQueue

log = logging.getLogger("fedmed.site")


class MomentumKeys:
    """The key encoder and the queue of one site. Both are private.

    Args:
        options: queue size, momentum, and how a run begins (``key_policy``).
        device: of the queue.
        images: images that the site trains on; None: not known.

    Attributes:
        network: the key encoder, from :meth:`begin` on.
        queue: None before the first keys.
    """

    network: nn.Module

    def __init__(self, options: ContrastOptions, device: torch.device | str, images: int | None = None) -> None:
        self.options, self.device = options, device
        self.leaves_own_out = options.leaves_own_out(images)
        self.queue: KeyQueue | None = None
        self._begun = False
        self._loaded: Mapping[str, Any] = {}

    @property
    def full(self) -> bool:
        """Whether there are as many keys as the queue holds."""
        return self.queue is not None and self.queue.full

    def begin(self, received: nn.Module) -> None:
        """Start a run: a copy of the received network or the encoder of the run before, and the queue of that run.

        Raises:
            StateError: they are of another network or another size of queue.
        """
        self.network, self._begun = key_encoder(received), True
        if self.options.key_policy == "refill":
            self.queue, self._loaded = None, {}
        if self.options.key_policy == "keep" and "key_network" in self._loaded:
            restore(self.network, self._loaded["key_network"], "key encoder")
        if self.queue is None and "queue" in self._loaded:
            state = self._loaded["queue"]
            self._new_queue(state["keys"].shape[1]).load_state_dict(state)

    def follow(self, query: nn.Module) -> None:
        """``θ_key ← m θ_key + (1 - m) θ_query`` (Eq. 2)."""
        momentum_update(self.network, query, self.options.momentum)

    def enqueue(self, keys: Tensor, images: Tensor | None = None) -> None:
        """Replace the oldest keys by these, (B, d), which are of images with these numbers, (B,).

        Raises:
            FedMedError: they do not fit the queue.
        """
        queue = self._new_queue(keys.shape[1]) if self.queue is None else self.queue
        queue.enqueue(keys, images)

    def negatives(self, synthetic: SyntheticNegatives | None) -> Tensor:
        """The queue, and fresh synthetic draws: (N + draws, d), on the queue's device; (0, 0) before the first keys.

        Raises:
            FedMedError: the draws are of another number of features.
        """
        queued = torch.zeros(0, 0) if self.queue is None else self.queue.keys
        if synthetic is None:
            return queued
        draws = synthetic.draw().to(queued.device, non_blocking=True)
        if draws.shape[1] != queued.shape[1]:
            raise FedMedError(
                f"other sites' statistics are of {draws.shape[1]} features, this network has {queued.shape[1]}; all "
                "sites must use the same bundle and settings"
            )
        return torch.cat([queued, draws])

    def similarities(
        self, queries: Tensor, images: Tensor | None, synthetic: SyntheticNegatives | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return how similar queries (B, d) are to the negatives, and how many of them meet a key of their own image.

        Args:
            queries: of the batch.
            images: (B,) numbers of their images; None: not known.
            synthetic: see :meth:`negatives`.

        Returns:
            (B, N + draws), -inf where such a key is left out: it then counts for nothing. And the share of queries in
            whose queue there is one, left out or not; None where the images are not known.

        Raises:
            FedMedError: as :meth:`negatives`; or keys are to be left out, but images are not known.
        """
        found = queries @ self.negatives(synthetic).T
        if images is None or self.queue is None:
            if self.options.own_keys == "leave_out":
                raise FedMedError(
                    "own_keys is 'leave_out', but the batches do not say which image is which: give the dataset of the "
                    "training 'numbered: true', or set own_keys to keep"
                )
            return found, None
        own = images.to(found.device)[:, None] == self.queue.images
        if self.leaves_own_out:  # synthetic ones are of no image
            found = found.masked_fill(nn.functional.pad(own, (0, found.shape[1] - own.shape[1])), -torch.inf)
        return found, own.any(dim=1).float().mean()

    def compare_with_round(self, steps: int, batch_size: int) -> None:
        """Warn of a queue that will hold keys made by the models of earlier rounds; and say if own keys are left out.

        Args:
            steps: iterations of a round.
            batch_size: keys that each step makes.
        """
        if self.leaves_own_out:
            log.info("negatives are without keys of a query's own image (own_keys: %s)", self.options.own_keys)
        made = steps * batch_size
        if self.options.key_policy != "refill" and self.options.queue_size > made:
            log.warning(
                "the queue has %d keys, but a round makes only %d (%d steps of %d images): the others come from models "
                "of earlier rounds, and telling models apart instead of images may make all features alike. Set "
                "queue_size to %d or less or key_policy to refill, or train more epochs a round",
                *(self.options.queue_size, made, steps, batch_size, made),
            )

    def state_dict(self) -> dict[str, Any]:
        """The queue and, if the next run continues it, the key encoder; before the first run, what was loaded."""
        state = {}
        if self.queue is not None:
            state["queue"] = self.queue.state_dict()
        if self.options.key_policy == "keep" and self._begun:
            state["key_network"] = dict(self.network.state_dict())
        return {**self._loaded, **state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Accept what :meth:`state_dict` returned, other entries are ignored; :meth:`begin` restores it."""
        self._loaded = {name: state[name] for name in ("queue", "key_network") if name in state}

    def _new_queue(self, dim: int) -> KeyQueue:
        self.queue = KeyQueue(self.options.queue_size, dim, self.device)
        return self.queue
