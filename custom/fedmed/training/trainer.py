"""Engines that keep their state from round to round, and that of images with labels."""

from collections.abc import Generator, Iterable, Mapping
from typing import Any, ClassVar

import torch
from monai.engines import SupervisedTrainer, Trainer
from torch import Tensor, nn

from fedmed.data.listed_images import plain
from fedmed.errors import DataError, JobError, StateError


def plain_batch(
    batch: Mapping[str, Any], device: torch.device | str | None = None, non_blocking: bool = False, **kwargs: Any
) -> tuple[Tensor, Tensor | None]:
    """Return ``image`` and ``label`` (None without one) on the device, as plain tensors."""
    where = {"device": device, "non_blocking": non_blocking, **kwargs}
    label = batch.get("label")
    return plain(batch["image"]).to(**where), plain(label).to(**where) if isinstance(label, Tensor) else None


def endless(loader: Iterable[Mapping[str, Any]] | None, empty: str) -> Generator[Mapping[str, Any], None, None]:
    """Batches of the loader, begun again when exhausted. Closing the generator ends the loader's worker processes.

    Raises:
        DataError: it has none; says ``empty``.
    """
    while True:
        batch = None
        for batch in loader or ():
            yield batch
        if batch is None:
            raise DataError(empty)


def on_gpu(device: torch.device | str) -> bool:
    """Whether mixed precision pays: float16 autocast is used on CUDA devices alone."""
    return torch.device(device).type == "cuda"


def restore(module: nn.Module, state: Mapping[str, Tensor], what: str) -> None:
    """Load what a site kept of an earlier round into ``what``.

    Raises:
        StateError: it is of another network.
    """
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise StateError(
            f"the site's kept {what} does not fit the network: {error}. Continue with the network it was made with, "
            "or start a new job"
        ) from error


class StatefulTrainer(Trainer):
    """A trainer whose GradScaler lives as long as the trainer, and travels in its state.

    ``monai.engines.Trainer.run`` makes a new scaler each time. Its scale would start at 65536 again in every round,
    and the first steps of every round, whose gradients overflow, would be skipped.

    A method whose sites exchange more than model differences overrides :meth:`receive`, :meth:`extras` or both.

    Attributes:
        takes_corrections: whether it trains by steps of ``optimizer``, which corrections can change (see
            :mod:`fedmed.training.corrections.correction`).
        samples: images that the last :meth:`run` processed, where these are what a site counts by: such an engine
            begins with 0 and adds to it in each iteration. None: a site counts by the images that it has.
    """

    takes_corrections: ClassVar[bool] = True
    samples: int | None = None
    scaler: torch.amp.GradScaler | None  # type: ignore[assignment] # MONAI names a deprecated subclass

    def run(self) -> None:  # type: ignore[override] # MONAI gives its data at construction
        """Train ``max_epochs`` epochs."""
        if self.samples is not None:
            self.samples = 0
        self.scaler = self._kept_scaler()
        super(Trainer, self).run()  # not Trainer.run, which replaces the scaler

    def state_dict(self) -> dict[str, Any]:  # type: ignore[override] # Ignite's is an OrderedDict
        """What must outlive a round besides model and optimizer: the scaler's state, ``{}`` without one.

        Unlike Ignite's, it holds no epoch or iteration: every round is a run of its own.
        """
        scaler = self._kept_scaler()
        return {} if scaler is None else {"scaler": scaler.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Accept what :meth:`state_dict` returned, also ``{}``, and also from a site that has changed its device."""
        scaler = self._kept_scaler()
        if scaler is not None and state_dict.get("scaler"):
            scaler.load_state_dict(dict(state_dict["scaler"]))

    def receive(self, extras: Mapping[str, Any]) -> None:
        """Take what came with the round's task besides the model; called before :meth:`run`.

        Raises:
            JobError: there is something, but this engine uses nothing of the kind.
        """
        if extras:
            raise JobError(
                f"{type(self).__name__} has no use for {', '.join(sorted(extras))}, which came with the task; use an "
                "overlay whose engine or corrections take it, or a job without 'exchange' or such a rule"
            )

    def extras(self) -> dict[str, float | Tensor]:
        """What leaves the site besides the model's difference, after :meth:`run`; nothing unless overridden."""
        return {}

    def backward(self, loss: Tensor) -> None:
        """Add the loss's gradients to those there are."""
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def step(self, optimizer: torch.optim.Optimizer, max_grad_norm: float | None = None) -> None:
        """One optimizer step, with gradients clipped to a norm; under mixed precision skipped when one overflowed."""
        if max_grad_norm is not None:
            if self.scaler is not None:
                self.scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], max_grad_norm)
        if self.scaler is None:
            optimizer.step()
        else:
            self.scaler.step(optimizer)
            self.scaler.update()

    def _kept_scaler(self) -> torch.amp.GradScaler | None:
        if self.amp and self.scaler is None:
            self.scaler = torch.amp.GradScaler("cuda")
        return self.scaler


class SupervisedEngine(StatefulTrainer, SupervisedTrainer):
    """``monai.engines.SupervisedTrainer`` without its per-iteration costs, and with a GradScaler that is kept.

    One iteration: ``loss_function(inferer(image, network), label)``, backward, one optimizer step. Batches are not
    decollated, gradients are set to None, tensors are plain.

    Args:
        device, args, kwargs: as in ``monai.engines.SupervisedTrainer``; ``amp``, float16 mixed precision, has an
            effect on CUDA devices only.

    ``engine.state.output`` has ``image``, ``label``, ``pred`` and the scalar ``loss``.
    """

    def __init__(self, device: torch.device | str, *args: Any, **kwargs: Any) -> None:
        lean = {"decollate": False, "optim_set_to_none": True, "non_blocking": True, "prepare_batch": plain_batch}
        amp = kwargs.pop("amp", False) and on_gpu(device)
        super().__init__(device, *args, **{**lean, **kwargs, "amp": amp})
