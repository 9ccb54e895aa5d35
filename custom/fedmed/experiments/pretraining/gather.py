"""Read what the encoders of a table have left."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedmed.errors import DataError
from fedmed.experiments.pretraining.arms import Arm
from fedmed.experiments.pretraining.description import Description
from fedmed.experiments.pretraining.downstream import Evaluation
from fedmed.experiments.pretraining.dynamics import History, read_history
from fedmed.experiments.pretraining.queue import Part
from fedmed.experiments.pretraining.scores import Result, Setting, Truth
from fedmed.experiments.pretraining.tasks import of_test
from fedmed.recovery.interrupted_workspace import records

Truths = Mapping[tuple[str, str], Truth]


def results_of(parts: Sequence[Part], description: Description, truths: Truths) -> list[Result]:
    """Predictions of every classifier of some parts.

    Those of an arm of several encoders (``local``) count as so many choices of one arm, whose scores are averaged, and
    again as rows of their own.

    Raises:
        DataError: a file is missing, damaged or of other images; names it.
    """
    found = []
    for part in parts:
        node = part.pretraining.node
        for each in part.evaluations:
            for setting, probabilities in _predictions(part, each, description, truths):
                draw, seed = f"{node} {each.draw}".strip(), part.pretraining.seed
                found.append(Result(part.arm.name, seed, setting, draw, probabilities))
                if node:
                    found.append(Result(row_of(part.arm.name, node), seed, setting, draw, probabilities))
    return found


def rows_of(arms: Sequence[Arm], parts: Sequence[Part]) -> list[Arm]:
    """The arms, an arm of several encoders followed by one row for each."""
    rows = []
    for arm in arms:
        rows.append(arm)
        nodes = dict.fromkeys(part.pretraining.node for part in parts if part.arm.name == arm.name)
        rows += [replace(arm, name=row_of(arm.name, node)) for node in nodes if node]
    return rows


def row_of(arm: str, node: str) -> str:
    return f"{arm}: {node}"


def histories_of(parts: Sequence[Part]) -> dict[str, dict[int, History]]:
    """Arm -> seed -> what its rounds recorded, of arms with one encoder that several nodes made."""
    found: dict[str, dict[int, History]] = {}
    for part in parts:
        run = part.pretraining.run
        if run is not None and len(part.pretraining.images) > 1:
            history = read_history(records(run.folder) / "rounds.jsonl", part.pretraining.images)
            found.setdefault(part.arm.name, {})[part.pretraining.seed] = history
    return found


def _predictions(
    part: Part, each: Evaluation, description: Description, truths: Truths
) -> Iterator[tuple[Setting, np.ndarray]]:
    task = next(task for task in description.tasks if task.name == each.task)
    path = each.file(part.folder)
    try:
        with np.load(path) as content:
            arrays = {key: content[key] for key in content.files}
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path}: the predictions cannot be read ({error}); remove the file") from error
    for key, probabilities in sorted(arrays.items()):
        test, model = key.split("_")
        if len(probabilities) != len(truths[task.name, test].labels):
            raise DataError(f"{path}: predictions of {len(probabilities)} images, another list's; remove the file")
        setting = Setting(task.name, test, each.protocol.kind, each.fraction, model)
        yield setting, of_test(task, test, probabilities)
