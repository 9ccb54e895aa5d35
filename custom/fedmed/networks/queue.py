"""The queue of keys that momentum contrast takes its negatives from (MoCo, He et al. 2020, section 3.2)."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedmed.errors import FedMedError, StateError

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
        """Whether every row holds a key."""
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
