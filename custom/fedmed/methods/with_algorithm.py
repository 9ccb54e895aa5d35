"""A method together with an algorithm: everything that asks a method gets both."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from fedmed.methods.algorithm import NOT_PLAIN, NOT_PLAIN_RULE, PLAIN, Algorithm
from fedmed.methods.declarations import BEFORE_TRAINING, AuxiliaryValue, Role
from fedmed.methods.method import Method
from fedmed.training.corrections.correction import Correction

MADE_OF_OTHERS = {"role", "exchange", "with_update", "misfits"}  # answers made of others, so already of both


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
        object.__setattr__(self, "own_images", self.method.own_images or self.algorithm.own_images)
        sentences = [said for one in (self.method, self.algorithm) if (said := one.beside_learning)]
        object.__setattr__(self, "beside_learning", " and ".join(sentences))
        adapt = self.key == "adaptation" and bool(self.algorithm.overlays_of("evaluate"))
        object.__setattr__(self, "scored_adapt", self.method.scored_adapt or adapt)
        object.__setattr__(
            self,
            "title",
            self.method.title + (" and " if " with " in self.method.title else " with ") + self.algorithm.title,
        )

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
        title = self.algorithm.title
        yield from self._of_sharing(said)
        exchange = [any(v.task == BEFORE_TRAINING for v in one.values()) for one in (self.method, self.algorithm)]
        if all(exchange):
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

    def _of_sharing(self, said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        title, group = self.algorithm.title, self.algorithm.private()
        if group is None:
            return
        if any(made.receives or made.sends for made in self.method.roles().values()):
            yield (
                "algorithm",
                f"{title} and {self.method.title} both say what stays at the sites; leave 'algorithm' out",
            )
        keys = ["sharing"] if "sharing" in said else []
        keys += ["warm_start.sharing"] if "sharing" in said.get("warm_start", {}) else []
        for key in keys:
            stays = f"in {title} the layers of group '{group}' stay at the sites in all rounds"
            yield key.partition(".")[0], f"'{key}': {stays}; leave it out"

    def card(self) -> str:
        return f"{self.method.card()} The federation ran {self.algorithm.title} ({self.algorithm.source})."

    def spec(self) -> dict[str, Any]:
        before, chosen = self.method.spec(), dict(self.chosen)
        if self.key == "algorithm":
            return {**before, self.key: chosen}
        return {**before, self.key: [*before.get(self.key, []), chosen]}
