"""Choice of the tensors that are shared, and rules for statistics, counters and constants."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor, nn

from fedmed.errors import SharingError

POLICIES = ("average", "pooled", "local")
_SUFFIXES = ("running_mean", "running_var", "num_batches_tracked")
log = logging.getLogger("fedmed.sharing")
FULL = "full"
NORM = "norm"  # a group that every network has: its normalisation layers
_NORMALISING = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
_BUFFERS = rf"(^|\.)({'|'.join(_SUFFIXES)})$"


def classify(name: str, tensor: Tensor) -> str:
    """Return how a named tensor is aggregated.

    ``parameter``
        floating point: weighted mean.
    ``running_mean``, ``running_var``
        BatchNorm statistics, by the last part of the name: as the buffer policy says.
    ``counter``
        an integer ``num_batches_tracked``: the maximum over the senders, never a mean.
    ``constant``
        any other integer or boolean tensor (an index table, a mask): a mean has no meaning, so a site may not change
        it. One that training does change, like the pointer of a queue, must be private.
    """
    last = name.rpartition(".")[2]
    if tensor.is_floating_point():
        return last if last in _SUFFIXES[:2] else "parameter"
    return "counter" if last == _SUFFIXES[2] else "constant"


def is_batch_norm_buffer(name: str) -> bool:
    """True for the name of a BatchNorm statistic or counter; ``buffers: local`` keeps these at the site."""
    return name.rpartition(".")[2] in _SUFFIXES


def changed(difference: Tensor) -> bool:
    """True where a difference has any element other than zero (or False)."""
    return bool(difference.count_nonzero())


def maximum(base: Tensor, differences: Sequence[Tensor]) -> Tensor:
    """Return the element-wise maximum over the senders of ``base + difference``, exact, in the dtype of ``base``."""
    return torch.stack([base + difference for difference in differences]).amax(dim=0).to(base.dtype)


@torch.no_grad()
def pooled_variance(
    mean: Tensor,
    variance: Tensor,
    mean_differences: Sequence[Tensor],
    variance_differences: Sequence[Tensor],
    coefficients: Sequence[float],
) -> Tensor:
    """Return the variance of the sites' pooled activations, ``sum_k c_k (var_k + (mean_k - pooled mean)^2)``.

    Equal to ``sum_k c_k (var_k + mean_k^2) - (sum_k c_k mean_k)^2``, without its cancellation.

    Args:
        mean, variance: global running statistics, shape (channels,); the result has the dtype of the second.
        mean_differences, variance_differences: one for each site, same shape.
        coefficients: one for each site; they must sum to 1.
    """
    weights = torch.tensor(list(coefficients), dtype=torch.float64).view(-1, *[1] * mean.dim())
    means = torch.stack([mean.double() + difference.double() for difference in mean_differences])
    variances = torch.stack([variance.double() + difference.double() for difference in variance_differences])
    spread = means - (weights * means).sum(dim=0)
    return (weights * (variances + spread.square())).sum(dim=0).to(variance.dtype)


@dataclass(frozen=True)
class Patterns:
    """A choice of tensor names by regular expressions, found anywhere in the name (``re.search``); exclude wins.

    Anchor a pattern that must match at the start: ``final`` also matches ``up0.final_conv``, ``^final\\.`` does not.
    """

    include: Sequence[str] = (".*",)
    exclude: Sequence[str] = ()

    def __post_init__(self) -> None:
        for pattern in (*self.include, *self.exclude):
            try:
                re.compile(pattern)
            except (re.error, TypeError) as error:
                raise SharingError(f"sharing pattern {pattern!r} is not a regular expression: {error}") from error

    def select(self, names: Iterable[str]) -> list[str]:
        """Return the chosen names in their given order."""
        return [name for name in names if _hit(self.include, name) and not _hit(self.exclude, name)]


@dataclass(frozen=True)
class SharingPolicy:
    """Tensors that one role receives from the server, and those it sends back; the rest is private, on its disk.

    A role may receive more than it sends (a head that only labelled sites train). It may not send what it does not
    receive: an update is a difference to the received value.
    """

    receive: Patterns = field(default_factory=Patterns)
    send: Patterns = field(default_factory=Patterns)

    @classmethod
    def from_groups(
        cls,
        names: Iterable[str],
        group: str,
        groups: Mapping[str, Sequence[str]],
        buffers: str = "average",
        send_group: str | None = None,
    ) -> "SharingPolicy":
        """Build a policy from the groups that a bundle defines, and check it against the network's names.

        Args:
            names: all tensor names of the network; with a mapping name -> tensor the sizes are logged too.
            group: what the role receives: all but the tensors of this group. ``full`` receives everything.
            groups: group -> patterns of the names that are NOT shared.
            buffers: ``local`` keeps BatchNorm statistics and counters private too.
            send_group: what the role sends, if less than it receives; the same group when None.

        Raises:
            SharingError: an unknown group or buffer policy, a pattern that matches no name, a private set that is
                everything, or one that is empty although one was asked for.
        """
        names = names if isinstance(names, Mapping) else list(names)
        if buffers not in POLICIES:
            raise SharingError(f"buffer policy '{buffers}' is unknown; use one of {', '.join(POLICIES)}")
        local = [_BUFFERS] if buffers == "local" else []
        if local and not any(is_batch_norm_buffer(name) for name in names):
            raise SharingError("buffers 'local': this network has no BatchNorm statistics to keep; use 'average'")
        receive = Patterns(exclude=[*_group(names, group, groups), *local])
        send = Patterns(exclude=[*receive.exclude, *_group(names, send_group or group, groups)])
        policy = cls(receive, send)
        policy.check(names, private=group != FULL or bool(local), what=f"sharing group '{group}'")
        parts = {"receives": policy.received, "sends": policy.sent, "keeps private": policy.private}
        sizes = ", ".join(f"{verb} {_size(names, select(names))}" for verb, select in parts.items())
        log.info("sharing group '%s', buffers '%s': %s", group, buffers, sizes)
        return policy

    def received(self, names: Iterable[str]) -> list[str]:
        """Return the names that the site takes from the server."""
        return self.receive.select(names)

    def sent(self, names: Iterable[str]) -> list[str]:
        """Return the names whose differences leave the site."""
        return self.send.select(names)

    def private(self, names: Iterable[str]) -> list[str]:
        """Return the names that neither come from the server nor leave the site, which keeps them on its disk."""
        names = list(names)
        public = {*self.received(names), *self.sent(names)}
        return [name for name in names if name not in public]

    def check(self, names: Iterable[str], private: bool = False, what: str = "sharing policy") -> None:
        """Refuse, by a SharingError, a policy that makes no sense for a network with these names.

        Args:
            names: all tensor names of the network; some must be received and sent, and all that are sent received.
            private: something must be private: a personalised method with nothing private is FedAvg.
            what: name of the policy in an error.
        """
        names = list(names)
        received, sent = self.received(names), self.sent(names)
        if not received or not sent:
            verb = "received" if not received else "sent"
            raise SharingError(f"{what}: none of the {len(names)} tensors is {verb}; a federation must share something")
        if blind := sorted(set(sent) - set(received)):
            raise SharingError(f"{what}: '{blind[0]}' is sent but not received; include it in what the role receives")
        if private and not self.private(names):
            raise SharingError(f"{what}: no tensor is private, so this would be plain averaging; ask for '{FULL}'")


def norm_layers(network: nn.Module) -> list[str]:
    """Patterns of the tensors of a network's normalisation layers: BatchNorm, InstanceNorm, GroupNorm, LayerNorm."""
    layers = [name for name, layer in network.named_modules() if isinstance(layer, _NORMALISING) and layer.state_dict()]
    return [rf"^{re.escape(name)}\." for name in layers]


