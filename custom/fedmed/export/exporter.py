"""What an export makes of a run, a class for each kind of task: the base, and kinds whose whole network is exported."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from fedmed.bundles.load import Bundle
from fedmed.bundles.pretraining import PRETRAINED, pretraining
from fedmed.export.compare_results import compare_masks, compare_predictions
from fedmed.export.finished_run import FinishedRun
from fedmed.export.formats import MODEL, Part
from fedmed.export.inference import infer_after, infer_before
from fedmed.kinds.find_kind import kind_of, made
from fedmed.kinds.kind import Kind


class Exporter:
    """What an export does with the whole network of a run; a kind of task names such a class by path.

    Args:
        kind: of the task.
        bundle: the installed bundle with the run's overlays and overrides.

    Attributes:
        part: what of the network is exported, and into which files.
        description: added to the bundle's own.
        change: what the version is, before the name of the job.
        compare: takes two folders of results and returns in words that they are equal.
    """

    part: Part = MODEL
    description: ClassVar[str] = ""
    change: ClassVar[str] = "weights of"
    compare: ClassVar[Callable[[Path, Path], str]]

    def __init__(self, kind: Kind, bundle: Bundle) -> None:
        self.kind, self.bundle = kind, bundle

    @property
    def baked(self) -> tuple[list[str], dict[str, Any]]:
        """Overlays and overrides that are merged into the exported configs."""
        return list(self.bundle.overlays), dict(self.bundle.overrides)

    @property
    def kept(self) -> set[str]:
        """Overlays that are left in the bundle though they make another network: around the same encoder."""
        return {made.overlay} if (made := pretraining(self.bundle)) else set()

    def start(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Changes of the exported ``train``: one that began with a file that is not here begins with the model."""
        made = pretraining(self.bundle)
        value = config.get(made.setting) if made else None
        return {made.setting: value.replace(PRETRAINED, "model.pt")} if isinstance(value, str) else {}

    def complete_without(self, held: list[str]) -> bool:
        """Whether the export is complete without the tensors that the sites hold back."""
        return not held

    def facts(self, run: FinishedRun) -> dict[str, Any]:
        """What the metadata tell of the run beside what they tell of every run."""
        return {}

    def same_results(
        self, folder: Path, config: Path, tensors: Mapping[str, Tensor], case: Path, what: str, place: Path
    ) -> str:
        """Return in words that the exported bundle computes what the run's model did.

        Args:
            folder: the exported bundle.
            config: its ``inference`` config.
            tensors: the run's model.
            case: an image, alone in its folder.
            what: the image in words.
            place: for temporary files.

        Raises:
            ExportError: it computes something else, or cannot be run.
        """
        before = infer_before(self.bundle, tensors, case.parent, place / "before")
        found = self.compare(before, infer_after(folder, config, case.parent, place / "after"))
        alone = "the second by `python -m monai.bundle run` in a process without FedMed"
        return f"Inference on {what}, before and after the export: {found}; {alone}."

    def next_steps(self, out: Path) -> list[str]:
        """What one does with the exported bundle, as lines for a terminal."""
        run = f"(cd {out} && python -m monai.bundle run --config_file configs/inference.yaml"
        return [
            f"in MONAI Label:  scripts/label.sh /data/images {out}",
            f"on a folder of images:  {run} --dataset_dir /data/images --output_dir /data/results)",
        ]


class SegmentationExporter(Exporter):
    """Masks."""

    compare = staticmethod(compare_masks)


class ClassificationExporter(Exporter):
    """Probabilities of classes."""

    compare = staticmethod(compare_predictions)


def exporter_of(bundle: Bundle) -> Exporter:
    """The exporter that a bundle's kind names.

    Raises:
        BundleError: the bundle's kind is unknown.
    """
    kind = kind_of(bundle)
    return made(kind.exporter, kind, bundle)
