"""What trains the averaged network at the server: what an overlay's ``server#training`` must be."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from monai.engines import Trainer
from torch import Tensor

Ask = Callable[[], object]  # raises Aborted when the job was aborted
# Runs a trainer for its steps, under a name of this phase of the round, and returns its scalars' means as ``train_…``.
Phase = Callable[[Trainer, int, str], dict[str, float]]


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
        """Refuse, before anything trains, images that cannot be trained with; it changes nothing.

        Raises:
            FedMedError: says which, and what to do.
        """
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
        """What must outlive the round: plain values and tensors on the CPU. None of it leaves the server."""
        ...
