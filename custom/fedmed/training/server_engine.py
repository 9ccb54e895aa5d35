"""Training of the averaged network at the server: the interface of an overlay's ``server#training``."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, runtime_checkable

from monai.engines import Trainer
from torch import Tensor, nn

from fedmed.errors import StateError

Ask = Callable[[], object]  # raises Aborted when the job was aborted
# Runs a trainer for its steps, under a name of this phase of the round, and returns its scalars' means as ``train_…``.
Phase = Callable[[Trainer, int, str], dict[str, float]]
HINT = "continue with the job that made it, or start a new run"
Batch = Mapping[str, Any]


@runtime_checkable
class ServerEngine(Protocol):
    """Training at the server, after the mean of a round and before its model is sent.

    A new one is made of the bundle's configuration in each round, and with it a network, which the server fills with
    the mean of the round and with its own private tensors before it asks for anything. Results may depend on what
    :meth:`state_dict` returned, the mean, the round and the images alone.
    """

    @property
    def steps(self) -> int:
        """Optimizer steps of a round, of all phases together, for the display."""
        ...

    def load_state_dict(self, state: Mapping[str, Any], start: Mapping[str, Tensor]) -> None:
        """Go on from what :meth:`state_dict` returned; ``{}`` in the first round.

        Args:
            state: must not be modified.
            start: the model that the job began with, such as its checkpoint.

        Raises:
            StateError: it is of another network, or of other settings.
        """
        ...

    def check(self) -> None:
        """Refuse, before anything trains, images that cannot be trained with; FedMedError says what to do."""
        ...

    def run(self, phase: Phase, ask: Ask) -> dict[str, float]:
        """Train the network and return plain numbers for the run's record.

        Args:
            phase: runs a trainer; it looks after abort, progress and losses that are not numbers.
            ask: to be called in what else takes long, once a batch.

        Raises:
            FedMedError: the round fails, and the model stays as it was.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """State that must outlive the round: plain values and tensors on the CPU. None of it leaves the server."""
        ...


def load_network(network: nn.Module, tensors: Mapping[str, Tensor], what: str) -> None:
    """Fill a network with kept tensors; StateError if they are of another network."""
    current = network.state_dict()
    for name in sorted(set(current) | set(tensors)):
        kept, here = (tuple(state[name].shape) if name in state else "missing" for state in (tensors, current))
        if kept != here:
            raise StateError(
                f"the server's {what} is of another network: tensor '{name}' is {kept}, here {here}; {HINT}"
            )
    network.load_state_dict(dict(tensors))


def load_optimizer(optimizer: Any, state: Mapping[str, Any]) -> None:
    """Fill an optimizer, which changes its tensors in place, with copies of a kept state; StateError if of others."""
    try:
        optimizer.load_state_dict(copy.deepcopy(dict(state)))
    except (ValueError, KeyError) as error:
        raise StateError(f"the server's kept optimizer is of another network ({error}); {HINT}") from error


def on_cpu(value: Any) -> Any:
    """Return plain values with copies of all tensors, on the CPU."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: on_cpu(each) for key, each in value.items()}
    return [on_cpu(each) for each in value] if isinstance(value, Sequence) and not isinstance(value, str) else value


class Prefetched:
    """A list of batches, the same however often it is gone over; while one is used, a thread loads the next.

    Args:
        loader: gives the batches. It is gone over once, in another thread, so it must not draw from the generators that
            the training draws from; FedMed's loaders have their own.
        prepare: makes of a batch what is kept, in the thread that uses it, once for each batch.

    Attributes:
        ready: what was used so far.

    Use it as a context: the thread ends with it, also where not all batches were used.
    """

    def __init__(self, loader: Iterable[Batch], prepare: Callable[[Batch], Batch]) -> None:
        self.ready: list[Batch] = []
        self._prepare, self._coming = prepare, iter(loader)
        self._pool = ThreadPoolExecutor(1, "loads batches")
        self._next = self._pool.submit(next, self._coming, None)
        self._whole = False

    def __enter__(self) -> "Prefetched":
        return self

    def __exit__(self, *_: Any) -> None:
        self._pool.shutdown(cancel_futures=True)

    def __iter__(self) -> Iterator[Batch]:
        place = 0
        while place < len(self.ready) or self._load():
            yield self.ready[place]
            place += 1

    def _load(self) -> bool:
        """Take the batch that was loaded and begin with the next; return whether there was one."""
        batch = None if self._whole else self._next.result()
        if batch is None:
            self._whole = True
            return False
        self._next = self._pool.submit(next, self._coming, None)
        self.ready.append(self._prepare(batch))
        return True
