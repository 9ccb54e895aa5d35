"""The augmented views of an image whose predictions are compared."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from torch import Tensor

from fedmed.data.augment.base import Augment, weak_view
from fedmed.data.augment.build import build_augment
from fedmed.errors import FedMedError
from fedmed.labelling.label_scores import view_disagreement

View = Callable[[Tensor], Tensor]
DEFAULTS = {"augmentation": "scale_shift", "shift_level": 0.1, "cutout_size": [20, 20, 3]}


def consistency_settings(bundle: Path) -> dict[str, Any]:
    """Return the augmentation that the sites without masks were trained with: the values of ``DEFAULTS``.

    It is that of ``configs/consistency.yaml``, changed by what the federation's job overrode, as an exported bundle's
    metadata say; the paper's scale-shift where neither names one.

    Args:
        bundle: the bundle's folder.

    Raises:
        FedMedError: a file cannot be read, or names an augmentation that FedMed does not have.
    """
    configs = bundle / "configs"
    settings = dict(DEFAULTS)
    try:
        for values in (_read(configs / "consistency.yaml"), _overrides(_read(configs / "metadata.json"))):
            settings |= {key: value for key, value in values.items() if key in DEFAULTS}
        build_augment(settings["augmentation"], 0, settings["shift_level"], settings["cutout_size"])
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError, FedMedError) as error:
        raise FedMedError(f"{configs}: no usable augmentation ({error}); correct consistency.yaml") from error
    return settings


def mean_disagreement(
    predict: Callable[[View | None], Tensor], settings: Mapping[str, Any], seeds: Sequence[int]
) -> float:
    """Return how far an image's prediction is from those of its augmented views, on average; see ``view_disagreement``.

    The views are drawn from the same seeds for every image: with draws of their own, images would be ranked by how
    much they happened to be changed.

    Args:
        predict: probabilities of the image (C, ...); its argument changes the preprocessed batch (1, C, ...), or is
            None for the image as it is.
        settings: see :func:`consistency_settings`.
        seeds: one view for each.
    """
    distances = []
    p = None
    for seed in seeds:
        augment = build_augment(settings["augmentation"], seed, settings["shift_level"], settings["cutout_size"])
        plain = _plain_weak(augment)
        if p is None or not plain:  # FixMatch changes both views
            p = predict(None if plain else lambda batch, augment=augment: weak_view(augment, batch))
        distances.append(view_disagreement(p, predict(augment)))
    return fmean(distances)


def _read(path: Path) -> dict[str, Any]:
    """Content of a YAML file, of which JSON is a kind; empty where there is none."""
    return (yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else None) or {}


def _overrides(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    methods = metadata.get("federation", {}).get("methods", {})
    return methods.get("unsupervised", {}).get("overrides", {})


def _plain_weak(augment: Augment) -> bool:
    """Whether the view of the pseudo-label is the image as it is, which then needs one prediction for all seeds."""
    parts = getattr(augment, "augments", (augment,))
    return all(getattr(type(part), "weak", Augment.weak) is Augment.weak for part in parts)
