"""A link of a chain: classifiers that are trained on an encoder at one hospital and tested there and at another."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from fedmed.errors import DataError, JobError
from fedmed.experiments.chain import ChainLink, ChainStep, Place
from fedmed.experiments.classifier_plan import ClassifierPlan
from fedmed.experiments.classifier_training import evaluate
from fedmed.experiments.encoder_step import EncoderStep
from fedmed.experiments.experiment_data import ExperimentData, Shares
from fedmed.experiments.hospital_data import HospitalData
from fedmed.experiments.score_table import joined, score_frame
from fedmed.experiments.task_questions import Question, as_asked, task_question
from fedmed.experiments.untrained_encoders import UntrainedStep
from fedmed.settings.site import SiteConfig
from fedmed.settings.yaml_model import YamlModel

Whole = Annotated[int, Field(ge=1)]


class LabelProtocol(YamlModel):
    """How an encoder is scored.

    Attributes:
        fractions: shares of the training labels.
        draws: different choices of the labelled cases below 1; their scores are averaged.
        every: epochs between two scorings of a fine-tuned model, for the highest accuracy over epochs.
    """

    fractions: Shares
    draws: Whole = 1
    every: Whole = 5


class Classifiers(ChainLink):
    """A classifier for every task, protocol, share of labels and choice of them.

    Attributes:
        protocols: ``linear`` (frozen features, one layer), ``finetune`` (all weights) -> settings; also the names of
            the bundle's overlays.
        fractions: shares of labels of this arm, where they are not the protocol's.
    """

    needs: ClassVar[type[ExperimentData]] = HospitalData

    protocols: Annotated[dict[Literal["linear", "finetune"], LabelProtocol], Field(min_length=1)]
    fractions: Shares | None = None

    def steps(self, place: Place, before: ChainStep | None) -> list[ChainStep]:
        data: HospitalData = place.data
        if not isinstance(before, EncoderStep | UntrainedStep):
            raise JobError(f"arm '{place.arm}': classifiers need an encoder; name a link before them that leaves one")
        change = before.change if isinstance(before, UntrainedStep) else None
        if change and set(self.protocols) != {"linear"}:
            raise JobError(f"arm '{place.arm}': its encoder has no weights to fine-tune; use 'linear' alone")
        lists = place.runs / "lists"
        asked = [task_question(name, task, data.hospitals, lists) for name, task in data.tasks.items()]
        return [
            ClassifierStep(
                ClassifierPlan(
                    task=question.name,
                    site=question.site,
                    external=question.external,
                    classes=tuple(question.task.classes),
                    bundle=data.bundle,
                    overlays=tuple(data.overlays),
                    overrides=data.overrides.get(kind, {}),
                    protocol=kind,
                    every=protocol.every if kind == "finetune" else None,
                    change=change,
                    fraction=fraction,
                    draw=draw,
                    seed=place.seed,
                ),
                before,
                question,
            )
            for kind, protocol in self.protocols.items()
            for question in asked
            for fraction in self.fractions or protocol.fractions
            for draw in range(protocol.draws if fraction < 1 else 1)
        ]


@dataclass(frozen=True)
class ClassifierStep(ChainStep):
    """One classifier and its predictions for every test image.

    Attributes:
        plan: what is trained.
        before: what leaves its encoder.
        question: the task.
    """

    plan: ClassifierPlan
    before: EncoderStep | UntrainedStep
    question: Question

    @property
    def path(self) -> Path:
        return self.plan.file(self.before.results)

    @property
    def sites(self) -> Sequence[SiteConfig]:
        return [self.plan.site]

    @property
    def node(self) -> str:
        return self.before.node

    def missing(self) -> bool:
        return not self.path.is_file()

    def make(self) -> None:
        evaluate(self.plan, self.before.encoder(), self.before.results)

    def scores(self) -> pd.DataFrame:
        """Probabilities of every class, metric ``p_<class>``, and the true ``label`` of every test image.

        Raises:
            DataError: the predictions are missing, damaged or of other images; names the file.
        """
        return joined([self._frame(test, model, found) for test, model, found in self._predictions()])

    def _predictions(self) -> Iterator[tuple[str, str, np.ndarray]]:
        try:
            with np.load(self.path) as content:
                arrays = {key: content[key] for key in content.files}
        except (OSError, ValueError, KeyError) as error:
            raise DataError(f"{self.path}: the predictions cannot be read ({error}); remove the file") from error
        for key, probabilities in sorted(arrays.items()):
            test, model = key.split("_")
            if len(probabilities) != len(self.question.truths[test].cases):
                raise DataError(
                    f"{self.path}: predictions of {len(probabilities)} images, another list's; remove the file"
                )
            yield test, model, as_asked(self.question.task, test, probabilities)

    def _frame(self, test: str, model: str, probabilities: np.ndarray) -> pd.DataFrame:
        truth, classes = self.question.truths[test], len(self.question.truths[test].classes)
        columns = {
            "unit": truth.cases * classes,
            "metric": np.repeat([f"p_{name}" for name in truth.classes], len(truth.cases)),
            "value": probabilities.T.ravel(),
            "patient": truth.patients * classes,
            "label": truth.labels * classes,
        }
        keys = {"task": self.plan.task, "protocol": self.plan.protocol, "fraction": self.plan.fraction}
        draw = f"{self.node} {self.plan.draw}".strip()
        return score_frame(
            columns, arm="", seed=self.plan.seed, site=truth.site, list=test, model=model, draw=draw, **keys
        )
