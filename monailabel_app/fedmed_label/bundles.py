"""Is this folder a bundle that can be served? Looks only at files and names, so that a mistake is reported at once."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fedmed.bundles.metadata_classes import structures
from fedmed.data.structure import Code, Structure, described
from fedmed.errors import BundleError
from fedmed.kinds.kind import PROPOSALS, Proposal
from fedmed.yaml_limits import load_limited

CONFIGS = ("inference.json", "inference.yaml")  # in MONAI Label's order
WEIGHTS = ("model.pt", "model.ts")
OTHERS = ("deepedit", "deepgrow", "detection")  # MONAI Label gives folders with these names another task
EXPORT = "fedmed export makes a complete one"


@dataclass(frozen=True)
class ServedBundle:
    """A bundle's folder, as its files and metadata describe it.

    Attributes:
        root: its folder, whose name is the model's name.
        proposal: what it answers, from the folder's name, as in MONAI Label.
        dimension: spatial axes of the input, 2 or 3.
        channels: channels of the input.
        classes: output channel -> the name of its class.
        structures: what the metadata say of them, the background left out.
    """

    root: Path
    proposal: Proposal
    dimension: int
    channels: int
    classes: Mapping[int, str]
    structures: Sequence[Structure] = ()

    @property
    def label_info(self) -> list[dict[str, Any]]:
        """Name, colour and codes of each segment, in the form in which MONAI Label's clients send them back."""
        return [_segment(number, one) for number, one in enumerate(self.structures, start=1)]

    @property
    def name(self) -> str:
        return self.root.name

    @property
    def task(self) -> str:
        """``segmentation`` or ``classification``."""
        return self.proposal.task

    @property
    def config(self) -> Path:
        """The inference configuration."""
        return next(path for name in CONFIGS if (path := self.root / "configs" / name).is_file())

    @property
    def weights(self) -> Path:
        """``models/model.pt``; TorchScript only if that is missing, since it may hold older weights."""
        pytorch, script = (self.root / "models" / name for name in WEIGHTS)
        return pytorch if pytorch.is_file() else script


def open_bundles(folders: Sequence[Path], place: Path, trusted: Sequence[str] = ()) -> list[ServedBundle]:
    """Open bundles without running a word of them, unless they are trusted, and read them.

    Args:
        folders: as they were given.
        place: an empty folder that stays as long as they are served.
        trusted: see :func:`fedmed.bundles.given_bundle.open_given`.

    Raises:
        BundleError: one cannot be opened, or not be served; says which and why.
    """
    from fedmed.bundles.given_bundle import open_given  # only now: it takes seconds

    checked = [check_folder(folder) for folder in folders]
    return read_bundles([open_given(folder, place / str(number), trusted) for number, folder in enumerate(checked)])


def read_bundles(folders: Sequence[Path]) -> list[ServedBundle]:
    """Read every bundle, and check that their names differ.

    Raises:
        BundleError: one cannot be served; says which and why.
    """
    bundles = [read_bundle(folder) for folder in folders]
    for bundle in bundles:
        twins = [str(other.root) for other in bundles if other.name == bundle.name]
        if len(twins) > 1:
            raise BundleError(f"two bundles are called '{bundle.name}': {', '.join(twins)}; rename or leave out one")
    return bundles


def read_bundle(folder: Path) -> ServedBundle:
    """Read what a folder's name and metadata say about the bundle.

    Raises:
        BundleError: no such folder, not a bundle, no task in its name, no weights, or metadata that cannot be used.
    """
    root = check_folder(folder)
    proposal = _proposal(root)
    return ServedBundle(root, proposal, *_format(root, proposal))


def check_folder(folder: Path) -> Path:
    """Return a bundle's folder, in which nothing is read.

    Raises:
        BundleError: no such folder, not a bundle, or no weights.
    """
    root = Path(folder).expanduser().absolute()  # a link keeps its own name
    if not root.is_dir():
        raise BundleError(f"bundle {folder}: the folder does not exist; correct the path. {EXPORT}")
    needed = {"configs/metadata.json": ["metadata.json"], "configs/inference.yaml": list(CONFIGS)}
    for what, names in needed.items():
        if not any((root / "configs" / name).is_file() for name in names):
            raise BundleError(f"{root} is not a bundle: {what} is missing; {EXPORT}")
    has_weights = any((root / "models" / name).is_file() for name in WEIGHTS)
    if not has_weights and (root / "models" / "pretrained.pt").is_file():
        raise BundleError(
            f"bundle {root} holds a pre-trained encoder and no model that names classes; train one on it first "
            "(docs/README.md of the bundle says how) and export that"
        )
    if not has_weights:
        raise BundleError(f"bundle {root} has no weights: models/model.pt is missing; {EXPORT}")
    return root


