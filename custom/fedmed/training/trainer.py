"""Engines that keep their state from round to round, that of images with labels; handlers and schedules for any."""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

import torch
from ignite.engine import Engine, Events
from monai.engines import SupervisedTrainer, Trainer
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.hooks import RemovableHandle

from fedmed.data.listed_images import plain
from fedmed.errors import Aborted, DataError, FedMedError, JobError, StateError

GPU_INTERVAL = 10  # iterations between two looks at a loss that lies on a GPU; each look waits for the GPU


class OneCycle(OneCycleLR):
    """One cycle over all steps of a training."""

    def get_lr(self) -> list[float | Tensor]:
        """Return the rates as the base class does; FedMedError past its end."""
        if self.last_epoch > self.total_steps:
            raise FedMedError(_past_end(self.last_epoch, self.total_steps))
        return super().get_lr()


class HeldOneCycle(OneCycleLR):
    """One cycle over the first steps of a training; its last rate stays for the others."""

    def get_lr(self) -> list[float | Tensor]:
        """Return the rates as the base class does, which refuses steps after the cycle."""
        step, self.last_epoch = self.last_epoch, min(self.last_epoch, self.total_steps - 1)
        try:
            return super().get_lr()
        finally:
            self.last_epoch = step


def one_cycle(
    optimizer: Optimizer,
    max_lr: float,
    total_steps: int,
    steps_before: int = 0,
    final_div_factor: float = 1e4,
    pct_start: float = 0.3,
    cycle_share: float = 1.0,
) -> OneCycleLR:
    """Make one cycle (Smith and Topin 2019): cosine from max/25 up to ``max_lr`` at 30 % of steps, down to max/250000.

    The momentum is left alone. PyTorch's default cycles it: a plain SGD silently gets a momentum of 0.85 to 0.95, and
    AdamW's first beta is overwritten.

    Args:
        optimizer: its learning rate is set at once; call ``step()`` after each optimizer step.
        max_lr: highest learning rate.
        total_steps: steps of the whole training, over all rounds.
        steps_before: those that are done, where a site begins a round with an optimizer that is made anew.
        final_div_factor: the last rate is the first, ``max_lr``/25, divided by this; 0.4 is a tenth of ``max_lr``.
        pct_start: share of the cycle's steps, 0 to 1, over which the rate goes up.
        cycle_share: share of all steps, above 0, at most 1, over which the cycle goes; then the last rate stays.

    Raises:
        FedMedError: such a share is out of range, or more steps are done, now or later, than there are in all.
    """
    if steps_before > total_steps:
        raise FedMedError(_past_end(steps_before, total_steps))
    if not 0 < cycle_share <= 1:
        raise FedMedError(f"cycle_share is {cycle_share:g}; it must be above 0 and at most 1")
    cycle = partial(
        OneCycle if cycle_share == 1 else HeldOneCycle,
        optimizer,
        max_lr=max_lr,
        total_steps=max(1, round(total_steps * cycle_share)),
        cycle_momentum=False,
        final_div_factor=final_div_factor,
        pct_start=pct_start,
    )
    schedule = cycle()
    # A second one goes on from the rates that the first one has set.
    return cycle(last_epoch=steps_before - 1) if steps_before else schedule


def _past_end(step: int, steps: int) -> str:
    return (
        f"the learning rate's one cycle ends after {steps} steps, and training has come to step {step}; give it the "
        "steps of all rounds ('total_steps'), or leave overlay 'one_cycle' out of a run without an end"
    )


def sigmoid_ramp_up(step: int, steps: int) -> float:
    """Return ``exp(-5 (1 - t)^2)`` with ``t = step / steps``, at most 1 (Laine and Aila 2017, appendix A).

    Args:
        step: steps done before this one.
        steps: length of the ramp; 0 = none, the factor is 1. It starts at exp(-5) = 0.0067 and is exactly 1 from
            ``step = steps`` on.
    """
    return 1.0 if step >= steps else math.exp(-5 * (1 - step / steps) ** 2)


