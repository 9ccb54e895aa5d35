"""A method together with an algorithm: everything that asks a method gets both."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from fedmed.methods.algorithm import NOT_PLAIN, NOT_PLAIN_RULE, PLAIN, Algorithm
from fedmed.methods.declarations import BEFORE_TRAINING, AuxiliaryValue, Role
from fedmed.methods.method import Method, said_elsewhere
from fedmed.training.corrections.correction import Correction

MADE_OF_OTHERS = {"role", "exchange", "with_update", "validation_errors"}  # answers made of others, so already of both


@dataclass(frozen=True)
class WithAlgorithm(Method):
    """The method's answers, with what the algorithm adds.

    Attributes:
        method: the method.
        algorithm: the algorithm.
        chosen: how the study names it, ``name`` and ``args``.
        key: of the study, under which it does: ``algorithm``, or ``adaptation``, a list.
    """

    method: Method
    algorithm: Algorithm
    chosen: Mapping[str, Any]
    key: str = "algorithm"

    def __post_init__(self) -> None:
        changed = MADE_OF_OTHERS | vars(WithAlgorithm).keys()
        for name in vars(Method):
            if not name.startswith("_") and name not in changed:  # what an algorithm does not change
                object.__setattr__(self, name, getattr(self.method, name))
        method, algorithm = self.method, self.algorithm
        adapt = self.key == "adaptation" and bool(algorithm.overlays_of("evaluate"))
        of_both = {
            "own_images": method.own_images or algorithm.own_images,
            "adaptation_text": " and ".join(filter(None, (method.adaptation_text, algorithm.adaptation_text))),
            "scored_adapt": method.scored_adapt or adapt,
            "title": method.title + (" and " if " with " in method.title else " with ") + algorithm.title,
        }
        for name, value in of_both.items():
            object.__setattr__(self, name, value)

    def roles(self) -> Mapping[str, Role]:
        """The algorithm's overlay comes last, and its sharing group is that of all roles."""
        made = {}
        for name, role in self.method.roles().items():
            overlays = dict.fromkeys((*role.overlays, *self.algorithm.overlays_of(name)))  # adaptations share some
            made[name] = replace(role, overlays=tuple(overlays), receives=self.algorithm.private() or role.receives)
        return made

    def settings(self, role: str) -> Mapping[str, Any]:
        """The method's, and those of the algorithm where its overlay is."""
        settings = self.algorithm.settings() if self.algorithm.overlays_of(role) else {}
        return {**self.method.settings(role), **settings}

    def corrections(self, network: nn.Module) -> Sequence[Correction]:
        return (*self.method.corrections(network), *self.algorithm.corrections(network))

    def values(self) -> tuple[AuxiliaryValue, ...]:
        return (*self.method.values(), *self.algorithm.values())

    def amended(self, rule: Mapping[str, Any]) -> dict[str, Any]:
        return self.algorithm.amended(rule)

    def contradictions(self, said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Those of the method; a study that asks for another mean than the algorithm's, or says its values twice."""
        yield from self.method.contradictions(said)
        title, group = self.algorithm.title, self.algorithm.private()
        if group is not None:
            if any(made.receives or made.sends for made in self.method.roles().values()):
                both = f"{title} and {self.method.title}"
                yield "algorithm", f"{both} both say what stays at the sites; leave 'algorithm' out"
            yield from said_elsewhere(said, f"in {title} the layers of group '{group}' stay at the sites in all rounds")
        if all(any(v.task == BEFORE_TRAINING for v in one.values()) for one in (self.method, self.algorithm)):
            yield self.key, f"{title} and {self.method.title} both exchange values before training; use one of them"
        for role, values in said.get("overrides", {}).items():
            for key in sorted(set(values) & set(self.algorithm.settings())):
                yield "overrides", f"'overrides.{role}.{key}': say it once, as '{self.key}.args.{key}'"
        if self.algorithm.at_server:
            rule = (said.get("rule") or {}).get("args", {})
            other = [(key, f"'{key}'") for key in NOT_PLAIN if key in said]
            contrary = [key for key in NOT_PLAIN_RULE if key in rule and rule[key] != PLAIN.get(key)]
            other += [("rule", f"'rule.args.{key}'") for key in contrary]
            if "step" in rule:
                yield "rule", f"'rule.args.step': write it as 'server_step', which goes with {title}"
            for key, shown in other:
                yield key, f"{shown} asks for another mean, and in {title} all sites count the same; leave it out"

    def card(self) -> str:
        return f"{self.method.card()} The federation ran {self.algorithm.title} ({self.algorithm.source})."

    def spec(self) -> dict[str, Any]:
        before, chosen = self.method.spec(), dict(self.chosen)
        return {**before, self.key: chosen if self.key == "algorithm" else [*before.get(self.key, []), chosen]}
