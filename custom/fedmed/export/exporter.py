"""Exporters of the kinds of tasks, and of an encoder alone."""

import json
import math
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import nibabel as nib
import numpy as np
import torch
from monai.bundle import ConfigParser
from torch import Tensor

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import parsed, speaks_of
from fedmed.bundles.contract import EXAMPLE, PRETRAINED, pretraining
from fedmed.bundles.infer import run_inference
from fedmed.data.video.frame_masks import picture
from fedmed.errors import BundleError, ExportError
from fedmed.export.finished_run import FinishedRun
from fedmed.export.folder import CONFIGS, MODELS
from fedmed.export.formats import MODEL, Part
from fedmed.kinds.find_kind import kind_of, made
from fedmed.kinds.kind import Kind
from fedmed.methods.find_method import installed
from fedmed.methods.method import Method

MASKS, PREDICTIONS = "*.nii*", "predictions.json"
LARGEST = 1e-6  # difference of two probabilities
# `python -m monai.bundle` in a process that cannot import FedMed: a bundle must not need it to infer. Before that is
# so, FedMed has made the imports of MONAI light, where it is found from the folder in which the process works.
WITHOUT_FEDMED = """
import contextlib, runpy, sys
with contextlib.suppress(ImportError):
    import fedmed
sys.modules.update({name: None for name in ["fedmed", *sys.modules] if name.partition(".")[0] == "fedmed"})
runpy.run_module("monai.bundle", run_name="__main__")
"""
LARGEST_SHARE = 1e-6  # difference of two features, as a part of the largest


