"""Images of a study as a person sees them."""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import yaml
from torch import Tensor

from fedmed.data.augment.patches import Augment, build_augment, weak_view
from fedmed.data.datalist import UNLABELED, Video, list_entries, listed_file, load_datalist, read_datalist
from fedmed.errors import DataError, FedMedError
from fedmed.kinds.find_kind import kind_by_look
from fedmed.settings.site import SiteConfig
from fedmed.yaml_limits import load_limited

CORRECTED = "corrected_labels"  # folder below data_root; see fedmed.labelling.corrections
LISTS = ("training", "validation", "testing", UNLABELED)
SKIPPED = {"labels", CORRECTED}
# As the link is spelled: MONAI Label knows some endings only, in small letters.
ENDINGS = {".nii.gz": ".nii.gz", ".nii": ".nii", ".png": ".png", ".jpg": ".jpg", ".jpeg": ".jpg"}
DICOM = {".dcm": ".dcm", ".dicom": ".dcm"}  # images of their own where they are radiographs
ENDINGS |= DICOM
View = Callable[[Tensor], Tensor]
DEFAULTS: dict[str, Any] = {"augmentation": "scale_shift", "shift_level": 0.1, "cutout_size": [20, 20, 3]}
SUM_TOLERANCE = 1e-3  # half precision keeps three digits
ONE_VOXEL = 1.0


def site_images(site: SiteConfig, everything: bool) -> list[Path]:
    """Images of a site, each once: of all lists, or of ``unlabeled`` and what corrections have moved from there.

    Of a site of videos they are the pictures of those that are folders of frames.

    Raises:
        DataError: no image, or a video that is a file.
    """
    form = kind_by_look(read_datalist(site.datalist)).form()
    cases = load_datalist(site.data_root, site.datalist, UNLABELED, required=False, form=form)
    for name in LISTS[:-1]:
        for number, entry in enumerate(list_entries(site.datalist, name)):
            if everything or _corrected(entry):
                where = f"{site.datalist}: entry {number} of '{name}'"
                cases.append({form.main: listed_file(site.data_root, where, form.main, entry)})
    if not cases:
        hint = "" if everything else f" has no '{UNLABELED}' {form.main}s; --all serves those of the other lists too"
        raise DataError(f"{site.datalist}{hint or f' lists no {form.main}'}")
    listed = dict.fromkeys(Path(case[form.main]) for case in cases)
    return [path for entry in listed for path in (_frames(entry) if form.main == Video.main else [entry])]


def _frames(video: Path) -> list[Path]:
    """Pictures of a video that is a folder of frames."""
    if not video.is_dir():
        raise DataError(
            f"{video} is a video, and the label server shows single pictures: write its frames into a folder "
            "(ffmpeg -i VIDEO -vf fps=1 FRAMES/%05d.png) and serve that folder"
        )
    return folder_images(video, pictures=False)


def _corrected(entry: Any) -> bool:
    """True where the label of an entry is a mask, or a folder of masks, that a reader drew in the label server."""
    labels = [entry.get(key) for key in ("label", "masks")] if isinstance(entry, Mapping) else []
    return any(isinstance(label, str) and Path(label).is_relative_to(CORRECTED) for label in labels)


def folder_images(root: Path, pictures: bool) -> list[Path]:
    """Images below a folder; with ``pictures`` DICOM files too."""
    images = sorted(_walk(root, pictures))
    if not images:
        endings = ".nii, .nii.gz, .png, .jpg" + (", .dcm" if pictures else "")
        hint = "" if pictures else "turn a folder of series into a site with fedmed prepare ct, or "
        raise DataError(
            f"{root} holds no image ({endings}) at any depth. DICOM: {hint}give the URL of a DICOMweb server"
        )
    return images


def _walk(root: Path, pictures: bool) -> Iterator[Path]:
    """Images below a folder, each once; folders may be links, also to each other."""
    seen = set()

    def unlisted(error: OSError) -> None:
        raise DataError(f"the folder {error.filename} cannot be listed ({error.strerror}); allow it or move it away")

    for place, folders, names in os.walk(root, onerror=unlisted, followlinks=True):
        if (real := os.path.realpath(place)) in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in SKIPPED)
        for name in names:
            path, ending = Path(place) / name, ending_of(name)
            if not name.startswith(".") and ending and (pictures or ending not in DICOM) and path.is_file():
                yield path


def ending_of(name: str) -> str:
    """The ending in small letters if the file's name is that of an image, else nothing."""
    return next((ending for ending in ENDINGS if name.lower().endswith(ending)), "")


def trained_augmentation(bundle: Path) -> dict[str, Any]:
    """Return the augmentation of ``bundle`` that the sites without masks were trained with: values of ``DEFAULTS``.

    It is that of the overlays which define ``augmentation``, changed by what the federation's job overrode. An exported
    bundle's metadata say which overlays and overrides the sites of each role had; where they say none, all overlays of
    the bundle are looked at. Where none defines it, or it changes nothing, so that there would be nothing to compare,
    it is the scale-shift of Yang et al. 2021 (Medical Image Analysis 70, 101992).

    Raises:
        FedMedError: a file cannot be read, or names an augmentation that FedMed does not have.
    """
    configs, settings = bundle / "configs", dict(DEFAULTS)
    try:
        roles = _read(configs / "metadata.json").get("federation", {}).get("methods") or {"": {}}
        for role in roles.values():
            named = [configs / f"{overlay}.yaml" for overlay in role.get("overlays", [])]
            values: dict[str, Any] = {}
            for path in named or sorted(configs.glob("*.yaml")):
                values |= _read(path)
            values |= role.get("overrides", {})
            if values.get("augmentation", "identity") not in ("identity", ["identity"]):
                settings |= {key: values[key] for key in DEFAULTS if key in values}
        _augment(settings, seed=0)
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError, FedMedError) as error:
        raise FedMedError(f"{configs}: no usable augmentation ({error}); correct 'augmentation'") from error
    return settings


