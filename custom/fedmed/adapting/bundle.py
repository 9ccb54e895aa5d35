"""From a bundle and a hospital's images to a bundle that is adapted to them."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from fedmed.adapting.decisions import SETTINGS, Adapted, adapt_to
from fedmed.adapting.folder_images import FolderImages
from fedmed.adapting.page import adaptation_page, card_section, with_section
from fedmed.bundles.digests import DIGESTS, SIGNATURE, bundle_files, read_digests, write_digests
from fedmed.bundles.given_bundle import open_given
from fedmed.bundles.infer import CONFIGS, WEIGHTS, check_ready
from fedmed.data.augment.intensities import references
from fedmed.errors import BundleError, DataError
from fedmed.export.configs import to_yaml
from fedmed.export.folder import DOCS, METADATA, check_apart, check_target, staged
from fedmed.export.formats import MODEL, write_onnx, write_torchscript
from fedmed.reports.sheet import write_html
from fedmed.reports.words import count
from fedmed.yaml_limits import load_limited

ADAPTED = "adapted"  # key of the federation's metadata
FEWEST_IMAGES, FEWEST_SCANS, FEWEST_VIDEOS, FEWEST_FRAMES = 20, 5, 2, 40
PAGE = "page.html"
_FORMS = (("ts", write_torchscript), ("onnx", write_onnx))


@dataclass(frozen=True)
class Made:
    """An adapted bundle.

    Attributes:
        out: the bundle's folder.
        version: in its metadata.
        amount: of images, in words.
        adapted: the model before and after.
    """

    out: Path
    version: str
    amount: str
    adapted: Adapted


def adapt_bundle(
    bundle: Path,
    images: Path,
    out: Path,
    *,
    adaptations: Collection[str] = (),
    few: bool = False,
    device: str | None = None,
    trusted: Collection[str] = (),
    replace: bool = False,
) -> Made:
    """Write a copy of a bundle, adapted to a hospital's images without labels, whole or not at all.

    Args:
        bundle: an exported one, with weights.
        images: a folder of what its inference reads, or a video.
        out: the new bundle's own folder; its name says the task (``…_segmentation``).
        asked: adaptations that are made, whatever speaks against them; ``none`` = none is; empty = each decides.
        few: also with fewer images than a model is judged by.
        device: for the computations; None = as the bundle says.
        trusted: digests of bundles that may run their own code.
        replace: replace an exported bundle at ``out``.

    Raises:
        BundleError: ``bundle`` is not one, was changed, is adapted already, or fails.
        DataError: the images cannot be read, are too few, or all alike.
        ExportError: ``out`` cannot be written. Nothing is left behind then.
    """
    bundle, out = bundle.expanduser().absolute(), out.expanduser().absolute()
    check_target(out, replace)
    metadata = check_ready(bundle)
    check_apart(out, bundle.resolve())
    if ADAPTED in (metadata.get("federation") or {}):
        raise BundleError(
            f"{bundle} was adapted to a hospital's images already, and no longer has the statistics of its training; "
            "give the bundle that it was made from"
        )
    known = _config(bundle)[1]
    values = {key: value for key, value in SETTINGS.values() if key in known}
    if device:
        values["device"] = device
    with tempfile.TemporaryDirectory(prefix="fedmed-adapt-") as place:
        opened = open_given(bundle, Path(place) / "bundle", trusted)
        prepared = FolderImages(opened, images, values, Path(place) / "results")
        amount = amount_of(prepared)
        if not few:
            _check_enough(prepared, amount)
        trained_on = references(metadata)
        adapted = adapt_to(prepared, trained_on, known, adaptations)
        with staged(out) as folder:
            version = _fill(folder, bundle, metadata, adapted, amount, Path(place) / "copy")
            # After the digests: whoever gives the bundle on removes the page, and it is whole all the same.
            write_html(adaptation_page(out.name, adapted, amount, trained_on), folder / DOCS / PAGE)
    return Made(out, version, amount, adapted)


def amount_of(images: FolderImages) -> str:
    """Return ``24 images``, ``5 scans``, or ``440 frames of 4 videos``."""
    if images[0]["image"].ndim == 4:
        return count(len(images), "scan")
    if not images.timed:
        return count(len(images), "image")
    frames = count(len(images), "frame")
    return f"{frames} of {count(len(images.files), 'video')}" if images.of_videos else frames


def _check_enough(images: FolderImages, amount: str) -> None:
    wanted = ""
    if images[0]["image"].ndim == 4:
        wanted = f"{FEWEST_SCANS} scans" if len(images) < FEWEST_SCANS else ""
    elif images.timed:
        too_few = len(images.files) < FEWEST_VIDEOS if images.of_videos else len(images) < FEWEST_FRAMES
        wanted = f"{FEWEST_VIDEOS} videos, or {FEWEST_FRAMES} single frames" if too_few else ""
    elif len(images) < FEWEST_IMAGES:
        wanted = f"{FEWEST_IMAGES} images"
    if wanted:
        left = f" ({count(len(images.faults), 'file')} could not be read)" if images.faults else ""
        raise DataError(
            f"{images.folder}: {amount}{left}; a hospital is known by {wanted} or more. Give more, of several "
            "patients, or --few to adapt to these"
        )


def _fill(folder: Path, bundle: Path, metadata: Mapping[str, Any], adapted: Adapted, amount: str, copy: Path) -> str:
    """Copy the bundle and change what differs; return the new version."""
    for path in bundle_files(bundle):
        target = folder / path.relative_to(bundle)
        if path.name not in (DIGESTS, SIGNATURE, PAGE):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    if adapted.share:
        state = {name: tensor.cpu() for name, tensor in adapted.network.state_dict().items()}
        with (folder / WEIGHTS).open("wb") as stream:  # given a path, torch writes that into the file
            torch.save(state, stream)
        _write_other_forms(folder, adapted.images.root, copy)
    if adapted.settings:
        _write_settings(folder, adapted.settings)
    version = _write_metadata(folder, metadata, adapted, amount)
    card = folder / DOCS / "README.md"
    card.parent.mkdir(exist_ok=True)
    before = card.read_text(encoding="utf-8") if card.is_file() else f"# {folder.name}\n"
    card.write_text(with_section(before, card_section(adapted, amount, str(metadata["version"]))), encoding="utf-8")
    digests = read_digests(bundle)
    write_digests(folder, digests["made_of"] if digests else {"bundle": bundle.name, "overlays": []})
    return version


def _write_metadata(folder: Path, metadata: Mapping[str, Any], adapted: Adapted, amount: str) -> str:
    whole = (folder / WEIGHTS).read_bytes() + json.dumps(adapted.settings).encode()
    before = str(metadata["version"])
    version = f"{before.partition('+')[0]}+{hashlib.sha256(whole).hexdigest()[:8]}"
    facts = {one.name: {"made": one.made, "why": one.why, **one.settings} for one in adapted.decisions}
    about = {"from": before, "images": amount, "share": round(adapted.share, 4), "adaptations": facts}
    what = ", ".join(adapted.made) or "nothing changed"
    change = f"{before} adapted to {amount} of a hospital, without labels: {what}"
    older = {known: text for known, text in (metadata.get("changelog") or {}).items() if known != version}
    content = {**metadata, "version": version, "changelog": {version: change, **older}}
    content["federation"] = {**(metadata.get("federation") or {}), ADAPTED: about}
    text = json.dumps(content, indent=4, ensure_ascii=False)
    (folder / "configs" / METADATA).write_text(text + "\n", encoding="utf-8")
    return version


def _write_other_forms(folder: Path, opened: Path, copy: Path) -> None:
    """Write TorchScript and ONNX of the adapted weights, where the bundle has them.

    Args:
        folder: the new bundle.
        opened: the bundle that it is made from, as it may be run.
        copy: an empty folder, for a bundle of the one's weights and the other's code.
    """
    made = [(folder / "models" / f"{MODEL.name}.{ending}", write) for ending, write in _FORMS]
    there = [(path, write) for path, write in made if path.is_file()]
    for path in bundle_files(opened) if there else ():
        target = copy / path.relative_to(opened)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / WEIGHTS if target == copy / WEIGHTS else path, target)
    for path, write in there:
        write(copy, _config(copy)[0])
        shutil.copyfile(copy / "models" / path.name, path)


def _config(root: Path) -> tuple[Path, dict[str, Any]]:
    path = next(root / name for name in CONFIGS if (root / name).is_file())
    try:
        content = load_limited(path.read_text(encoding="utf-8"))  # JSON is YAML too
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise BundleError(f"{path} cannot be read ({error}); export the bundle again") from error
    if not isinstance(content, dict):
        raise BundleError(f"{path} does not hold named entries; export the bundle again")
    return path, content


def _write_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    path, content = _config(folder)
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        path.write_text(json.dumps({**content, **settings}, indent=4) + "\n", encoding="utf-8")
        return
    comment = [line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#")]
    header = "\n".join([*comment, f"Adapted to one hospital's images: {', '.join(settings)}."])
    path.write_text(to_yaml({**content, **settings}, header), encoding="utf-8")
