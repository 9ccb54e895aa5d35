"""What an export makes of a pre-training: the encoder alone, for those who train a task on it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from monai.bundle import ConfigParser
from torch import Tensor

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import parsed
from fedmed.bundles.pretraining import EXAMPLE, PRETRAINED
from fedmed.errors import BundleError, ExportError
from fedmed.export.exporter import Exporter
from fedmed.export.finished_run import FinishedRun
from fedmed.export.folder import CONFIGS, MODELS
from fedmed.export.formats import Part
from fedmed.kinds.kind import Kind
from fedmed.methods.find_method import installed
from fedmed.methods.method import Method

LARGEST = 1e-6  # difference of two features, as a part of the largest


class EncoderExporter(Exporter):
    """The encoder, as ``pretraining`` of the bundle's ``federation.yaml`` names it.

    Raises:
        BundleError: the bundle does not say what its encoder is.
    """

    description = " This one holds a pre-trained encoder (models/pretrained.pt) and no trained classifier."
    change = "encoder pre-trained by"

    def __init__(self, kind: Kind, bundle: Bundle, method: Method) -> None:
        super().__init__(kind, bundle, method)
        if self.pretraining is None:
            raise BundleError(
                f"{bundle.root}/configs/federation.yaml: 'pretraining' is missing. Example:\n    {EXAMPLE}"
            )
        self.made = self.pretraining
        self.part = Part(self.made.encoder, PRETRAINED, self.made.prefix, self.made.encoder, "features")

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
        """That it is a pre-training, and the sites' mean of each of the method's scalars in the last round."""
        sites = (run.rounds[-1].get("sites") or {}).values()
        sent = {scalar.name: [site[scalar.name] for site in sites if scalar.name in site]
                for scalar in self.method.scalars()}  # fmt: skip
        return {"pretrained": True, "last_round": {name: sum(v) / len(v) for name, v in sent.items() if v}}

    def same_results(
        self, folder: Path, config: Path, tensors: Mapping[str, Tensor], case: Path, what: str, place: Path
    ) -> str:
        """Return in words that a training that starts from the exported file has the run's encoder.

        The features of an image are computed by the installed bundle with the run's tensors, and by the network of
        the exported ``train`` after its own ``start``.
        """
        ours = self.bundle.parser(device="cpu")
        network = parsed(ours, "network")
        network.load_state_dict({**network.state_dict(), **tensors}, strict=True)  # the encoder may be all there is
        theirs = ConfigParser()
        theirs.read_config(str(folder / CONFIGS / self.bundle.config_file("train").name))
        begins = {self.made.setting: str(folder / MODELS / PRETRAINED)}
        theirs.update({"bundle_root": str(folder), "device": "cpu", **begins})
        pairs = ((ours, network), (theirs, parsed(theirs, "start")))
        before, after = (self._features(parser, net, case) for parser, net in pairs)
        largest = LARGEST * float(before.abs().max())
        if before.shape != after.shape or not float((before - after).abs().max()) <= largest:
            raise ExportError(f"the features of {what} are others after the export; the encoder is not the run's")
        return (
            f"The {before.shape[1]} features of {what}, before the export and by a training that starts from "
            f"`models/{PRETRAINED}`: equal."
        )

    @torch.no_grad()
    def _features(self, parser: ConfigParser, network: Any, image: Path) -> Tensor:
        """(1, d) of an image, prepared as a validation prepares it."""
        made = parsed(parser, "validate#preprocessing")({"image": str(image)})["image"]
        found: Tensor = getattr(network.eval(), self.made.encoder)(torch.as_tensor(made)[None].float())
        return found

    @property
    def continuations(self) -> dict[str, tuple[str, ...]]:
        """Title of each method that trains with labels from an encoder on -> its overlays, all of which are here."""
        found = [kind() for kind in installed().values() if "checkpoint_tensors" in kind.example]
        overlays = {method.title: method.role("supervised").overlays for method in found}
        there = {path.stem for path in (self.bundle.root / CONFIGS).iterdir()}
        return {title: names for title, names in overlays.items() if names and there.issuperset(names)}

    def next_steps(self, out: Path) -> list[str]:
        run = f'(cd {out} && python -m monai.bundle run --config_file "{{}}" --dataset_dir /data/site)'
        files = {title: [f"{CONFIGS}/{name}.yaml" for name in ("train", *names)]
                 for title, names in self.continuations.items()}  # fmt: skip
        return [
            *(f"{title}, at one site:  {run.format(names)}" for title, names in files.items()),
            f"in a federation:  {out.name} in $FEDMED_HOME/bundles, and in a study of scripts/package_job.py --init  "
            f"bundle: {out.name}, checkpoint: pretrained.pt, checkpoint_tensors: ['^encoder\\.']",
        ]
