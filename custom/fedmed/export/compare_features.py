"""Does an exported encoder compute what the run's did, where a classifier's training picks it up?"""

from collections.abc import Mapping
from pathlib import Path

import torch
from monai.bundle import ConfigParser
from torch import Tensor

from fedmed.bundles.load import Bundle
from fedmed.bundles.network import parsed
from fedmed.bundles.pretraining import PRETRAINED, Pretraining
from fedmed.errors import ExportError
from fedmed.export.folder import CONFIGS, MODELS

LARGEST = 1e-6  # difference of two features, as a part of the largest


def same_features(
    folder: Path, bundle: Bundle, made: Pretraining, tensors: Mapping[str, Tensor], image: Path, what: str
) -> str:
    """Return in words that a training that starts from the exported file has the run's encoder.

    The features of an image are computed by the installed bundle with the run's tensors, and by the network of the
    exported ``train`` after its own ``start``.

    Args:
        folder: the exported bundle.
        bundle: the installed bundle with the run's overlays and overrides.
        made: how it pre-trains.
        tensors: the run's model.
        image: a file.
        what: the image in words.

    Raises:
        ExportError: the features differ, or the exported bundle cannot be built.
    """
    ours = bundle.parser(device="cpu")
    network = parsed(ours, "network")
    network.load_state_dict({**network.state_dict(), **tensors}, strict=True)  # the encoder may be all there is
    theirs = ConfigParser()
    theirs.read_config(str(folder / CONFIGS / bundle.config_file("train").name))
    theirs.update({"bundle_root": str(folder), "device": "cpu", made.setting: str(folder / MODELS / PRETRAINED)})
    started = parsed(theirs, "start")
    x, y = (_input(parser, image) for parser in (ours, theirs))
    with torch.no_grad():
        before, after = (getattr(n.eval(), made.encoder)(i) for n, i in ((network, x), (started, y)))
    if before.shape != after.shape or not float((before - after).abs().max()) <= LARGEST * float(before.abs().max()):
        raise ExportError(f"the features of {what} are others after the export; the encoder is not the run's")
    return (
        f"The {before.shape[1]} features of {what}, before the export and by a training that starts from "
        f"`models/{PRETRAINED}`: equal."
    )


def _input(parser: ConfigParser, image: Path) -> Tensor:
    """An image as the network sees it, (1, C, H, W)."""
    prepare = parsed(parser, "validate#preprocessing")
    return torch.as_tensor(prepare({"image": str(image)})["image"])[None].float()