def mean_disagreement(
    predict: Callable[[View | None], Tensor], settings: Mapping[str, Any], seeds: Sequence[int], together: bool = False
) -> float:
    """Return how far an image's prediction is from those of its augmented views, on average; see ``view_disagreement``.

    The views are drawn from the same seeds for every image: with draws of their own, images would be ranked by how
    much they happened to be changed.

    Args:
        predict: probabilities of the image (C, ...); its argument changes the preprocessed batch (1, C, ...), or is
            None for the image as it is.
        settings: see :func:`trained_augmentation`.
        seeds: one view for each.
        together: see :func:`fedmed.labelling.views.view_disagreement`.
    """
    distances = []
    p = None
    for augment in (_augment(settings, seed) for seed in seeds):
        plain = _plain_weak(augment)
        if p is None or not plain:  # FixMatch changes both views
            p = predict(None if plain else partial(weak_view, augment))
        distances.append(view_disagreement(p, predict(augment), together))
    return fmean(distances)


def _augment(settings: Mapping[str, Any], seed: int) -> Augment:
    return build_augment(settings["augmentation"], seed, settings["shift_level"], settings["cutout_size"])


def _read(path: Path) -> dict[str, Any]:
    """Content of a YAML file, of which JSON is a kind; empty where there is none."""
    return (load_limited(path.read_text(encoding="utf-8")) if path.is_file() else None) or {}


def _plain_weak(augment: Augment) -> bool:
    """True where the view of the pseudo-label is the image as it is, which then needs one prediction for all seeds."""
    parts = getattr(augment, "augments", (augment,))
    return all(getattr(type(part), "weak", Augment.weak) is Augment.weak for part in parts)


def predictive_uncertainty(p: Tensor, together: bool = False) -> float:
    """Mean entropy of a prediction, from 0 (every value is 0 or 1) to 1 (nothing is known).

    Each voxel's entropy is divided by the largest that is possible. One foreground channel and several labels that
    may hold together give the binary entropy in bits of each; exclusive classes give the entropy over the classes,
    over ``log C``. With two exclusive channels both are the same.

    Args:
        p: probabilities in [0, 1]: (C, X, Y, ...) of a segmentation, (C,) of a classification. One channel is the
            probability of the foreground. Classes are exclusive (softmax, not sigmoid) if channels sum to 1 everywhere.
        together: whether labels are known to hold together: the probabilities of a few may sum to 1 by chance.

    Raises:
        FedMedError: empty, not finite, or outside [0, 1].
    """
    p = _checked(p)
    if not together and _exclusive(p):
        return float(torch.special.entr(p).sum(0).mean() / math.log(len(p)))
    return float((torch.special.entr(p) + torch.special.entr(1 - p)).mean() / math.log(2))


def view_disagreement(p: Tensor, q: Tensor, together: bool = False) -> float:
    """Distance of two predictions of one image, from 0 (equal) to 1.

    Of a segmentation it is ``1 - (2 Σpq + 1) / (Σp² + Σq² + 1)`` over the foreground: one minus soft Dice. A mean of
    ``|p - q|`` over the volume would rank scans by the size of their lesions; relative to what is found, a scan whose
    one small lesion vanishes under the augmentation comes first. Squares keep a hundred thousand background voxels of
    probability 0.01 from counting like a lesion. The 1 is one sure voxel: two views in which nothing is found agree
    (0), where soft Dice itself is 0/0.

    Of a classification it is the total variation ``½ Σ|p - q|``; of labels that may hold together, the mean
    ``|p - q|``.

    Args:
        p: as in :func:`predictive_uncertainty`: the prediction of the image as it is. Channel 0 of exclusive classes
            with spatial axes is the background.
        q: the prediction of the augmented image, the shape of ``p``.
        together: as in :func:`predictive_uncertainty`.

    Raises:
        FedMedError: different shapes, empty, not finite, or outside [0, 1].
    """
    if p.shape != q.shape:
        raise FedMedError(f"two views of one image: predictions of shape {tuple(p.shape)} and {tuple(q.shape)}")
    p, q = _checked(p), _checked(q)
    one_true = not together and _exclusive(p)
    if p.ndim == 1:
        difference = (p - q).abs()
        return float(difference.sum() / 2 if one_true else difference.mean())
    if one_true:
        p, q = p[1:], q[1:]
    common = 2 * (p * q).sum() + ONE_VOXEL
    return float(1 - common / (p.square().sum() + q.square().sum() + ONE_VOXEL))


def _checked(p: Tensor) -> Tensor:
    if p.ndim == 0 or p.numel() == 0:
        raise FedMedError(f"probabilities have shape {tuple(p.shape)}; (C, ...) with at least one value is needed")
    p = p.detach().to(torch.float64).cpu()  # sums over millions of voxels
    if not bool(torch.isfinite(p).all()) or p.min() < 0 or p.max() > 1 + SUM_TOLERANCE:
        raise FedMedError("probabilities are not all finite and in [0, 1]; does the bundle's inferer return logits?")
    return p.clamp(max=1)


def _exclusive(p: Tensor) -> bool:
    return len(p) > 1 and bool(((p.sum(0) - 1).abs() < SUM_TOLERANCE).all())