def _segment(number: int, structure: Structure) -> dict[str, Any]:
    """One segment for MONAI Label, which makes a DICOM segmentation of ``segmentAttribute`` (the words are dcmqi's)."""

    def coded(code: Code) -> dict[str, str]:
        return {"CodeValue": code.value, "CodingSchemeDesignator": code.scheme, "CodeMeaning": code.meaning}

    category, kind = map(coded, structure.codes)
    attribute = {"labelID": number, "SegmentLabel": structure.title, "SegmentDescription": structure.name}
    attribute |= {"SegmentAlgorithmType": "SEMIAUTOMATIC", "SegmentAlgorithmName": "FedMed"}
    attribute |= {"SegmentedPropertyCategoryCodeSequence": category, "SegmentedPropertyTypeCodeSequence": kind}
    attribute |= {"AnatomicRegionSequence": coded(structure.anatomy)} if structure.anatomy else {}
    colour = {"color": list(structure.rgb)} if structure.rgb else {}
    attribute |= {"recommendedDisplayRGBValue": list(structure.rgb)} if structure.rgb else {}
    return {"name": structure.name, "idx": number, "description": structure.title, **colour,
            "segmentAttribute": attribute}  # fmt: skip


def _proposal(root: Path) -> Proposal:
    name = root.name.lower()
    if not re.fullmatch(r"[a-z0-9_.-]+", name):
        raise BundleError(f"bundle {root}: name the folder with letters, digits, '_', '-' and '.' only")
    task = next((proposal.task for proposal in PROPOSALS if proposal.task in name), None)
    declared = _declared(root)
    possible = PROPOSALS if declared is None else (declared,)
    proposal_of_task = next((proposal for proposal in possible if proposal.task == task), None)
    if proposal_of_task is None or any(other in name for other in OTHERS):
        raise BundleError(
            f"bundle {root}: the folder's name must name the task, because MONAI Label reads it there; rename it to "
            f"..._{' or ..._'.join(proposal.task for proposal in possible)} (without {', '.join(OTHERS)})"
        )
    return proposal_of_task


def _declared(root: Path) -> Proposal | None:
    """Kind of answer to the bundle's kind of task; None for bundles that name no kind, as those of others.

    An overlay that made another task of it has left that kind in the inference configuration.
    """
    federation, *overlaid = [root / "configs" / name for name in ("federation.yaml", *CONFIGS)]
    if _kind(federation) is None:
        return None
    from fedmed.kinds.find_kind import load_kind  # only now: it takes seconds

    path = next((path for path in overlaid if _kind(path) is not None), federation)
    spec = _kind(path)
    proposal = load_kind(spec, f"{path}: 'kind'").proposal
    if proposal is None:
        raise BundleError(
            f"{path}: a model of the kind '{spec}' has no answer about a single image that MONAI Label could show, so "
            "it is not served"
        )
    return proposal


def _kind(path: Path) -> Any:
    """The kind of task that a configuration names; None where there is no such file or kind."""
    try:
        return (load_limited(path.read_text(encoding="utf-8")) or {}).get("kind") if path.is_file() else None
    except (OSError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise BundleError(f"{path} cannot be read ({error}); {EXPORT}") from error


def _format(root: Path, proposal: Proposal) -> tuple[int, int, dict[int, str], list[Structure]]:
    """Axes and channels of the input, the classes of the output, and what is said of them."""
    path = root / "configs" / "metadata.json"
    try:
        metadata = json.loads(path.read_text(encoding="utf-8"))
        data = metadata["network_data_format"]
        image, pred = _only(data["inputs"], "image"), _only(data["outputs"], "pred")
        classes = {int(channel): str(name) for channel, name in pred["channel_def"].items()}
        axes, channels = len(image.get("spatial_shape") or "xyz"), int(image["num_channels"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise BundleError(f"{path}: network_data_format cannot be used ({reason}); {EXPORT}") from error
    if axes not in (2, 3) or not classes:
        raise BundleError(f"{path}: {axes} spatial axes and {len(classes)} classes; 2 or 3 and at least one are needed")
    if proposal.scores and sorted(classes) != list(range(len(classes))):
        raise BundleError(f"{path}: outputs.pred.channel_def must name channels 0 to {len(classes) - 1}")
    names = [classes[channel] for channel in sorted(classes) if classes[channel].lower() != "background"]
    return axes, channels, classes, described(names, structures(metadata, root))


def _only(entries: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The first entry, which MONAI Label uses and takes to be called ``name``."""
    first = next(iter(entries), None)
    if first != name:
        raise ValueError(f"the first entry is {first!r} where MONAI Label needs '{name}'")
    return entries[name]
