"""Keys and negatives of momentum contrast, and those that a site keeps between rounds."""

import copy
import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedmed.errors import FedMedError, StateError
from fedmed.systems.fedmoco.metadata import SyntheticNegatives
from fedmed.systems.fedmoco.options import ContrastOptions
from fedmed.training.trainer import restore

log = logging.getLogger("fedmed.site")
UNKNOWN = -1  # number of a key's image


class KeyQueue:
    """The last ``size`` keys, first in, first out, as a ring: a new batch overwrites the oldest keys in place.

    A batch may wrap around the end; ``size`` need not be a multiple of the batch. The queue is private: it is part of a
    site's own state and must never be sent, since keys are features of single images.

    Args:
        size: N, keys that are kept.
        dim: d, length of a key.
        device: where the keys are kept.

    Attributes:
        keys: (N, d) float32; rows that were never written are zero. Changed in place by :meth:`enqueue`.
        images: (N,) int64, the number of the image that each key is of; -1 where it is not known.
        pointer: row that is written next.
        filled: rows that hold a key.

    Raises:
        FedMedError: a size or length below 1.
    """

    def __init__(self, size: int, dim: int, device: torch.device | str = "cpu") -> None:
        if size < 1 or dim < 1:
            raise FedMedError(f"KeyQueue: size is {size} and dim is {dim}; use 1 or more, such as 1024 and 128")
        self.keys = torch.zeros(size, dim, device=device)
        self.images = torch.full((size,), UNKNOWN, dtype=torch.int64, device=device)
        self.pointer, self.filled = 0, 0

    @property
    def full(self) -> bool:
        return self.filled == len(self.keys)

    @torch.no_grad()
    def enqueue(self, keys: Tensor, images: Tensor | None = None) -> None:
        """Overwrite the oldest keys.

        Args:
            keys: (B, d), at most as many as the queue holds.
            images: (B,) int64, 0 or more, of which images they are; None: not known.

        Raises:
            FedMedError: more keys than rows, or keys of another length.
        """
        size, dim = self.keys.shape
        if keys.ndim != 2 or keys.shape[1] != dim or len(keys) > size:
            raise FedMedError(
                f"KeyQueue: keys of shape {tuple(keys.shape)} do not fit a queue of {size} keys of length {dim}; a "
                "queue must hold at least one batch: raise queue_size or lower the batch size"
            )
        rows = torch.arange(self.pointer, self.pointer + len(keys), device=self.keys.device) % size
        self.keys[rows] = keys
        self.images[rows] = UNKNOWN if images is None else images.to(self.images.device)
        self.pointer = (self.pointer + len(keys)) % size
        self.filled = min(size, self.filled + len(keys))

    def state_dict(self) -> dict[str, Any]:
        """Keys and their images (copies on the CPU), pointer and number of rows that hold a key."""
        rows = {"keys": self.keys.to("cpu", copy=True), "images": self.images.to("cpu", copy=True)}
        return {**rows, "pointer": self.pointer, "filled": self.filled}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Accept what :meth:`state_dict` returned; that of an earlier FedMed does not know the images.

        Raises:
            StateError: it is that of a queue of another size.
        """
        if state["keys"].shape != self.keys.shape:
            raise StateError(
                f"the site's kept queue has shape {tuple(state['keys'].shape)}, this job's {tuple(self.keys.shape)}; "
                "continue with the queue_size and network it was made with, or start a new job"
            )
        self.keys.copy_(state["keys"])
        self.images.copy_(state.get("images", torch.tensor(UNKNOWN)))
        self.pointer, self.filled = int(state["pointer"]), int(state["filled"])


def key_encoder(network: nn.Module) -> nn.Module:
    """Return a copy without gradients, in train mode: BatchNorm uses each batch and keeps statistics of its own."""
    return copy.deepcopy(network).requires_grad_(False).train()


@torch.no_grad()
def momentum_update(key: nn.Module, query: nn.Module, momentum: float) -> None:
    """``θ_key ← m θ_key + (1 - m) θ_query`` for all parameters at once; buffers are left alone.

    ``key``, made by :func:`key_encoder` of ``query``, changes in place; m lies in [0, 1). torch's ``AveragedModel``
    would overwrite its BatchNorm statistics with those of the query encoder.
    """
    torch._foreach_lerp_(list(key.parameters()), [p.detach() for p in query.parameters()], 1 - momentum)


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
        self.drops_own_keys = options.drops_own_keys(images)
        self.queue: KeyQueue | None = None
        self._begun = False
        self._loaded: Mapping[str, Any] = {}

    @property
    def full(self) -> bool:
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
        similar = queries @ self.negatives(synthetic).T
        if images is None or self.queue is None:
            if self.options.own_keys == "leave_out":
                raise FedMedError(
                    "own_keys is 'leave_out', but the batches do not say which image is which: give the dataset of the "
                    "training 'numbered: true', or set own_keys to keep"
                )
            return similar, None
        same_image = images.to(similar.device)[:, None] == self.queue.images
        if self.drops_own_keys:  # synthetic ones are of no image
            synthetic_draws = similar.shape[1] - same_image.shape[1]
            similar = similar.masked_fill(nn.functional.pad(same_image, (0, synthetic_draws)), -torch.inf)
        return similar, same_image.any(dim=1).float().mean()

    def compare_with_round(self, steps: int, batch_size: int) -> None:
        """Warn of a queue that will hold keys made by the models of earlier rounds; and say if own keys are left out.

        A round has so many ``steps``, each of which makes ``batch_size`` keys.
        """
        if self.drops_own_keys:
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
