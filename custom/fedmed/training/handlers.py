"""Handlers for any Ignite engine: abort, progress, and a loss that is not a number."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from ignite.engine import Engine, Events
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from fedmed.errors import Aborted, DataError, FedMedError

GPU_INTERVAL = 10  # iterations between two looks at a loss that lies on a GPU; each look waits for the GPU


class AbortHandler:
    """Stops an engine by :class:`fedmed.errors.Aborted` when asked to.

    Asks before a batch is loaded, before it is used, and, where the engine has a ``network``, before each of its
    forward passes: a volume that is evaluated in hundreds of windows stops at the next window.

    Args:
        should_abort: returns whether to stop; must be cheap.
    """

    def __init__(self, should_abort: Callable[[], bool]) -> None:
        self.should_abort = should_abort
        self._hooks: list[RemovableHandle] = []

    def attach(self, engine: Engine) -> None:
        """Add to an engine."""
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
        """Add to a trainer."""
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
    """The scalars of an engine's output as detached float32 tensors, each on its device."""
    if not isinstance(output, Mapping):
        return {}
    tensors = {name: torch.as_tensor(v) for name, v in output.items() if isinstance(v, Tensor | float | int)}
    return {name: value.detach().float().reshape(()) for name, value in tensors.items() if value.numel() == 1}


def total_steps(engine: Engine) -> int:
    """Iterations of the whole run; 0 while a loader without a length is in its first epoch."""
    return (engine.state.max_epochs or 0) * (engine.state.epoch_length or 0)
