"""Changes of a site's gradients: a term that a federated method adds to any bundle's training.

A bundle's configuration lists them under ``train#corrections``; a federation calls them, a stand-alone training does
not. The proximal term of FedProx (Li et al. 2020, arXiv 1812.06127) is one, the linear term of FedDyn (Acar et al.
2021, arXiv 2111.04263), which keeps a state, another.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from ignite.engine import Engine, Events
from torch import Tensor, nn

from fedmed.errors import BundleError, JobError, StateError

Parameters = Mapping[str, nn.Parameter]
KEY = "corrections"  # of an engine's kept state


@dataclass(frozen=True)
class RoundStart:
    """What a correction knows when a round's training begins.

    Attributes:
        received: name -> tensor that the site received, on the network's device; not to be changed.
        shared: names of the tensors whose differences the site sends back; the rest of ``received`` only comes.
        values: name -> what the server's rule sent for this site beside the model; only names in ``takes``.
        round, rounds: this round, counted from 0, and those that the job plans.
        steps: optimizer steps of this round.
        steps_before, steps_total: of all rounds before this one, and of all rounds, if each has so many.
    """

    received: Mapping[str, Tensor]
    shared: frozenset[str] = frozenset()
    values: Mapping[str, Any] = field(default_factory=dict)
    round: int = 0
    rounds: int = 1
    steps: int = 0
    steps_before: int = 0
    steps_total: int = 0


class Correction:
    """Does nothing; a method's correction overrides what it needs. Nothing is recorded for gradients.

    Attributes:
        takes: names of the values beside the model that it uses.
    """

    takes: Collection[str] = ()

    def begin(self, start: RoundStart) -> None:
        """Before the round's first step, with the network as received."""

    def before_step(self, parameters: Parameters) -> None:
        """Before each optimizer step.

        Args:
            parameters: the network's, by name. ``grad`` is that of the loss alone, also under mixed precision, whose
                scale is divided out; it is None where the loss does not depend on the parameter. Add to it in place.
        """

    def after_step(self, parameters: Parameters) -> None:
        """After each optimizer step; not after one that mixed precision skipped because a gradient overflowed."""

    def end(self, parameters: Parameters) -> None:
        """After the round's last step."""

    def extras(self) -> dict[str, float | Tensor]:
        """What leaves the site beside the model's difference, if its own settings allow it, after :meth:`end`."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What must outlive the round: plain values and tensors."""
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state_dict`; not called in a site's first round.

        Raises:
            StateError: it is of another network.
        """


class Corrections:
    """All corrections of a training, in the order in which the configuration lists them.

    They act by hooks of the optimizer, so they see what it sees: each engine's own way to it, gradient clipping and a
    GradScaler included, stays as it is. Without corrections nothing is added to the engine.

    Args:
        items: the corrections.

    Raises:
        BundleError: one of them is not a correction.
    """

    def __init__(self, items: Sequence[Correction] = ()) -> None:
        for item in items:
            if not isinstance(item, Correction):
                raise BundleError(
                    f"'train#corrections' lists a {type(item).__name__}; list objects of classes that extend "
                    "fedmed.engines.corrections.Correction"
                )
        self.items = list(items)
        self._values: dict[str, Any] = {}

    def receive(self, extras: Mapping[str, Any]) -> dict[str, Any]:
        """Take what came with the task for a correction; return what is left, for the engine."""
        taken = {name for item in self.items for name in item.takes}
        self._values = {name: value for name, value in extras.items() if name in taken}
        return {name: value for name, value in extras.items() if name not in taken}

    def attach(self, engine: Engine, received: Collection[str], shared: Collection[str], **facts: int) -> None:
        """Add to a trainer that has ``network`` and ``optimizer``.

        Args:
            engine: the trainer.
            received: names of the tensors that the site received.
            shared: names of those that it sends back.
            facts: of time, see :class:`RoundStart`.

        Raises:
            JobError: the trainer does not train by the bundle's optimizer.
        """
        if not self.items:
            return
        if not getattr(engine, "takes_corrections", True):
            raise JobError(
                f"{type(engine).__name__} does not train by the bundle's optimizer, so 'train#corrections' would "
                "change nothing; leave that overlay out"
            )
        hooks = []

        def begin() -> None:
            tensors = engine.network.state_dict()
            copies = {name: tensors[name].detach().clone() for name in received}
            for item in self.items:
                values = {name: value for name, value in self._values.items() if name in item.takes}
                item.begin(RoundStart(copies, frozenset(shared), values, **facts))
            hooks.append(engine.optimizer.register_step_pre_hook(before))
            hooks.append(engine.optimizer.register_step_post_hook(after))

        def before(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            if not _overflowed(optimizer):
                _unscale(optimizer)
                self._each("before_step", engine.network)

        def after(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            if not _overflowed(optimizer):
                self._each("after_step", engine.network)

        def end() -> None:
            while hooks:
                hooks.pop().remove()
            self._each("end", engine.network)

        engine.add_event_handler(Events.STARTED, begin)
        engine.add_event_handler(Events.COMPLETED, end)

    @torch.no_grad()
    def _each(self, name: str, network: nn.Module) -> None:
        parameters = dict(network.named_parameters())
        for item in self.items:
            getattr(item, name)(parameters)

    def extras(self) -> dict[str, float | Tensor]:
        """What all of them send."""
        return {name: value for item in self.items for name, value in item.extras().items()}

    def kept_with(self, engine_state: Mapping[str, Any]) -> dict[str, Any]:
        """The engine's state with theirs; the engine's alone without corrections."""
        kept = [{"path": _path(item), "state": item.state_dict()} for item in self.items]
        return {**engine_state, KEY: kept} if kept else dict(engine_state)

    def load_state_dict(self, engine_state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`kept_with` returned; nothing is loaded where it holds no corrections.

        Raises:
            StateError: it is of other corrections, or one of them refuses it.
        """
        kept = engine_state.get(KEY)
        if kept is None:
            return
        theirs, ours = [entry["path"] for entry in kept], [_path(item) for item in self.items]
        if theirs != ours:
            raise StateError(
                f"the site's kept state is of the corrections {theirs}, this job's are {ours}; "
                "use the same job, or start a new run"
            )
        for item, entry in zip(self.items, kept, strict=True):
            item.load_state_dict(entry["state"])


def _path(item: Correction) -> str:
    return f"{type(item).__module__}.{type(item).__qualname__}"


def _overflowed(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a fused optimizer, which a GradScaler calls also then, is about to skip its step."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and bool(found)


def _unscale(optimizer: torch.optim.Optimizer) -> None:
    """Divide the gradients by the scale where a fused optimizer would do that itself, while it steps."""
    scale = getattr(optimizer, "grad_scale", None)
    if scale is None:
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                parameter.grad.div_(scale)
    optimizer.grad_scale = None
