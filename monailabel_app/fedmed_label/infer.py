"""Inference by one bundle inside MONAI Label."""

import copy
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from monai.data import MetaTensor
from monai.transforms import Activationsd, AsDiscreted
from monailabel.tasks.infer.bundle import BundleConstants, BundleInferTask
from monailabel.utils.others.generic import name_to_device
from torch import Tensor, nn

from fedmed.bundles.digests import check_file
from fedmed.data.image_size import file_fault
from fedmed.errors import BundleError, DataError, first_line
from fedmed_label.bundles import read_bundle
from fedmed_label.heat_maps import heat_map, write_overlay
from fedmed_label.weights import load_weights
from fedmed_label.writers import PICTURES, flat_label, keep_second_affine, read_width_first, scores, write_png

log = logging.getLogger("fedmed.label")
HEAT_MAP, HEAT_MAP_LAYER = "heat_map", "heat_map_layer"  # in a request; in a bundle's inference configuration
THRESHOLD = "threshold"  # likewise, of classes that may hold together
SUM_TOLERANCE = 1e-3  # half precision keeps three digits


class _Constants(BundleConstants):
    """MONAI evaluates settings that a request may change as code, so a request may change none."""

    def key_displayable_configs(self) -> Sequence[str]:
        return []


class BundleTask(BundleInferTask):
    """A local bundle: 3D as in MONAI Label's own app, 2D masks as PNG, classes as scores.

    Unlike in that app, weights are loaded at start-up and every tensor must fit; only the bundle's own weights are
    used, even if a request names another file; and an image that cannot be read gives an error that says so.

    Args:
        path: the bundle's folder.
        conf: the server's settings.

    Raises:
        BundleError: the bundle cannot be served.
    """

    def __init__(self, path: str, conf: Mapping[str, str]) -> None:
        self.bundle = read_bundle(Path(path))
        flat = self.bundle.dimension == 2 or self.bundle.proposal.scores
        super().__init__(path, dict(conf), const=_Constants(), load_strict=True, add_post_restore=not flat)
        if not self.valid:
            raise BundleError(f"bundle {path} is not one that MONAI Label can use; its log says why")
        self._config.pop("model_filename", None)
        if self.bundle.proposal.scores:
            self.labels = {name: channel for channel, name in self.bundle.classes.items()}
        self.together = self.bundle.proposal.together
        self.threshold = self._threshold() if self.together else None
        self._get_network(name_to_device(None), None)

    def is_valid(self) -> bool:
        return self.valid

    def _threshold(self) -> float:
        """The probability from which a class counts as there: the bundle's, or one half."""
        value = self.bundle_config.get(THRESHOLD, 0.5)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise BundleError(f"{self.bundle.config}: '{THRESHOLD}' is {value!r}; give a probability from 0 to 1")
        return float(value)

    def probabilities(self, image_path: str, view: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Probabilities on the network's own grid, for choosing what to label next.

        Args:
            image_path: file of the image.
            view: changes the preprocessed batch (1, C, ...) before the inferer; default: no change.

        Returns:
            (C, ...) in [0, 1] on the CPU: the channels of the bundle's output. Logits are turned into probabilities
            as in the bundle's own postprocessing. If that names no activation: by sigmoid if there is one channel, if
            it compares channels with a threshold or if classes may hold together, else by softmax.

        Raises:
            DataError: the image cannot be read or does not fit the model.
        """
        device = name_to_device(None)
        data = {**copy.deepcopy(self._config), "image": str(image_path), "image_path": str(image_path)}
        data["device"] = device
        data = self.run_pre_transforms(data, self.pre_transforms(data))
        batch = torch.as_tensor(data[self.input_key])[None].to(device)
        network = self._get_network(device, None)
        with torch.no_grad():
            output = self.inferer(data)(view(batch) if view else batch, network)[0]
        output = output.as_tensor() if isinstance(output, MetaTensor) else output
        return self._activated(output.float()).cpu()

    def _activated(self, output: Tensor) -> Tensor:
        independent = self.together or len(output) == 1  # each class is compared with a threshold
        for transform in self.post_transforms():
            if self.output_label_key not in getattr(transform, "keys", ()):
                continue
            if isinstance(transform, Activationsd):
                return transform({self.output_label_key: output})[self.output_label_key]
            if isinstance(transform, AsDiscreted):
                independent |= transform.threshold[0] is not None
        ready = bool(((output >= 0) & (output <= 1)).all())
        if independent:
            return output if ready else output.sigmoid()
        return output if ready and bool(((output.sum(0) - 1).abs() < SUM_TOLERANCE).all()) else output.softmax(0)

    def run_pre_transforms(self, data: dict[str, Any], transforms: Sequence[Callable]) -> dict[str, Any]:
        """Read and preprocess an image.

        Raises:
            DataError: it cannot be read or does not fit into memory, or has axes, channels or values that the model
                cannot use.
        """
        path = Path(str(data.get("image_path") or ""))
        if path.is_file() and (fault := file_fault(path)):
            raise DataError(f"it {fault}")
        try:
            result = super().run_pre_transforms(data, transforms)
        except Exception as error:  # noqa: BLE001 - each file format's reader has its own exceptions
            log.warning("%s", data.get("image_path"), exc_info=True)
            raise DataError(
                f"the model '{self.bundle.name}' cannot read it ({_reason(error, data)}); it needs an image with "
                f"{self.bundle.dimension} spatial axes and {self.bundle.channels} channel(s)"
            ) from error
        self._check(result[self.input_key])
        result["width_first"] = read_width_first(transforms, data.get("image_path"))
        return result

    def _check(self, image: Any) -> None:
        axes, channels = image.ndim - 1, len(image)
        needed = f"the model '{self.bundle.name}' needs"
        if axes != self.dimension:
            raise DataError(f"{needed} {self.dimension} spatial axes, the image has {axes}")
        if channels != self.bundle.channels:
            raise DataError(f"{needed} {self.bundle.channels} channel(s), the image has {channels}")
        if not bool(torch.isfinite(torch.as_tensor(image)).all()):
            raise DataError(f"{needed} numbers, the image holds values that are not finite")

    def writer(self, data: dict[str, Any], extension: str | None = None, dtype: Any = None) -> tuple[Any, Any]:
        """Scores of classes as JSON; a 2D mask as PNG or in the format a request asks for; a 3D mask as MONAI Label.

        With classes a request may ask for ``heat_map`` (true): a PNG of the image as the network saw it, and over it
        how much each place supported the class with the highest score.
        """
        if self.bundle.proposal.scores:
            entries = scores(data[self.output_label_key], self.bundle.classes, self.threshold)
            picture = self._heat_map(data, entries) if wants(data.get(HEAT_MAP)) else None
            return picture, {"prediction": entries}
        if self.dimension == 3:
            file, answer = super().writer(data, extension, dtype)
            keep_second_affine(Path(str(data.get("image_path") or "")), Path(str(file or "")))
            return file, {**answer, "label_info": self.bundle.label_info}
        label = flat_label(data, self.output_label_key, self.input_key)
        ending = extension or data.get("result_extension") or ".png"
        if ending.lower() in PICTURES:
            return write_png(label), data.get(self.output_json_key, {})
        return super().writer({**data, self.output_label_key: label}, ending, np.uint8)

    def _heat_map(self, data: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> str:
        layer, network = self.bundle_config.get(HEAT_MAP_LAYER), self._get_network(data["device"], None)
        if not isinstance(layer, str) or layer not in dict(network.named_modules()):
            raise DataError(f"the model '{self.bundle.name}' has no heat map: its '{HEAT_MAP_LAYER}' names no layer")
        image = data[self.input_key]
        best = max(entries, key=lambda entry: entry["score"])["idx"]
        return write_overlay(image, heat_map(network, image, best, layer))

    def _update_device(self, data: Mapping[str, Any] | None) -> None:
        """Set the device of the bundle's configuration, where MONAI would evaluate a text as code."""
        device = data.get("device") if data else None
        if device and not re.fullmatch(r"cpu|cuda(:\d+)?", str(device)):
            raise DataError(f"device {device!r} is not one of {self._config['device']}")
        super()._update_device(data)

    def _get_network(self, device: str, data: Mapping[str, Any] | None) -> nn.Module:
        """The network with the bundle's weights on a device; read again when their file has changed."""
        path = self.bundle.weights
        try:
            changed = os.stat(path).st_mtime_ns
        except OSError as error:
            raise BundleError(f"{path} is gone ({error.strerror}); export the bundle again") from error
        cached = self._networks.get(device)
        if cached is None or cached[1] != changed:
            check_file(self.bundle.root, path.relative_to(self.bundle.root).as_posix())
            self._networks[device] = (load_weights(copy.deepcopy(self.network), path, device), changed)
        return self._networks[device][0]


def wants(value: Any) -> bool:
    """True where a request's value means yes; clients send texts."""
    return str(value).lower() in ("true", "1", "yes")


def _reason(error: BaseException, data: Mapping[str, Any]) -> str:
    """A reader's error message, without the folders of the image and of the link to it."""
    path, words = str(data.get("image_path") or ""), first_line(error)
    if not path:
        return words
    words = words.removeprefix(path).removeprefix(":").strip()
    for place in (path, os.path.realpath(path)):  # Pillow names the file that the link leads to
        words = words.replace(place, os.path.basename(path))
    return words