class Exporter:
    """Export of the whole network of a run; a kind of task names such a class by path.

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
        """True where the export is complete without the tensors that the sites hold back."""
        return not held

    def facts(self, run: FinishedRun) -> dict[str, Any]:
        """Facts of the run for the metadata, beside those that every run has."""
        return {}

    def compare(self, before: Path, after: Path) -> str:
        """Return in words that two folders of results are equal; ExportError: they are not."""
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
        equal = self.compare(before, infer_after(folder, config, case.parent, place / "after"))
        alone = "the second by `python -m monai.bundle run` in a process without FedMed"
        return f"Inference on {what}, before and after the export: {equal}; {alone}."

    @property
    def continuations(self) -> dict[str, tuple[str, ...]]:
        """Title of a method that goes on from the weights -> overlays of the bundle with which it does."""
        return {}

    def next_steps(self, out: Path) -> list[str]:
        """Lines for a terminal: uses of the exported bundle."""
        place = shlex.quote(str(out))
        run = f"(cd {place} && python -m monai.bundle run --config_file configs/inference.yaml"
        served = [f"in MONAI Label:  scripts/label.sh /data/images {place}"] if self.kind.proposal else []
        what = self.kind.card.inputs
        target = shlex.quote(str(Path(out).with_name(f"adapted_{Path(out).name}")))  # the ending names the task
        adapted = f"at a hospital without labels:  fedmed adapt {place} /data/{what} {target}"
        folder = f"on a folder of {what}:  {run} --dataset_dir /data/{what} --output_dir /data/results)"
        return [*served, folder, adapted]


class SegmentationExporter(Exporter):
    """Masks, which are equal voxel for voxel."""

    def compare(self, before: Path, after: Path) -> str:
        marked = 0
        for name in _names(before, after, MASKS):
            one, other = (nib.Nifti1Image.from_filename(folder / name) for folder in (before, after))
            if one.shape != other.shape or not np.array_equal(one.affine, other.affine):
                raise ExportError(
                    f"{name}: the grid is {other.shape} after the export, it was {one.shape}, or its affine moved"
                )
            marked += _same(name, np.asarray(one.dataobj), np.asarray(other.dataobj), "voxels")
        return f"equal voxel for voxel ({marked} marked), with the same affine"


class ClassificationExporter(Exporter):
    """Probabilities of classes, which are equal within 1e-6."""

    def compare(self, before: Path, after: Path) -> str:
        rows, others = _read(before, "before"), _read(after, "after")
        calls = [
            [(row["image"], row["predicted"], sorted(row["probabilities"])) for row in part] for part in (rows, others)
        ]
        if calls[0] != calls[1] or not rows:
            raise ExportError(
                f"inference gave other images or classes after the export: {calls[1]}, before it {calls[0]}"
            )
        largest = 0.0
        for one, other in zip(rows, others, strict=True):
            for name, value in one["probabilities"].items():
                again = other["probabilities"][name]
                if not math.isclose(value, again, rel_tol=0, abs_tol=LARGEST):
                    raise ExportError(
                        f"the probability of '{name}' is {again:.6f} after the export, it was {value:.6f}"
                    )
                largest = max(largest, abs(value - again))
        return "the same class and equal probabilities" + (f" (within {largest:.0e})" if largest else "")


class FrameMaskExporter(Exporter):
    """Masks of single frames, which are equal pixel for pixel."""

    def compare(self, before: Path, after: Path) -> str:
        marked = 0
        for name in _names(before, after, "*.png"):
            one, other = (picture(folder / name) for folder in (before, after))
            if one.shape != other.shape:
                raise ExportError(f"{name}: the mask is {other.shape} after the export, it was {one.shape}")
            marked += _same(name, one, other, "pixels")
        return f"equal pixel for pixel ({marked} marked)"


def exporter_of(bundle: Bundle, method: Method) -> Exporter:
    """The exporter that a bundle's kind names; BundleError: the bundle's kind is unknown."""
    kind = kind_of(bundle)
    exporter: Exporter = made(kind.exporter, kind, bundle, method)
    return exporter


def _names(before: Path, after: Path, pattern: str) -> list[Path]:
    """Of the files of both folders; ExportError where they differ or there are none."""
    names, others = ([path.relative_to(folder) for path in sorted(folder.rglob(pattern))] for folder in (before, after))
    if names != others or not names:
        raise ExportError(f"before the export inference wrote {len(names)} results, after it {len(others)}")
    return names


def _same(name: Path, a: np.ndarray, b: np.ndarray, unit: str) -> int:
    """Count what is marked in two masks of one shape; ExportError where they differ."""
    if not np.array_equal(a, b):
        raise ExportError(f"{name}: {int((a != b).sum())} of {a.size} {unit} differ before and after the export")
    return int(np.count_nonzero(a))


def _read(folder: Path, when: str) -> list[dict[str, Any]]:
    path = folder / PREDICTIONS
    try:
        content: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ExportError(f"inference {when} the export wrote no readable {PREDICTIONS} ({error})") from error
    return content


def infer_before(
    bundle: Bundle, tensors: Mapping[str, Tensor], images: Path, out: Path, site_facts: Mapping[str, Any]
) -> Path:
    """Infer a folder of images with the installed bundle, its overlays and overrides, and the run's own tensors.

    Args:
        bundle, tensors, images: see above.
        out: folder of the results, which is made and returned.
        site_facts: facts of a site, such as its words, that are baked into the export.

    Raises:
        ExportError: the bundle cannot infer them.
    """
    out.mkdir()
    torch.save(dict(tensors), out / "model.pt")
    main = bundle.config_file("inference")
    files = [main, *(path for path in bundle.files[1:] if speaks_of(main, path))]
    facts = {"bundle_root": str(bundle.root), "dataset_dir": str(images), "output_dir": str(out)}
    try:
        run_inference(
            bundle.root, files, {**bundle.overrides, **site_facts, **facts, "model_path": str(out / "model.pt")}
        )
    except BundleError as error:
        raise ExportError(f"the run's model cannot infer the image before the export: {error}") from error
    (out / "model.pt").unlink()
    return out


def infer_after(folder: Path, config: Path, images: Path, out: Path) -> Path:
    """Infer the same with the exported bundle, in a process of its own; arguments and errors as above."""
    place = ["--bundle_root", ".", "--dataset_dir", str(images), "--output_dir", str(out)]
    command = [sys.executable, "-c", WITHOUT_FEDMED, "run", "--config_file", f"{CONFIGS}/{config.name}", *place]
    # The same number of threads adds in the same order; and nothing may be left in the bundle.
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads()), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip()][-3:]
        raise ExportError("python -m monai.bundle run of the exported bundle failed: " + " / ".join(last))
    return out


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
        """Those that hold for a training with labels too: sizes, and not the method."""
        settings = ConfigParser.load_config_file(self.bundle.config_file(self.made.overlay))
        overlays = [name for name in self.bundle.overlays if name != self.made.overlay]
        return overlays, {key: value for key, value in self.bundle.overrides.items() if key not in settings}

    def start(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Nothing: the file that it begins with is here."""
        return {}

    def complete_without(self, held: list[str]) -> bool:
        """True where the encoder is complete, for it goes on without the rest."""
        return not any(name.startswith(self.made.prefix) for name in held)

    def facts(self, run: FinishedRun) -> dict[str, Any]:
        """Note that it is a pre-training, and the sites' mean of each of the method's scalars in the last round."""
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
        largest = LARGEST_SHARE * float(before.abs().max())
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
        features: Tensor = getattr(network.eval(), self.made.encoder)(torch.as_tensor(made)[None].float())
        return features

    @property
    def continuations(self) -> dict[str, tuple[str, ...]]:
        """Title of each method that trains with labels from an encoder on -> its overlays, all of which are here."""
        methods = [kind() for kind in installed().values() if "checkpoint_tensors" in kind.example]
        overlays = {method.title: method.role("supervised").overlays for method in methods}
        there = {path.stem for path in (self.bundle.root / CONFIGS).iterdir()}
        return {title: names for title, names in overlays.items() if names and there.issuperset(names)}

    def next_steps(self, out: Path) -> list[str]:
        run = (
            f'(cd {shlex.quote(str(out))} && python -m monai.bundle run --config_file "{{}}" --dataset_dir /data/site)'
        )
        files = {title: [f"{CONFIGS}/{name}.yaml" for name in ("train", *names)]
                 for title, names in self.continuations.items()}  # fmt: skip
        return [
            *(f"{title}, at one site:  {run.format(names)}" for title, names in files.items()),
            f"in a federation:  {out.name} in $FEDMED_HOME/bundles, and in a study of fedmed study init  "
            f"bundle: {out.name}, checkpoint: pretrained.pt, checkpoint_tensors: ['^encoder\\.']",
        ]