@contextmanager
def scaled_learning_rate(optimizer: Optimizer, factor: float) -> Iterator[None]:
    """Multiply all learning rates by ``factor`` for as long as the context lasts."""
    rates = [(group, group["lr"]) for group in optimizer.param_groups]
    for group, rate in rates:
        group["lr"] = rate * factor
    try:
        yield
    finally:
        for group, rate in rates:
            group["lr"] = rate


class AbortHandler:
    """Stops an engine by :class:`fedmed.errors.Aborted` when asked to.

    Asks before a batch is loaded, before it is used, and, where the engine has a ``network``, before each of its
    forward passes: a volume that is evaluated in hundreds of windows stops at the next window.

    Args:
        should_abort: tells whether to stop; must be cheap.
    """

    def __init__(self, should_abort: Callable[[], bool]) -> None:
        self.should_abort = should_abort
        self._hooks: list[RemovableHandle] = []

    def attach(self, engine: Engine) -> None:
        for event in (Events.STARTED, Events.GET_BATCH_STARTED, Events.ITERATION_STARTED):
            engine.add_event_handler(event, self.check)
        network = getattr(engine, "network", None)
        if isinstance(network, nn.Module):
            engine.add_event_handler(Events.STARTED, self._watch, network)
            engine.add_event_handler(Events.COMPLETED | Events.TERMINATE, self._release)

    def check(self, *_: Any) -> None:
        """Raise Aborted when asked to stop; for work that no engine does."""
        if self.should_abort():
            raise Aborted("stopped because the job was aborted; nothing of this task is kept")

    def _watch(self, engine: Engine, network: nn.Module) -> None:
        self._release()  # of a run that failed
        self._hooks.append(network.register_forward_pre_hook(self.check))

    def _release(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()


class ProgressHandler:
    """Reports the scalars of a trainer's output.

    Values are means over the iterations since the last report. They are summed on their device and fetched together
    when reported, so the GPU is waited for once a report.

    Args:
        callback: called with (step from 1, steps of the run, ``{"loss": ..., ...}``): every scalar of
            ``engine.state.output``.
        interval: iterations between reports; the last iteration is always reported.

    Raises:
        FedMedError: the interval is below 1.
    """

    def __init__(self, callback: Callable[[int, int, dict[str, float]], None], interval: int = 10) -> None:
        if interval < 1:
            raise FedMedError(f"ProgressHandler: interval is {interval}; use 1 or more iterations")
        self.callback, self.interval = callback, interval
        self._sums: dict[str, Tensor] = {}
        self._count = 0

    def attach(self, engine: Engine) -> None:
        engine.add_event_handler(Events.STARTED, self._reset)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self._note)

    def _reset(self) -> None:
        self._sums, self._count = {}, 0

    def _note(self, engine: Engine) -> None:
        for name, value in scalars(engine.state.output).items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value
        self._count += 1
        step, steps = engine.state.iteration, total_steps(engine)
        if step % self.interval == 0 or step == steps:
            fetched = torch.stack(list(self._sums.values())).tolist() if self._sums else []
            means = {name: value / self._count for name, value in zip(self._sums, fetched, strict=True)}
            self._reset()
            self.callback(step, steps, means)


