"""Runs of a bundle's engines at a site: a round of training, and the scores of a model."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from monai.bundle import ConfigParser
from torch import Tensor

from fedmed.bundles.network import parsed
from fedmed.bundles.score import Score
from fedmed.errors import DataError
from fedmed.federation.site_parser import listed
from fedmed.jobs.plan import PROGRESS_LINES
from fedmed.settings.site import SiteConfig
from fedmed.training.corrected_steps import Corrections
from fedmed.training.handlers import AbortHandler, NonFiniteLossHandler, ProgressHandler

Asked = Callable[[], bool]  # whether the job was aborted
Report = Callable[[int, int, dict[str, float]], None]  # (step, steps, scalars: means since the last report)


def run_trainer(trainer: Any, steps: int, aborted: Asked, report: Report, handlers: Sequence[Any]) -> dict[str, float]:
    """Train and return the round's mean of every scalar that the engine reports, as ``train_…``.

    Args:
        trainer: the bundle's, with its state.
        steps: of the round.
        aborted: asked before every iteration.
        report: called some times a round.
        handlers: those that the bundle wants in a federation.
    """
    sums: dict[str, float] = {}
    done = 0

    def note(step: int, steps: int, scalars: dict[str, float]) -> None:
        nonlocal done
        for name, value in scalars.items():
            sums[name] = sums.get(name, 0.0) + value * (step - done)
        done = step
        report(step, steps, scalars)

    own = [AbortHandler(aborted), NonFiniteLossHandler(), ProgressHandler(note, max(1, steps // PROGRESS_LINES))]
    for handler in (*own, *handlers):
        handler.attach(trainer)
    trainer.run()
    return {f"train_{name}": total / steps for name, total in sums.items()}


def draw_preview(parser: ConfigParser, aborted: Asked, corrections: Corrections) -> None:
    """Draw what a model makes of the cases that the bundle lists under ``preview``, if there are some."""
    if parsed(parser, "preview#cases"):
        evaluator, recorder = parsed(parser, "preview#evaluator"), parsed(parser, "preview#recorder")
        recorder.attach(evaluator)
        corrections.attach_to_scoring(evaluator)
        AbortHandler(aborted).attach(evaluator)
        evaluator.run()
        recorder.draw()


def validation_scores(
    parser: ConfigParser, score: Score, site: SiteConfig, aborted: Asked, corrections: Corrections
) -> dict[str, float]:
    """Return the scalars ``val_…`` of the received model on the validation list, the bundle's score among them.

    Raises:
        DataError: the score is not a number.
    """
    evaluator = parsed(parser, "validate#evaluator")
    corrections.attach_to_scoring(evaluator)
    for handler in (AbortHandler(aborted), *listed(parser, "validate", "federated_handlers")):
        handler.attach(evaluator)
    evaluator.run()
    found = {name: _number(value) for name, value in evaluator.state.metrics.items() if name.startswith("val_")}
    value = found.get(score.validation, math.nan)
    if not math.isfinite(value):
        raise DataError(
            f"site '{site.site}': validation {score.label} is {value}; look at what the list 'validation' in "
            f"{site.datalist} holds"
        )
    return {name: number for name, number in found.items() if math.isfinite(number)}


def test_scores(parser: ConfigParser, aborted: Asked, corrections: Corrections) -> dict[str, float]:
    """Return what the bundle's recorder makes of all cases of the testing list together."""
    evaluator, recorder = parsed(parser, "evaluate#evaluator"), parsed(parser, "evaluate#recorder")
    recorder.attach(evaluator)
    corrections.attach_to_scoring(evaluator)
    AbortHandler(aborted).attach(evaluator)
    evaluator.run()
    metrics: dict[str, float] = recorder.finish()
    return metrics


def _number(value: Any) -> float:
    """A metric as a number; NaN if it is not one, such as a value for each class."""
    single = isinstance(value, int | float) or (isinstance(value, Tensor) and value.numel() == 1)
    return float(value) if single else math.nan
