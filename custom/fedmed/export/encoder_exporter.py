"""What an export makes of a pre-training: the encoder alone, for those who train a task on it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser
from torch import Tensor

from fedmed.bundles.load import Bundle
from fedmed.bundles.pretraining import EXAMPLE, PRETRAINED, pretraining
from fedmed.errors import BundleError
from fedmed.export.compare_features import same_features
from fedmed.export.exporter import Exporter
from fedmed.export.finished_run import FinishedRun
from fedmed.export.formats import Part
from fedmed.kinds.kind import Kind

CONTRAST = "train_contrastive_accuracy"


class EncoderExporter(Exporter):
    """The encoder, as ``pretraining`` of the bundle's ``federation.yaml`` names it.

    Raises:
        BundleError: the bundle does not say what its encoder is.
    """

    description = " This one holds a pre-trained encoder (models/pretrained.pt) and no trained classifier."
    change = "encoder pre-trained by"

    def __init__(self, kind: Kind, bundle: Bundle) -> None:
        super().__init__(kind, bundle)
        made = pretraining(bundle)
        if made is None:
            raise BundleError(
                f"{bundle.root}/configs/federation.yaml: 'pretraining' is missing. Example:\n    {EXAMPLE}"
            )
        self.made = made
        self.part = Part(made.encoder, PRETRAINED, made.prefix, made.encoder, "features")

    @property
    def baked(self) -> tuple[list[str], dict[str, Any]]:
        """What holds for a training with labels too: sizes, and not the method."""
        own = ConfigParser.load_config_file(self.bundle.config_file(self.made.overlay))
        overlays = [name for name in self.bundle.overlays if name != self.made.overlay]
        return overlays, {key: value for key, value in self.bundle.overrides.items() if key not in own}

    def start(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Nothing: the file that it begins with is here."""
        return {}

    def complete_without(self, held: list[str]) -> bool:
        """What is left of the network goes on without the rest."""
        return not any(name.startswith(self.made.prefix) for name in held)

    def facts(self, run: FinishedRun) -> dict[str, Any]:
        """That it is a pre-training, and how often the last round told a view's own image from the others."""
        sites = (run.rounds[-1].get("sites") or {}).values()
        found = [site[CONTRAST] for site in sites if site.get(CONTRAST) is not None]
        return {"pretrained": True, "contrastive_accuracy": sum(found) / len(found) if found else None}

    def same_results(
        self, folder: Path, config: Path, tensors: Mapping[str, Tensor], case: Path, what: str, place: Path
    ) -> str:
        """As for every kind, of the features that a training begins with."""
        return same_features(folder, self.bundle, self.made, tensors, case, what)

    def next_steps(self, out: Path) -> list[str]:
        linear = "\"['configs/train.yaml', 'configs/linear.yaml']\""
        run = f"(cd {out} && python -m monai.bundle run --config_file {linear} --dataset_dir /data/site)"
        return [
            f"a classifier at one site:  {run}",
            f"in a federation:  FEDMED_BUNDLES={out.parent}, and in the study of scripts/package_job.py --init linear  "
            f"bundle: {out.name}, checkpoint: pretrained.pt, checkpoint_tensors: ['^encoder\\.']",
        ]
