"""What an export makes of a run, a class for each kind of task: the base, and kinds whose whole network is exported."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.pretraining import PRETRAINED, pretraining
from fedmed.export.compare_results import compare_frame_masks, compare_masks, compare_predictions
from fedmed.export.finished_run import FinishedRun
from fedmed.export.formats import MODEL, Part
from fedmed.export.inference import infer_after, infer_before
from fedmed.kinds.find_kind import kind_of, made
from fedmed.kinds.kind import Kind
from fedmed.methods.method import Method


class Exporter:
    """What an export does with the whole network of a run; a kind of task names such a class by path.

    Args:
        kind: of the task.
        bundle: the installed bundle with the run's overlays and overrides.
        method: of the run.

    Attributes:
        part: what of the network is exported, and into which files.
        description: added to the bundle's own.
        change: what the version is, before the name of the job.
    """

    part: Part = MODEL
    description: ClassVar[str] = ""
    change: ClassVar[str] = "weights of"

    def __init__(self, kind: Kind, bundle: Bundle, method: Method) -> None:
        self.kind, self.bundle, self.method = kind, bundle, method
        self.pretraining = pretraining(bundle)
        self.site_facts: dict[str, Any] = {}  # of the one site for which it is made, where a person gives them

    @property
    def baked(self) -> tuple[list[str], dict[str, Any]]:
        """Overlays and overrides that are merged into the exported configs."""
        return list(self.bundle.overlays), {**self.bundle.overrides, **self.site_facts}

    @property
    def kept(self) -> set[str]:
        """Overlays that are left in the bundle though they make another network: around the same encoder."""
        return {self.pretraining.overlay} if self.pretraining else set()

    def start(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Changes of the exported ``train``: one that began with a file that is not here begins with the model."""
        setting = self.pretraining.setting if self.pretraining else ""
        value = config.get(setting)
        return {setting: value.replace(PRETRAINED, "model.pt")} if isinstance(value, str) else {}

    def complete_without(self, held: list[str]) -> bool:
        """Whether the export is complete without the tensors that the sites hold back."""
        return not held

    def facts(self, run: FinishedRun) -> dict[str, Any]:
        """What the metadata tell of the run beside what they tell of every run."""
        return {}

    def compare(self, before: Path, after: Path) -> str:
        """Return in words that two folders of results are equal.

        Raises:
            ExportError: they are not.
        """
        raise NotImplementedError

    def same_results(
        self, folder: Path, config: Path, tensors: Mapping[str, Tensor], case: Path, what: str, place: Path
    ) -> str:
        """Return in words that the exported bundle computes what the run's model did.

        Args:
            folder, config: the exported bundle, and its ``inference`` config.
            tensors: the run's model.
            case, what: an image, alone in its folder, and what it is.
            place: for temporary files.

        Raises:
            ExportError: it computes something else, or cannot be run.
        """
        before = infer_before(self.bundle, tensors, case.parent, place / "before", self.site_facts)
        found = self.compare(before, infer_after(folder, config, case.parent, place / "after"))
        alone = "the second by `python -m monai.bundle run` in a process without FedMed"
        return f"Inference on {what}, before and after the export: {found}; {alone}."

    @property
    def continuations(self) -> dict[str, tuple[str, ...]]:
        """Title of a method that goes on from the weights -> overlays of the bundle with which it does."""
        return {}

    def next_steps(self, out: Path) -> list[str]:
        """What one does with the exported bundle, as lines for a terminal."""
        run = f"(cd {out} && python -m monai.bundle run --config_file configs/inference.yaml"
        served = [f"in MONAI Label:  scripts/label.sh /data/images {out}"] if self.kind.proposal else []
        what = self.kind.card.inputs
        adapted = f"at a hospital without labels:  scripts/adapt_bundle.py {out} /data/{what} {out}_adapted"
        folder = f"on a folder of {what}:  {run} --dataset_dir /data/{what} --output_dir /data/results)"
        return [*served, folder, adapted]


class SegmentationExporter(Exporter):
    """Masks."""

    def compare(self, before: Path, after: Path) -> str:
        return compare_masks(before, after)


class ClassificationExporter(Exporter):
    """Probabilities of classes."""

    def compare(self, before: Path, after: Path) -> str:
        return compare_predictions(before, after)


class FrameMaskExporter(Exporter):
    """Masks of single frames."""

    def compare(self, before: Path, after: Path) -> str:
        return compare_frame_masks(before, after)


def exporter_of(bundle: Bundle, method: Method) -> Exporter:
    """The exporter that a bundle's kind names.

    Raises:
        BundleError: the bundle's kind is unknown.
    """
    kind = kind_of(bundle)
    exporter: Exporter = made(kind.exporter, kind, bundle, method)
    return exporter
