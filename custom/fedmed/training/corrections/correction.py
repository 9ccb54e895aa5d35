"""Base class of corrections, which change gradients, images or the loss at every step of any engine."""

from collections.abc import Callable, Collection, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fedmed.errors import StateError

Parameters = Mapping[str, nn.Parameter]
Infer = Callable[[Tensor], Any]
BLOCK = 131_072  # numbers looked at together: a few blocks lie in a core's cache


class Images(Sized, Protocol):
    """A list of images without augmentation: ``[i]["image"]`` is (C, ...) in [0, 1], not normalised."""

    def __getitem__(self, index: int) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class RoundStart:
    """Facts for a correction at the beginning of a round's training.

    Attributes:
        received: name -> tensor that the site received, on the network's device; not to be changed.
        shared: names of the tensors whose differences the site sends back; the rest of ``received`` only comes.
        values: name -> what the server's rule sent for this site beside the model; only names in ``takes``.
        round, rounds: this round, counted from 0, and those that the job plans.
        steps: optimizer steps of this round.
        steps_before, steps_total: of all rounds before this one, and of all rounds, if each has so many.
        parameters: the network's, by name, also those that stay at the site.
        before_batch: to be called before each batch that a correction looks at by itself; may raise to stop.
    """

    received: Mapping[str, Tensor]
    shared: frozenset[str] = frozenset()
    values: Mapping[str, Any] = field(default_factory=dict)
    round: int = 0
    rounds: int = 1
    steps: int = 0
    steps_before: int = 0
    steps_total: int = 0
    parameters: Parameters = field(default_factory=dict)
    before_batch: Callable[[], None] = lambda: None

    def shared_parameters(self) -> dict[str, Tensor]:
        """Return the received parameters whose differences the site sends back; no buffers."""
        return {name: self.received[name] for name in self.parameters if name in self.shared}


@dataclass(frozen=True)
class StepBatch:
    """Facts for a loss term about a training step's batch.

    Attributes:
        labels: what the site's labels say of the images, as the engine's own loss gets it; None = it learns of images
            without labels.
    """

    labels: Tensor | None = None

    @property
    def labelled(self) -> bool:
        """True where the batch has labels."""
        return self.labels is not None


class Correction:
    """Does nothing; a method's correction overrides what it needs. Nothing but :meth:`loss` is recorded for gradients.

    Attributes:
        takes: names of the values beside the model that it uses.
        features_layer: name of the network's module whose input are the features of :meth:`loss`; empty = the last
            one that has parameters, such as a classifier.
    """

    takes: Collection[str] = ()
    features_layer: str = ""

    @property
    def decision(self) -> str:
        """Its decision at this site, in words, for the site's own files; empty where it decides nothing."""
        return ""

    def begin(self, start: RoundStart) -> None:
        """Act before the round's first step, with the network as received."""

    def before_iteration(self, done: int) -> None:
        """Act before each iteration, also one whose step mixed precision will skip; ``done`` counts those before it."""

    def change_images(self, images: Tensor) -> Tensor:
        """Return a batch of training images, (B, C, ...), as the network shall see it, in the same shape.

        They are augmented, lie on the engine's device, and are not normalised in bundles whose networks do that.
        """
        return images

    def loss(self, images: Tensor, features: Tensor, batch: StepBatch) -> Tensor | None:
        """Return a scalar that is added to the step's loss and differentiated with it; None adds nothing.

        Gradients are recorded, and the engine's own forward pass is used: there is no second one.

        Args:
            images: (B, C, ...) as the network got them in that pass.
            features: what :attr:`features_layer` got, (B, ...).
            batch: whether these have labels.
        """
        return None

    def change_scored_images(self, images: Tensor) -> Tensor:
        """Return images that a model is scored with, changed likewise, after :meth:`load_state_dict`."""
        return images

    def begin_scoring(self, images: Images, values: Mapping[str, Any]) -> None:
        """Act at a site that never trains, in place of :meth:`begin`, before it scores a model.

        Args:
            images: those that will be scored, without their labels; read when asked for.
            values: what came with the task beside the model; only names in ``takes``.
        """

    def change_network(self, network: nn.Module, infer: Infer, change_images: Callable[[Tensor], Tensor]) -> None:
        """Change a received model before it is scored.

        Args:
            network: the model.
            infer: of images (B, C, ...) what the network makes of them, by windows where they are large.
            change_images: what all corrections make of a batch.
        """

    @classmethod
    def inference_settings(cls, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ids of a bundle's ``inference`` -> values with which images are seen so outside of a federation too.

        Args:
            state: what :meth:`state_dict` returned.
        """
        return {}

    def before_step(self, parameters: Parameters) -> None:
        """Act before each optimizer step.

        Args:
            parameters: the network's, by name. ``grad`` is that of the loss alone, also under mixed precision, whose
                scale is divided out; it is None where the loss does not depend on the parameter. Add to it in place.
        """

    def after_step(self, parameters: Parameters) -> None:
        """Act after each optimizer step, but not after one that mixed precision skipped for an overflow."""

    def end(self, parameters: Parameters) -> None:
        """Act after the round's last step."""

    def extras(self) -> dict[str, Any]:
        """Numbers, tensors, or mappings of them, that leave beside the model's difference if the site allows it."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """State that must outlive the round: plain values and tensors."""
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take what :meth:`state_dict` returned, not in a site's first round; StateError if of another network."""


def check_kept(kept: Mapping[str, Tensor], parameters: Mapping[str, Tensor], what: str) -> None:
    """Refuse a state, name -> tensor, that is not of this network, by a StateError that names the tensor."""
    for name, tensor in kept.items():
        here = tuple(parameters[name].shape) if name in parameters else "missing"
        if here != tuple(tensor.shape):
            raise StateError(
                f"the site's kept {what} are of another network: '{name}' is {tuple(tensor.shape)} there and {here} "
                "here; use the same job, or start a new run"
            )


def add_pull(gradient: Tensor, weights: Tensor, received: Tensor, strength: float) -> None:
    """Add ``strength · (weights - received)`` to ``gradient``, in place.

    On a CPU block by block, which changes no bit: the difference of a large layer as a whole would be new memory in
    each step, and to get that takes longer than the sums.

    Args:
        gradient, weights, received: of one shape, device and dtype.
    """
    tensors = (gradient, weights.detach(), received)
    if gradient.device.type != "cpu" or not all(tensor.is_contiguous() for tensor in tensors):
        gradient.add_(tensors[1] - received, alpha=strength)
        return
    difference = gradient.new_empty(min(BLOCK, gradient.numel()))
    for part, here, there in zip(*(tensor.view(-1).split(BLOCK) for tensor in tensors), strict=True):
        part.add_(torch.sub(here, there, out=difference[: part.numel()]), alpha=strength)