class NonFiniteLossHandler:
    """Stops a trainer whose loss is NaN or infinite, and names the step, which Ignite's ``TerminateOnNan`` does not.

    Args:
        interval: iterations between looks; default 1 on the CPU, 10 on a GPU, where each look waits for it. The
            step that is named is exact all the same.
    """

    def __init__(self, interval: int | None = None) -> None:
        self.interval = interval
        self._losses: list[Tensor] = []

    def attach(self, engine: Engine) -> None:
        """Add to a trainer; before a handler that saves or reports."""
        engine.add_event_handler(Events.STARTED, self._losses.clear)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self._look)

    def _look(self, engine: Engine) -> None:
        loss = scalars(engine.state.output).get("loss")
        if loss is None:
            return
        self._losses.append(loss)
        step, steps = engine.state.iteration, total_steps(engine)
        interval = self.interval or (1 if loss.device.type == "cpu" else GPU_INTERVAL)
        if step % interval and step != steps:
            return
        values = torch.stack(self._losses).tolist()
        self._losses.clear()
        for place, value in enumerate(values, step - len(values) + 1):
            if not math.isfinite(value):
                _stop(f"the loss is {value} at step {place} of {steps}", engine.state.batch)


def _stop(what: str, batch: Any) -> None:
    images = batch.get("image") if isinstance(batch, Mapping) else None
    if isinstance(images, Tensor) and not bool(torch.isfinite(images).all()):
        raise DataError(
            f"{what}: the images of a batch contain NaN or infinite voxels; find and correct or remove them"
        )
    raise FedMedError(
        f"{what}, so the model is unusable; lower learning_rate, switch amp off, or start from another checkpoint. "
        "Nothing of this round is kept"
    )


def scalars(output: Any) -> dict[str, Tensor]:
    """Return the scalars of an engine's output as detached float32 tensors, each on its device."""
    if not isinstance(output, Mapping):
        return {}
    tensors = {name: torch.as_tensor(v) for name, v in output.items() if isinstance(v, Tensor | float | int)}
    return {name: value.detach().float().reshape(()) for name, value in tensors.items() if value.numel() == 1}


def total_steps(engine: Engine) -> int:
    """Return the iterations of the whole run; 0 while a loader without a length is in its first epoch."""
    return (engine.state.max_epochs or 0) * (engine.state.epoch_length or 0)


def plain_batch(
    batch: Mapping[str, Any], device: torch.device | str | None = None, non_blocking: bool = False, **kwargs: Any
) -> tuple[Tensor, Tensor | None]:
    """Return ``image`` and ``label`` (None without one) on the device, as plain tensors."""
    where = {"device": device, "non_blocking": non_blocking, **kwargs}
    label = batch.get("label")
    return plain(batch["image"]).to(**where), plain(label).to(**where) if isinstance(label, Tensor) else None


def endless(loader: Iterable[Mapping[str, Any]] | None, empty: str) -> Generator[Mapping[str, Any], None, None]:
    """Give batches of a loader, begun again when exhausted; DataError ``empty`` if it has none.

    Closing the generator ends the loader's worker processes.
    """
    while True:
        batch = None
        for batch in loader or ():
            yield batch
        if batch is None:
            raise DataError(empty)


def on_gpu(device: torch.device | str) -> bool:
    """True where mixed precision pays: float16 autocast is used on CUDA devices alone."""
    return torch.device(device).type == "cuda"


def restore(module: nn.Module, state: Mapping[str, Tensor], what: str) -> None:
    """Load what a site kept of an earlier round into ``what``; StateError if it is of another network."""
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
        """State that must outlive a round besides model and optimizer: the scaler's, ``{}`` without one.

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
        """Take what came with the task besides the model, before :meth:`run`; JobError for what it does not use."""
        if extras:
            raise JobError(
                f"{type(self).__name__} has no use for {', '.join(sorted(extras))}, which came with the task; use an "
                "overlay whose engine or corrections take it, or a job without 'exchange' or such a rule"
            )

    def extras(self) -> dict[str, float | Tensor]:
        """Values that leave the site besides the model's difference, after :meth:`run`; none unless overridden."""
        return {}

    def backward(self, loss: Tensor) -> None:
        """Add the loss's gradients to those there are."""
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def step(self, optimizer: torch.optim.Optimizer, max_grad_norm: float | None = None) -> None:
        """Do an optimizer step, with gradients clipped to a norm; mixed precision skips it when one overflowed."""
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
