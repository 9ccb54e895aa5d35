"""A stage of an arm: classifiers that are trained on an encoder at one hospital and tested there and at another."""

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from pydantic import Field

from fedmed.bundles.bundle import Bundle
from fedmed.errors import DataError, JobError
from fedmed.files import write_atomically
from fedmed.settings.site import SiteConfig
from fedmed.settings.yaml_model import YamlModel
from research.runner.class_tasks import task_question
from research.runner.classifier_plan import ClassifierPlan
from research.runner.classifier_training import predictions
from research.runner.encoder_step import EncoderStep
from research.runner.experiment_data import Count, ExperimentData, Shares
from research.runner.hospital_data import HospitalData
from research.runner.score_table import joined, score_frame
from research.runner.stages import Place, Stage, StageStep
from research.runner.untrained_encoders import UntrainedStep


class LabelProtocol(YamlModel):
    """Protocol by which an encoder is scored.

    ``every`` is for models whose encoder is trained too: epochs between two scorings, for the highest accuracy over
    epochs; None = the last epoch alone.
    """

    fractions: Shares  # of the training labels
    draws: Count = 1  # different choices of the labelled cases below 1; their scores are averaged
    every: Count | None = None


class Classifiers(Stage):
    """A classifier for every task, protocol, share of labels and choice of them.

    A protocol is an overlay of the bundle, which says what of the network is trained.
    """

    needs: ClassVar[type[ExperimentData]] = HospitalData

    protocols: Annotated[dict[str, LabelProtocol], Field(min_length=1)]
    fractions: Shares | None = None  # of this arm, where they are not the protocol's

    def steps(self, place: Place, before: StageStep | None) -> list[StageStep]:
        data: HospitalData = place.data
        if not isinstance(before, EncoderStep | UntrainedStep):
            raise JobError(f"arm '{place.arm}': classifiers need an encoder; name a stage before them that leaves one")
        change = before.change if isinstance(before, UntrainedStep) else None
        if change and any(protocol.every for protocol in self.protocols.values()):
            raise JobError(f"arm '{place.arm}': its encoder has no weights to train; leave out protocols with 'every'")
        Bundle(data.bundle, list(self.protocols))  # refuses a protocol that is not an overlay
        questions = [task_question(name, task, data.hospitals, place.lists) for name, task in data.tasks.items()]
        plans = [
            ClassifierPlan(
                question=question,
                bundle=data.bundle,
                overlays=data.overlays,
                overrides=data.overrides.get(kind, {}),
                protocol=kind,
                every=protocol.every,
                change=change,
                fraction=fraction,
                draw=draw,
                seed=place.seed,
            )
            for kind, protocol in self.protocols.items()
            for question in questions
            for fraction in self.fractions or protocol.fractions
            for draw in range(protocol.draws if fraction < 1 else 1)
        ]
        return [ClassifierStep(plan, before, plan.file(before.results), before.node) for plan in plans]


@dataclass(frozen=True)
class ClassifierStep(StageStep):
    """One classifier and its predictions for every test image.

    They are in a file, as :func:`research.runner.classifier_training.predictions` returns them.
    """

    plan: ClassifierPlan  # what is trained
    before: EncoderStep | UntrainedStep  # what leaves its encoder
    path: Path  # of the file
    node: str  # hospital of an encoder that one made alone

    def machines(self) -> Sequence[SiteConfig]:
        return [self.plan.site]

    def missing(self) -> bool:
        return not self.path.is_file()

    def make(self) -> None:
        torch.set_num_threads(self.plan.site.threads)
        results: dict[str, Any] = predictions(self.plan, self.before.encoder(), self.before.results)
        write_atomically(self.path, lambda stream: np.savez(stream, **results))

    def scores(self) -> pd.DataFrame:
        """Probabilities of every class, metric ``p_<class>``, and the true ``label`` of every test image.

        Raises:
            DataError: the predictions are missing, damaged or of other images; names the file.
        """
        try:
            with np.load(self.path) as content:
                arrays = {tuple(key.split("_")): content[key] for key in sorted(content.files)}
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:  # NumPy looks at the checksums
            raise DataError(f"{self.path}: the predictions cannot be read ({error}); remove the file") from error
        return joined([self._frame(test, model, values) for (test, model), values in arrays.items()])

    def _frame(self, test: str, model: str, probabilities: np.ndarray) -> pd.DataFrame:
        plan, question = self.plan, self.plan.question.tests[test]
        n = len(question.cases)
        if len(probabilities) != n:
            raise DataError(f"{self.path}: predictions of {len(probabilities)} images, another list's; remove the file")
        columns = {
            "unit": [case.image for case in question.cases] * len(question.classes),
            "metric": np.repeat([f"p_{name}" for name in question.classes], n),
            "value": plan.question.as_asked(test, probabilities).T.ravel(),
            "patient": [case.patient for case in question.cases] * len(question.classes),
            "label": [*question.labels] * len(question.classes),
        }
        keys = {"task": plan.question.name, "protocol": plan.protocol, "fraction": plan.fraction}
        draw = f"{self.node} {plan.draw}".strip()
        return score_frame(
            columns, arm="", seed=plan.seed, site=question.site.site, list=test, model=model, draw=draw, **keys
        )
