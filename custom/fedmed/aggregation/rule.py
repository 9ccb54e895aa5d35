"""Interface of a server's rule: tensors and accepted updates in, the next tensors out."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from fedmed.aggregation.contribution import Contribution

Model = Mapping[str, Tensor]


@dataclass(frozen=True)
class ExpectedSenders:
    """Senders of one kind of round, and their tensors, if every site answered.

    Attributes:
        roles: every site of the job -> its role, also sites that do not train.
        sent: site that trains in this kind of round -> names of the tensors that it sends.
        max_norm: L2 norm beyond which the server refuses an update before the rule sees it; None = no bound.
    """

    roles: Mapping[str, str]
    sent: Mapping[str, Collection[str]]
    max_norm: float | None = None


@dataclass(frozen=True)
class RoundFacts:
    """Time of a round, and the job's sites.

    Attributes:
        round: the round, counted from 0.
        rounds: rounds that the job plans.
        roles: every site of the job -> its role.
    """

    round: int = 0
    rounds: int = 1
    roles: Mapping[str, str] = field(default_factory=dict)

    @property
    def training(self) -> list[str]:
        """Sites of the job that train, whether or not they sent an update in this round."""
        return [site for site, role in self.roles.items() if role != "evaluate"]


@dataclass
class Outcome:
    """Result of a rule for a round.

    Attributes:
        tensors: the next model: every name of the one before, with its shape and dtype.
        coefficients: site -> how much it counted, for the run's record.
        for_roles: role that trains -> tensors that its sites get instead of the model's, to train from; of a name that
            is left out they get the model's. Scores that choose a model are those of the model itself, so a role
            whose sites give such scores cannot have another one.
        values: site -> name -> number or tensor (or lists and mappings of them) that goes with its task to train in the
            round that follows; what is not repeated in a round's outcome is not sent again.
        warnings: (sites, what is unusual about them).
        facts: further plain values for the run's record of the round.
    """

    tensors: dict[str, Tensor]
    coefficients: dict[str, float] = field(default_factory=dict)
    for_roles: dict[str, Model] = field(default_factory=dict)
    values: dict[str, dict[str, Any]] = field(default_factory=dict)
    warnings: list[tuple[list[str], str]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


@runtime_checkable
class ServerRule(Protocol):
    """Computation of the server from a round's updates: pure tensors, nothing is read or written.

    The server asks in this order: :meth:`check` for each kind of round, then, where a run is resumed,
    :meth:`restore`; in each round :meth:`check_update` for each update and :meth:`aggregate` once. If a round fails
    after that, the server restores the state from before it. Results may depend neither on the order of the updates
    nor on the number of threads.
    """

    def check(self, senders: ExpectedSenders) -> None:
        """Refuse, before anything trains, a federation that the rule cannot serve: JobError says what is missing."""
        ...

    def check_update(self, update: Contribution) -> None:
        """Refuse an update whose values beside the model the rule cannot use: UpdateRefused names site and value.

        Its tensors were checked before.
        """
        ...

    def aggregate(self, model: Model, updates: Sequence[Contribution], facts: RoundFacts) -> Outcome:
        """Return the next model; no argument is modified.

        Args:
            model: name -> tensor on the CPU.
            updates: accepted updates of one round. Their ``tensors`` are differences to what the site received: to
                ``model``, or for some roles to the ``for_roles`` of the outcome before.
            facts: when this is.

        Raises:
            FedMedError: the round fails; the model stays as it is.
        """
        ...

    def state(self) -> dict[str, Any]:
        """State that must outlive the process: plain values and tensors, also in lists and mappings, or ``{}``."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` returned, ``{}`` at the start; StateError for a state of another rule."""
        ...