def tensor_bytes(tensors: Mapping[str, Tensor], names: Iterable[str] | None = None) -> int:
    """Return the bytes of the named tensors (of all, when None): what they weigh on the wire, without framing."""
    return sum(tensors[name].numel() * tensors[name].element_size() for name in (tensors if names is None else names))


def _hit(patterns: Sequence[str], name: str) -> bool:
    return any(_matches(pattern, name) for pattern in patterns)


@lru_cache(maxsize=1 << 16)  # the same names, each time that a model is opened
def _matches(pattern: str, name: str) -> bool:
    return re.search(pattern, name) is not None


def _group(names: Iterable[str], group: str, groups: Mapping[str, Sequence[str]]) -> list[str]:
    patterns = list(groups.get(group, []))
    known = ", ".join(dict.fromkeys([FULL, *groups]))
    if group != FULL and group not in groups:
        raise SharingError(f"sharing group '{group}' is unknown for this network; it has: {known}")
    if group == FULL and patterns:
        raise SharingError(f"sharing group '{FULL}' shares everything, so it must be empty; it lists {patterns[0]!r}")
    for pattern in Patterns(exclude=patterns).exclude:
        if not any(re.search(pattern, name) for name in names):
            raise SharingError(
                f"sharing group '{group}': pattern {pattern!r} matches no tensor of this network; correct it in the "
                f"bundle's configs/federation.yaml (groups: {known})"
            )
    return patterns


def _size(tensors: Iterable[str], names: Sequence[str]) -> str:
    size = f", {tensor_bytes(tensors, names) / 2**20:.1f} MiB" if isinstance(tensors, Mapping) else ""
    return f"{len(names)} tensors{size}"
