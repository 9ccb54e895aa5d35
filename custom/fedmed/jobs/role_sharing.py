"""Each role's sharing policy, before and after the warm start."""

from collections.abc import Collection, Mapping
from itertools import product
from typing import Any

from fedmed.aggregation.buffers import is_batch_norm_buffer
from fedmed.aggregation.sharing import Patterns, SharingPolicy
from fedmed.jobs.plan import ROLES, TRAINING_ROLES, Plan
from fedmed.methods.private_group import of_role


def policy_of_round(
    names: Collection[str],
    groups: Mapping[str, list[str]],
    round: int,
    *,
    sharing: str,
    buffers: str,
    warm_start_rounds: int,
    warm_start_sharing: str | None,
    sends: str | None = None,
) -> SharingPolicy:
    """A site's policy in a round, from its own copy of the job; the server's :class:`RolePolicies` are the same.

    Args:
        names: the model's tensors.
        groups: the network's sharing groups, from the bundle.
        round: counted from 0.
        sharing: the role's group.
        buffers: policy for BatchNorm buffers.
        warm_start_rounds: length of the warm start.
        warm_start_sharing: group during the warm start; None = ``sharing``. With ``full``, the layers that become
            private later are trained together first, so that sites without labels start from a trained model.
        sends: group that the role sends, in every round, if less than it receives.
    """
    warm = max(round, 0) < warm_start_rounds  # -1 is the starting model
    group = warm_start_sharing if warm and warm_start_sharing is not None else sharing
    return SharingPolicy.from_groups(names, group, groups, buffers, sends)


class RolePolicies:
    """What each role receives, sends and keeps.

    Args:
        names: the model's tensors.
        groups: the network's sharing groups, from the bundle.
        plan: roles and warm start.
        aggregator: what the job says of sharing: ``sharing``, one group for all roles or role -> group;
            ``warm_start_sharing`` and ``buffers``, see :func:`policy_of_round`, the latter also role -> policy; and
            ``sends``, role -> group of a role that sends less than it receives.
    """

    def __init__(
        self, names: Collection[str], groups: Mapping[str, list[str]], plan: Plan, aggregator: Mapping[str, Any]
    ) -> None:
        self.names, self._warm_rounds = list(names), plan.warm_start_rounds
        sharing, sends = aggregator.get("sharing", "full"), aggregator.get("sends", {})
        by_role = dict(sharing) if isinstance(sharing, Mapping) else dict.fromkeys(TRAINING_ROLES, sharing)
        by_role.setdefault("evaluate", by_role.get("supervised", "full"))
        early, buffers = aggregator.get("warm_start_sharing"), aggregator.get("buffers", "average")
        self._policies, self._layers = {}, {}
        for role, warm in product(ROLES, (False, True)):
            group = (early if warm else None) or by_role.get(role, "full")
            kept = of_role(buffers, role)
            policy = SharingPolicy.from_groups(self.names, group, groups, kept, sends.get(role))
            self._policies[role, warm] = policy
            # Private layers without the BatchNorm statistics that only `buffers` keeps private.
            self._layers[role, warm] = Patterns(groups.get(group, [])).select(self.names)

    def of(self, role: str, round: int) -> SharingPolicy:
        """The policy of a role in a round."""
        return self._policies[role, max(round, 0) < self._warm_rounds]

    def borrowed(self, role: str, round: int, trained: bool) -> list[str]:
        """Private names that a site of this role must borrow to be scored.

        One that ``trained`` uses its own BatchNorm statistics of shared layers, which ``buffers: local`` keeps private.
        """
        warm = max(round, 0) < self._warm_rounds
        return self._layers[role, warm] if trained else self.of(role, round).private(self.names)

    def lent_statistics(self, role: str, round: int) -> list[str]:
        """BatchNorm statistics that a role keeps to itself and labelled sites share: what a site begins with, and is
        scored with as long as it has none of its own.
        """
        shared = set(filter(is_batch_norm_buffer, self.of("supervised", round).sent(self.names)))
        return [name for name in self.of(role, round).private(self.names) if name in shared]

    def scorable(self, role: str, round: int) -> bool:
        """Whether a site of this role holds every tensor it needs to be scored.

        A site without labels never trains a private decoder against truth, and a site that never trains has no
        private tensors at all; private BatchNorm statistics alone are no obstacle for a site that trains.
        """
        private = self.of(role, round).private(self.names)
        only_buffers = all(is_batch_norm_buffer(name) for name in private)
        return not private or role == "supervised" or (role == "unsupervised" and only_buffers)
