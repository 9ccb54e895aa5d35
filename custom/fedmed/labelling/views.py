"""The augmented views of an image whose predictions are compared."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from torch import Tensor

from fedmed.data.augment.base import Augment, weak_view
from fedmed.data.augment.build import build_augment
from fedmed.errors import FedMedError
from fedmed.labelling.label_scores import view_disagreement
from fedmed.yaml_limits import load_limited

View = Callable[[Tensor], Tensor]
DEFAULTS: dict[str, Any] = {"augmentation": "scale_shift", "shift_level": 0.1, "cutout_size": [20, 20, 3]}


def trained_augmentation(bundle: Path) -> dict[str, Any]:
    """Return the augmentation that the sites without masks were trained with: the values of ``DEFAULTS``.

    It is that of the overlays which define ``augmentation``, changed by what the federation's job overrode. An exported
    bundle's metadata say which overlays and overrides the sites of each role had; where they say none, all overlays of
    the bundle are looked at. Where none defines it, or it changes nothing, so that there would be nothing to compare,
    it is the scale-shift of Yang et al. 2021 (Medical Image Analysis 70, 101992).

    Args:
        bundle: the bundle's folder.

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
        together: see :func:`fedmed.labelling.label_scores.view_disagreement`.
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
    """Whether the view of the pseudo-label is the image as it is, which then needs one prediction for all seeds."""
    parts = getattr(augment, "augments", (augment,))
    return all(getattr(type(part), "weak", Augment.weak) is Augment.weak for part in parts)
