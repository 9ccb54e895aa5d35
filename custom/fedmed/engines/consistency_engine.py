"""Training on images without masks, by consistency with the model's own confident predictions."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import Any

import torch
from monai.engines.utils import IterationEvents
from monai.inferers import Inferer, SimpleInferer
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from fedmed.data.augment import weak_view
from fedmed.engines.schedules import scaled_learning_rate, sigmoid_ramp_up
from fedmed.engines.trainer import endless, restore
from fedmed.engines.unlabelled_trainer import UnlabelledTrainer
from fedmed.errors import FedMedError
from fedmed.losses.consistency_loss import ConsistencyLoss


class ConsistencyEngine(UnlabelledTrainer):
    """Algorithm 2 of Yang et al. 2021; with labelled cases as well, semi-supervised training at one site.

    One iteration:

    1. ``p``, the foreground probability of the un-augmented patch, by the current model in eval mode without
       gradient; BatchNorm statistics are not touched;
    2. if there is a labelled loader, the supervised loss of one of its batches;
    3. ``q``, the probability of the augmented patch, in train mode, and the consistency loss of ``p`` and ``q``;
    4. one optimizer step on ``supervised_weight`` · supervised + ``consistency_weight`` · consistency loss. Each
       loss is differentiated as soon as it is known, so only one graph is in memory.

    Two options are not in the paper and are off by default:

    - ``teacher``: ``p`` comes from a moving average of the models that the student was at this site. The received
      model counts as one of them: a new teacher starts as its copy, one of an earlier round makes one step towards it.
      The teacher is private: it is part of :meth:`state_dict` and never enters the network.
    - ``ramp_up_steps``: the consistency part grows with :func:`sigmoid_ramp_up` over the first steps of all the
      site's rounds together. With labelled cases that is a factor of ``consistency_weight``. Without, it is a
      factor of the learning rate, because the size of Adam's steps does not depend on the scale of its only loss.

    With a threshold of 1, no weight decay and a fresh Adam the parameters do not move. BatchNorm's running
    statistics still do: the student's pass is an ordinary pass in train mode.

    Args:
        device, max_epochs, unlabeled_loader, network, optimizer, trainer: as in :class:`UnlabelledTrainer`.
        consistency_loss: called with (p, q).
        augment: makes the student's view of a batch; a :class:`fedmed.data.augment.Augment` may make the
            pseudo-label's view too.
        labeled_loader: batches ``{"image", "label"}``, begun again when exhausted; None = unlabelled images only.
        supervised_loss: called with (inferer's result, label); needed with ``labeled_loader``.
        supervised_weight, consistency_weight: factors of the two losses.
        inferer: ``inferer(images, network)`` returns the foreground probability (B, 1, ...); default: the network
            returns it.
        teacher: from :func:`fedmed.networks.teacher.build_teacher`; None = the current model.
        ramp_up_steps: length of the ramp-up in iterations; 0 = none.

    ``engine.state.output`` has detached scalars: ``loss`` (what was minimised), ``confident_fraction`` (share of
    voxels in the loss's region), ``foreground_fraction`` (share with p > 0.5), and with labelled cases
    ``supervised_loss`` and ``consistency_loss``, unweighted; with a ramp-up its factor, ``ramp_up``.

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
        consistency_loss: ConsistencyLoss,
        augment: Callable[[Tensor], Tensor],
        labeled_loader: Iterable[Mapping[str, Any]] | None = None,
        supervised_loss: Callable[[Tensor, Tensor | None], Tensor] | None = None,
        supervised_weight: float = 1.0,
        consistency_weight: float = 1.0,
        inferer: Inferer | None = None,
        teacher: AveragedModel | None = None,
        ramp_up_steps: int = 0,
        **trainer: Any,
    ) -> None:
        if labeled_loader is not None and supervised_loss is None:
            raise FedMedError("ConsistencyEngine: labeled_loader is given without supervised_loss; give both or none")
        if ramp_up_steps < 0:
            raise FedMedError(f"ConsistencyEngine: ramp_up_steps is {ramp_up_steps}; use 0 (none) or more iterations")
        super().__init__(device, max_epochs, unlabeled_loader, network, optimizer, **trainer)
        self.augment, self.inferer = augment, inferer or SimpleInferer()
        self.consistency_loss = consistency_loss
        self.supervised_loss = None if labeled_loader is None else supervised_loss
        self.supervised_weight, self.consistency_weight = supervised_weight, consistency_weight
        self.labeled_loader, self.teacher = labeled_loader, teacher
        self.ramp_up_steps, self.steps_done = ramp_up_steps, 0

    def run(self) -> None:  # type: ignore[override] # as in StatefulTrainer
        """Train ``max_epochs`` epochs."""
        self._teach()
        empty = "the loader of labelled cases is empty; give it cases, or leave it out"
        with closing(endless(self.labeled_loader, empty)) as self._labeled:
            super().run()

    def state_dict(self) -> dict[str, Any]:  # type: ignore[override] # as in StatefulTrainer
        """What must outlive a round besides model and optimizer: also the teacher and the steps of the ramp-up."""
        teacher = {} if self.teacher is None else {"teacher": dict(self.teacher.state_dict())}
        return super().state_dict() | teacher | ({"steps_done": self.steps_done} if self.ramp_up_steps else {})

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Accept what :meth:`state_dict` returned, also from a round without these options.

        Raises:
            StateError: the site's teacher is that of another network.
        """
        super().load_state_dict(state_dict)
        self.steps_done = state_dict.get("steps_done", 0)
        if self.teacher is not None and "teacher" in state_dict:
            restore(self.teacher, state_dict["teacher"], "teacher")

    def _iteration(self, engine: "ConsistencyEngine", batchdata: dict[str, Any]) -> dict[str, Tensor]:
        images, _ = self.prepare_batch(batchdata, self.state.device, self.non_blocking)
        alone, ramp_up = self.supervised_loss is None, sigmoid_ramp_up(self.steps_done, self.ramp_up_steps)
        weight = self.consistency_weight * (1.0 if alone else ramp_up)
        p = self._pseudo_label(images)
        output = {
            "confident_fraction": self.consistency_loss.region(p).float().mean(),
            "foreground_fraction": (p > 0.5).float().mean(),
        }
        self.network.train()
        self.optimizer.zero_grad(set_to_none=True)
        supervised = None if self.supervised_loss is None else self._supervised(self.supervised_loss)
        consistency = self._consistency(images, p, weight)
        self.fire_event(IterationEvents.BACKWARD_COMPLETED)
        with scaled_learning_rate(self.optimizer, ramp_up if alone else 1.0):
            self.step(self.optimizer)
        self._teach()
        self.steps_done += 1
        output["loss"] = weight * consistency
        if supervised is not None:
            output["loss"] = self.supervised_weight * supervised + output["loss"]
            output |= {"supervised_loss": supervised, "consistency_loss": consistency}
        if self.ramp_up_steps:
            output["ramp_up"] = torch.full((), ramp_up, device=p.device)
        self.state.output = output
        self.fire_event(IterationEvents.MODEL_COMPLETED)
        return output

    def _pseudo_label(self, images: Tensor) -> Tensor:
        """p of Eq. 4: (B, 1, ...), constant."""
        model = (self.network if self.teacher is None else self.teacher).eval()
        with torch.no_grad():
            return self._forward(weak_view(self.augment, images), model).float()

    def _teach(self) -> None:
        if self.teacher is not None:
            self.teacher.update_parameters(self.network)

    def _supervised(self, criterion: Callable[[Tensor, Tensor | None], Tensor]) -> Tensor:
        images, labels = self.prepare_batch(next(self._labeled), self.state.device, self.non_blocking)
        loss = criterion(self._forward(images, self.network), labels)
        self.backward(self.supervised_weight * loss)
        return loss.detach()

    def _consistency(self, images: Tensor, p: Tensor, weight: float) -> Tensor:
        """Eq. 6."""
        q = self._forward(self.augment(images), self.network)
        self.fire_event(IterationEvents.FORWARD_COMPLETED)
        loss = self.consistency_loss(p, q)
        self.fire_event(IterationEvents.LOSS_COMPLETED)
        self.backward(weight * loss)
        return loss.detach()

    def _forward(self, images: Tensor, model: nn.Module) -> Tensor:
        with torch.autocast("cuda", enabled=self.amp):
            return self.inferer(images, model)
