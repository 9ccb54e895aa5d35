"""What a person sees while a site works: lines in ``progress.jsonl`` and scalars for TensorBoard."""

import logging
import math
import time
from collections.abc import Callable
from pathlib import Path

from fedmed.bundles.score import Score
from fedmed.durable_files import append_json
from fedmed.messages.task import Task

log = logging.getLogger("fedmed.site")
Stream = Callable[[str, float, int], None]


class Progress:
    """Progress of one site.

    Args:
        site: its name.
        folder: the job's folder at this site; ``progress.jsonl`` is written there.
        stream: called with (name, value, global step) for every scalar that the server may see.
    """

    def __init__(self, site: str, folder: Path, stream: Stream | None = None) -> None:
        self.site, self.path = site, folder / "progress.jsonl"
        self.stream = stream or (lambda name, value, step: None)

    def event(self, event: str, task: Task, **values: float | str | int) -> None:
        """Append one line: ``start``, ``data``, ``adapted``, ``step``, ``validated``, ``end`` or ``error``."""
        plain = {k: v for k, v in values.items() if not isinstance(v, float) or math.isfinite(v)}
        line = {"time": time.time(), "event": event, "task": task.name, "round": task.round}
        try:
            append_json(self.path, {**line, "total_rounds": task.total_rounds, **plain})
        except OSError as error:  # a full disk must not hide what is being reported
            log.warning("%s: %s cannot be written: %s", self.site, self.path, error)

    def step(self, task: Task, step: int, steps: int, scalars: dict[str, float]) -> None:
        """Report the scalars of an optimizer step, locally and to the server."""
        self.event("step", task, step=step, steps=steps, **scalars)
        for name, value in scalars.items():
            if math.isfinite(value):
                self.stream(f"train/{name}", value, task.round * task.steps + step)

    def validated(self, task: Task, score: Score, value: float) -> None:
        """Report the score of a received model on the site's validation list."""
        log.info(
            "%s: round %d: the received model scores %s %.4f on the validation list",
            *(self.site, task.round, score.label, value),
        )
        self.event("validated", task, score=value)
        self.stream(f"validation/{score.name}", value, task.round)
