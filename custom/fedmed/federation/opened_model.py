"""A task's model at a site: built anew, then filled with what was received and what the site kept to itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from monai.bundle import ConfigParser
from torch import Tensor, nn

from fedmed.aggregation.sharing import SharingPolicy
from fedmed.bundles.bundle import Bundle
from fedmed.bundles.network import initial_network, merge, named_tensors, parsed
from fedmed.errors import StateError
from fedmed.jobs.role_sharing import policy_of_round
from fedmed.messages.task import OWN, Task
from fedmed.recovery.site_state import OWN_BEST, SiteState


@dataclass(frozen=True)
class OpenedModel:
    """A task's model at a site.

    Attributes:
        parser: the bundle's configuration for the task.
        network: filled with ``tensors``.
        policy: which tensors the site receives, sends and keeps.
        tensors: before training.
        state: what the site kept of the round that it goes on from, or of its own best model; ``{}`` at its start.
    """

    parser: ConfigParser
    network: nn.Module
    policy: SharingPolicy
    tensors: Mapping[str, Tensor]
    state: Mapping[str, Any]

    def optimizer(self, persist: bool) -> Any:
        """The bundle's optimizer, with the state of the round before if it shall persist."""
        optimizer = parsed(self.parser, "optimizer")
        if persist and "optimizer" in self.state:
            rates = [group["lr"] for group in optimizer.param_groups]
            optimizer.load_state_dict(self.state["optimizer"])
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate  # the bundle's for this round, not the one of the round before
        return optimizer


def open_model(
    parser: ConfigParser, bundle: Bundle, seed: int, task: Task, kept: SiteState, sharing: Mapping[str, Any]
) -> OpenedModel:
    """Build the model of a task.

    Args:
        parser: the bundle's configuration for the task.
        bundle: names the sharing groups.
        seed: the job's seed.
        task: carries what the site receives.
        kept: what the site keeps on its disk.
        sharing: arguments of :func:`fedmed.jobs.role_sharing.policy_of_round` for the site's role.

    Raises:
        SharingError: what was received does not fit the network.
        StateError: what the site kept is missing or damaged.
    """
    network = initial_network(parser, seed)
    own = named_tensors(network)
    policy = policy_of_round(own, bundle.groups(network), task.round, **sharing)
    if task.model == OWN:  # whole, with private layers: nothing of it comes with the task
        best = kept.best()
        if not best:
            raise StateError(f"there is no {kept.folder / OWN_BEST}: this site has scored no model of the run")
        network.load_state_dict(best["tensors"], strict=True)
        return OpenedModel(parser, network, policy, best["tensors"], best)
    needs_state = task.name == "train" or policy.private(own)
    state = kept.load(task.private_round) if needs_state else {}
    received = kept.held(task.round) if task.reuse else task.tensors
    tensors = merge({**own, **state.get("private", {})}, received, policy.received(own))
    network.load_state_dict(tensors, strict=True)
    return OpenedModel(parser, network, policy, tensors, state)
