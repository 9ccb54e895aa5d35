"""Training on images without masks, by consistency with the model's own confident predictions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

import torch
from monai.engines.utils import IterationEvents
from monai.inferers import Inferer, SimpleInferer
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from fedmed.data.augment import weak_view
from fedmed.engines.schedules import scaled_learning_rate, sigmoid_ramp_up
from fedmed.engines.trainer import StatefulTrainer, endless, on_gpu, plain_batch
from fedmed.errors import DataError, FedMedError, StateError
from fedmed.losses.consistency import ConsistencyLoss


class ConsistencyEngine(StatefulTrainer):
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
      model counts as one of them: a new teacher starts as its copy, a kept one makes one step towards it. The
      teacher is private: it is part of :meth:`state_dict` and never enters the network.
    - ``ramp_up_steps``: the consistency part grows with :func:`sigmoid_ramp_up` over the first steps of all the
      site's rounds together. With labelled cases that is a factor of ``consistency_weight``. Without, it is a
      factor of the learning rate, because the size of Adam's steps does not depend on the scale of its only loss.

    With a threshold of 1, no weight decay and a fresh Adam the parameters do not move. BatchNorm's running
    statistics still do: the student's pass is an ordinary pass in train mode.

    Args:
        device: where to compute.
        max_epochs: passes of ``epoch_length`` iterations.
        unlabeled_loader: batches ``{"image": (B, C, ...)}``; other keys are ignored.
        network: the model that is trained.
        optimizer: of its parameters.
        consistency_loss: called with (p, q).
        augment: makes the student's view of a batch; a :class:`fedmed.data.augment.Augment` may make the
            pseudo-label's view too.
        labeled_loader: batches ``{"image", "label"}``, begun again when exhausted; None = unlabelled images only.
        supervised_loss: called with (inferer's result, label); needed with ``labeled_loader``.
        supervised_weight, consistency_weight: factors of the two losses.
        epoch_length: iterations; default: batches in ``unlabeled_loader``.
        inferer: ``inferer(images, network)`` returns the foreground probability (B, 1, ...); default: the network
            returns it.
        amp: float16 mixed precision; has an effect on CUDA devices only.
        train_handlers: Ignite handlers.
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
        unlabeled_loader: Iterable,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        consistency_loss: ConsistencyLoss,
        augment: Callable[[Tensor], Tensor],
        labeled_loader: Iterable | None = None,
        supervised_loss: Callable[[Tensor, Tensor], Tensor] | None = None,
        supervised_weight: float = 1.0,
        consistency_weight: float = 1.0,
        epoch_length: int | None = None,
        inferer: Inferer | None = None,
        amp: bool = False,
        train_handlers: Sequence | None = None,
        teacher: AveragedModel | None = None,
        ramp_up_steps: int = 0,
    ) -> None:
        if unlabeled_loader is None:
            raise DataError("consistency training has no unlabelled images; list some under 'unlabeled'")
        if labeled_loader is not None and supervised_loss is None:
            raise FedMedError("ConsistencyEngine: labeled_loader is given without supervised_loss; give both or none")
        if ramp_up_steps < 0:
            raise FedMedError(f"ConsistencyEngine: ramp_up_steps is {ramp_up_steps}; use 0 (none) or more iterations")
        super().__init__(
            device=device,
            max_epochs=max_epochs,
            data_loader=unlabeled_loader,
            epoch_length=epoch_length,
            non_blocking=True,
            prepare_batch=plain_batch,
            handlers=train_handlers,
            amp=amp and on_gpu(device),
            decollate=False,
        )
        self.network, self.optimizer, self.augment = network, optimizer, augment
        self.consistency_loss, self.supervised_loss = consistency_loss, supervised_loss
        self.supervised_weight, self.consistency_weight = supervised_weight, consistency_weight
        self.inferer = SimpleInferer() if inferer is None else inferer
        self.labeled_loader = labeled_loader
        self.teacher, self.ramp_up_steps, self.steps_done = teacher, ramp_up_steps, 0

    def run(self) -> None:  # type: ignore[override]
        """Train ``max_epochs`` epochs."""
        self._teach()
        empty = "the loader of labelled cases is empty; give it cases, or leave it out"
        with closing(endless(self.labeled_loader, empty)) as self._labeled:
            super().run()

    def state_dict(self) -> dict[str, Any]:  # type: ignore[override]
        """What must outlive a round besides model and optimizer: also the teacher and the steps of the ramp-up."""
        teacher = {} if self.teacher is None else {"teacher": dict(self.teacher.state_dict())}
        return super().state_dict() | teacher | ({"steps_done": self.steps_done} if self.ramp_up_steps else {})

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Accept what :meth:`state_dict` returned, also from a round without these options.

        Raises:
            StateError: the kept teacher is that of another network.
        """
        super().load_state_dict(state_dict)
        self.steps_done = state_dict.get("steps_done", 0)
        if self.teacher is not None and "teacher" in state_dict:
            try:
                self.teacher.load_state_dict(state_dict["teacher"])
            except RuntimeError as error:
                raise StateError(
                    f"the site's kept teacher does not fit the network: {error}. Continue with the network it was "
                    "made with, or start a new job"
                ) from error

    def _iteration(self, engine: "ConsistencyEngine", batchdata: dict[str, Any]) -> dict[str, Tensor]:
        images, _ = self.prepare_batch(batchdata, self.state.device, self.non_blocking)
        alone, ramp_up = self.labeled_loader is None, sigmoid_ramp_up(self.steps_done, self.ramp_up_steps)
        weight = self.consistency_weight * (1.0 if alone else ramp_up)
        p = self._pseudo_label(images)
        output = {
            "confident_fraction": self.consistency_loss.region(p).float().mean(),
            "foreground_fraction": (p > 0.5).float().mean(),
        }
        self.network.train()
        self.optimizer.zero_grad(set_to_none=True)
        losses = {}
        if not alone:
            losses["supervised_loss"] = self._supervised()
        losses["consistency_loss"] = self._consistency(images, p, weight)
        self.fire_event(IterationEvents.BACKWARD_COMPLETED)
        with scaled_learning_rate(self.optimizer, ramp_up if alone else 1.0):
            self.step(self.optimizer)
        self._teach()
        self.steps_done += 1
        weights = {"supervised_loss": self.supervised_weight, "consistency_loss": weight}
        output["loss"] = sum(weights[name] * loss for name, loss in losses.items())
        if self.ramp_up_steps:
            output["ramp_up"] = torch.full((), ramp_up, device=p.device)
        self.state.output = output | (losses if len(losses) > 1 else {})
        self.fire_event(IterationEvents.MODEL_COMPLETED)
        return self.state.output

    def _pseudo_label(self, images: Tensor) -> Tensor:
        """p of Eq. 4: (B, 1, ...), constant."""
        model = (self.network if self.teacher is None else self.teacher).eval()
        with torch.no_grad():
            return self._forward(weak_view(self.augment, images), model).float()

    def _teach(self) -> None:
        if self.teacher is not None:
            self.teacher.update_parameters(self.network)

    def _supervised(self) -> Tensor:
        images, labels = self.prepare_batch(next(self._labeled), self.state.device, self.non_blocking)
        loss = self.supervised_loss(self._forward(images, self.network), labels)
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
