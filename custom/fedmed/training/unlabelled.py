"""Base classes of engines that learn from images without labels, and the mean teacher of some."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, ClassVar

import torch
from monai.engines.utils import IterationEvents
from monai.inferers import Inferer, SimpleInferer
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from fedmed.data.augment import Augment, weak_view
from fedmed.errors import DataError, FedMedError
from fedmed.training.trainer import (
    StatefulTrainer,
    endless,
    on_gpu,
    plain_batch,
    restore,
    scaled_learning_rate,
    sigmoid_ramp_up,
)

KINDS = ("current", "ema")


def build_teacher(kind: str, network: nn.Module, decay: float = 0.99) -> AveragedModel | None:
    """Return the model that makes pseudo-labels, or None when the student itself makes them.

    ``teacher.update_parameters(student)`` copies the student at its first call, and from then on moves each
    parameter to ``decay * teacher + (1 - decay) * student``. Buffers, such as BatchNorm's statistics, are always
    copied from the student. ``teacher(x)`` is a pass in eval mode; the student is never changed.

    Args:
        kind: ``current``, the student itself makes them (Yang et al. 2021, Eq. 4): None. ``ema``: a teacher, which
            costs the memory of one more set of weights.
        network: the student, whose structure the teacher copies.
        decay: in [0, 1); 0.99 averages about the last 100 steps, 0 is the student after its last step.

    Raises:
        FedMedError: an unknown kind, or a decay outside [0, 1).
    """
    if kind not in KINDS:
        raise FedMedError(f"teacher is {kind!r}; use one of {', '.join(KINDS)}")
    if not 0 <= decay < 1:
        raise FedMedError(f"ema_decay is {decay}; use a number from 0 to below 1, such as 0.99: 1 changes nothing")
    if kind == "current":
        return None
    teacher = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(decay))
    return teacher.requires_grad_(False).eval()


class UnlabelledTrainer(StatefulTrainer):
    """Keeps network and optimizer, and trains without MONAI's per-iteration costs.

    Args:
        device, network, optimizer: as in ``monai.engines.SupervisedTrainer``.
        max_epochs: passes of ``epoch_length`` iterations.
        unlabeled_loader: batches with ``image``; other keys are ignored. DataError without one.
        epoch_length: iterations; default: batches in ``unlabeled_loader``.
        amp: float16 mixed precision; has an effect on CUDA devices only.
        train_handlers: Ignite handlers.
        prepare_batch: gives images, and labels that are not used, on the device.
    """

    lists: ClassVar[str] = "'unlabeled'"  # of a datalist, in which it finds images

    def __init__(
        self,
        device: torch.device | str,
        max_epochs: int,
        unlabeled_loader: Iterable[Mapping[str, Any]] | None,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        epoch_length: int | None = None,
        amp: bool = False,
        train_handlers: Sequence[Any] | None = None,
        prepare_batch: Callable[..., Any] = plain_batch,
    ) -> None:
        if unlabeled_loader is None:
            raise DataError(f"{type(self).__name__} has no images to train on; list some under {self.lists}")
        super().__init__(
            device=device,
            max_epochs=max_epochs,
            data_loader=unlabeled_loader,
            epoch_length=epoch_length,
            non_blocking=True,
            prepare_batch=prepare_batch,
            handlers=train_handlers,
            amp=amp and on_gpu(device),
            decollate=False,
        )
        self.network, self.optimizer = network, optimizer


class PseudoLabelTrainer(UnlabelledTrainer):
    """Semi-supervised training at one site; a subclass says what the pseudo-label is, and the loss of it.

    One iteration:

    1. what the student shall learn from the un-augmented patch, :meth:`targets`, by models in eval mode without
       gradient; BatchNorm statistics are not touched;
    2. if there is a labelled loader, the supervised loss of one of its batches;
    3. the prediction of the augmented patch, in train mode, and :meth:`unlabelled_loss`;
    4. one optimizer step on ``supervised_weight`` · supervised + ``unlabelled_weight`` · unlabelled loss. Each
       loss is differentiated as soon as it is known, so only one graph is in memory.

    Two options:

    - ``teacher``: pseudo-labels come from a moving average of the models that the student was at this site. The
      received model counts as one of them: a new teacher starts as its copy, one of an earlier round makes one step
      towards it. The teacher is private: it is part of :meth:`state_dict` and never enters the network.
    - ``ramp_up_steps``: the unlabelled part grows with :func:`sigmoid_ramp_up` over the first steps of all the
      site's rounds together. With labelled cases that is a factor of ``unlabelled_weight``. Without, it is a
      factor of the learning rate, because the size of Adam's steps does not depend on the scale of its only loss.

    Args:
        device, max_epochs, unlabeled_loader, network, optimizer, trainer: as in :class:`UnlabelledTrainer`.
        augment: makes the student's view of a batch; a :class:`fedmed.data.augment.Augment` may make the
            pseudo-label's view too. Default: both see the patch as it is.
        labeled_loader: batches ``{"image", "label"}``, begun again when exhausted; None = unlabelled images only.
        supervised_loss: called with (inferer's result, label); needed with ``labeled_loader``.
        supervised_weight, unlabelled_weight: factors of the two losses.
        inferer: ``inferer(images, network)`` returns probabilities (B, C, ...); default: the network returns them.
        teacher: from :func:`fedmed.training.unlabelled.build_teacher`; None = the current model.
        ramp_up_steps: length of the ramp-up in iterations; 0 = none.

    ``engine.state.output`` has detached scalars: ``loss`` (what was minimised), those of :meth:`targets`, and with
    labelled cases ``supervised_loss`` and ``unlabelled_loss``, unweighted; with a ramp-up its factor, ``ramp_up``.

    Raises:
        DataError: there is no unlabelled loader.
        FedMedError: labelled cases without a supervised loss; a negative ramp-up.
    """

    def __init__(
        self,
        device: torch.device | str,
        max_epochs: int,
        unlabeled_loader: Iterable[Mapping[str, Any]] | None,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        augment: Callable[[Tensor], Tensor] | None = None,
        labeled_loader: Iterable[Mapping[str, Any]] | None = None,
        supervised_loss: Callable[[Tensor, Tensor | None], Tensor] | None = None,
        supervised_weight: float = 1.0,
        unlabelled_weight: float = 1.0,
        inferer: Inferer | None = None,
        teacher: AveragedModel | None = None,
        ramp_up_steps: int = 0,
        **trainer: Any,
    ) -> None:
        name = type(self).__name__
        if labeled_loader is not None and supervised_loss is None:
            raise FedMedError(f"{name}: labeled_loader is given without supervised_loss; give both or none")
        if ramp_up_steps < 0:
            raise FedMedError(f"{name}: ramp_up_steps is {ramp_up_steps}; use 0 (none) or more iterations")
        super().__init__(device, max_epochs, unlabeled_loader, network, optimizer, **trainer)
        self.augment, self.inferer = augment or Augment(), inferer or SimpleInferer()
        self.supervised_loss = None if labeled_loader is None else supervised_loss
        self.supervised_weight, self.unlabelled_weight = supervised_weight, unlabelled_weight
        self.labeled_loader, self.teacher = labeled_loader, teacher
        self.ramp_up_steps, self.steps_done = ramp_up_steps, 0

    def run(self) -> None:  # type: ignore[override] # as in StatefulTrainer
        """Train ``max_epochs`` epochs."""
        self._teach()
        empty = "the loader of labelled cases is empty; give it cases, or leave it out"
        with closing(endless(self.labeled_loader, empty)) as self._labeled:
            super().run()

    def state_dict(self) -> dict[str, Any]:  # type: ignore[override] # as in StatefulTrainer
        """State that must outlive a round besides model and optimizer: also the teacher, and steps of the ramp-up."""
        teacher = {} if self.teacher is None else {"teacher": dict(self.teacher.state_dict())}
        return super().state_dict() | teacher | ({"steps_done": self.steps_done} if self.ramp_up_steps else {})

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Accept a state, also of a round without these options; StateError for a teacher of another network."""
        super().load_state_dict(state_dict)
        self.steps_done = state_dict.get("steps_done", 0)
        if self.teacher is not None and "teacher" in state_dict:
            restore(self.teacher, state_dict["teacher"], "teacher")

    def _iteration(self, engine: "PseudoLabelTrainer", batchdata: dict[str, Any]) -> dict[str, Tensor]:
        images, _ = self.prepare_batch(batchdata, self.state.device, self.non_blocking)
        alone, ramp_up = self.supervised_loss is None, sigmoid_ramp_up(self.steps_done, self.ramp_up_steps)
        weight = self.unlabelled_weight * (1.0 if alone else ramp_up)
        targets, output = self.targets(images)
        self.network.train()
        self.optimizer.zero_grad(set_to_none=True)
        supervised = None if self.supervised_loss is None else self._supervised(self.supervised_loss)
        q = self._forward(self.student_view(images, batchdata), self.network)
        self.fire_event(IterationEvents.FORWARD_COMPLETED)
        loss = self.unlabelled_loss(q, targets)
        self.fire_event(IterationEvents.LOSS_COMPLETED)
        self.backward(weight * loss)
        unlabelled = loss.detach()
        self.fire_event(IterationEvents.BACKWARD_COMPLETED)
        with scaled_learning_rate(self.optimizer, ramp_up if alone else 1.0):
            self.step(self.optimizer)
        self._teach()
        self.steps_done += 1
        output["loss"] = weight * unlabelled
        if supervised is not None:
            output["loss"] = self.supervised_weight * supervised + output["loss"]
            output |= {"supervised_loss": supervised, "unlabelled_loss": unlabelled}
        if self.ramp_up_steps:
            output["ramp_up"] = torch.full((), ramp_up, device=images.device)
        self.state.output = output
        self.fire_event(IterationEvents.MODEL_COMPLETED)
        return output

    @abstractmethod
    def targets(self, images: Tensor) -> tuple[Any, dict[str, Tensor]]:
        """Return what the student shall learn from these images, for :meth:`unlabelled_loss`, and scalars of it."""

    @abstractmethod
    def unlabelled_loss(self, q: Tensor, targets: Any) -> Tensor:
        """Return the scalar loss of the student's probabilities (B, C, ...)."""

    def student_view(self, images: Tensor, batchdata: Mapping[str, Any]) -> Tensor:
        """Return what the student sees of a batch, (B, C, ...)."""
        return self.augment(images)

    def pseudo_label(self, images: Tensor) -> Tensor:
        """Return probabilities (B, C, ...) by the teacher, or else the current model, constant."""
        return self.predicted(images, self.network if self.teacher is None else self.teacher)

    def predicted(self, images: Tensor, model: nn.Module) -> Tensor:
        """Return probabilities (B, C, ...) of the pseudo-label's view, by a model in eval mode, constant."""
        with torch.no_grad():
            return self._forward(weak_view(self.augment, images), model.eval()).float()

    def _teach(self) -> None:
        if self.teacher is not None:
            self.teacher.update_parameters(self.network)

    def _supervised(self, criterion: Callable[[Tensor, Tensor | None], Tensor]) -> Tensor:
        images, labels = self.prepare_batch(next(self._labeled), self.state.device, self.non_blocking)
        loss = criterion(self._forward(images, self.network), labels)
        self.backward(self.supervised_weight * loss)
        return loss.detach()

    def _forward(self, images: Tensor, model: nn.Module) -> Tensor:
        with torch.autocast("cuda", enabled=self.amp):
            return self.inferer(images, model)
