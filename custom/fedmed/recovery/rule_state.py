"""What a server's rule, and its training, leave beside the model, saved with it and restored together."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor

from fedmed.errors import StateError
from fedmed.moved_classes import FINISH, hint


@dataclass(frozen=True)
class RuleState:
    """A rule after a good round.

    Attributes:
        rule: its class path.
        network: name -> shape and dtype of the model's tensors, in words; see :func:`network`.
        state: the rule's own, plain values and tensors.
        for_roles: role -> tensors that its sites train from instead of the model's.
        values: site -> values that go with its next task.
        training: of a server that trains, see :meth:`fedmed.federation.server_training.ServerTraining.state`.
    """

    rule: str
    network: Mapping[str, str]
    state: Mapping[str, Any] = field(default_factory=dict)
    for_roles: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_content(cls, content: Mapping[str, Any], where: object) -> "RuleState":
        """Inverse of :meth:`content`.

        Raises:
            StateError: it does not hold what a server writes.
        """
        found: dict[str, Any] = {f.name: content.get(f.name) for f in fields(cls)}
        found["training"] = content.get("training", {})  # a run that began with an earlier FedMed has none
        rule = found.pop("rule")
        if not isinstance(rule, str) or not all(isinstance(value, Mapping) for value in found.values()):
            raise StateError(f"{where} does not hold the state of a rule; copy the run's folder again")
        return cls(rule, **found)

    def content(self) -> dict[str, Any]:
        """Plain values and tensors."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def check(self, rule: str, model: Mapping[str, Tensor]) -> None:
        """Refuse the state of another rule, or for another network.

        Raises:
            StateError: says what differs, and how to go on.
        """
        advice = "continue with the job that made it, or start a new run"
        if self.rule != rule:
            other = f"the kept state is of the rule {self.rule}, this job's rule is {rule}; {advice}"
            raise StateError(hint(self.rule, FINISH) or other)
        ours = network(model)
        for name in sorted(set(ours) | set(self.network)):
            if ours.get(name) != self.network.get(name):
                theirs, here = self.network.get(name, "missing"), ours.get(name, "missing")
                raise StateError(
                    f"the kept state of rule {rule} is for another network: tensor '{name}' is {theirs} there and "
                    f"{here} here; {advice}"
                )


def network(model: Mapping[str, Tensor]) -> dict[str, str]:
    """Name -> dtype and shape."""
    return {name: f"{str(t.dtype).removeprefix('torch.')} {tuple(t.shape)}" for name, t in model.items()}
