"""Results that MONAI Label cannot write: masks of pictures, and scores of classes."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import torch
from monai.data import ITKReader, MetaTensor, PILReader
from monai.transforms import LoadImage, LoadImaged
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from fedmed.data.geometry import affine_notes, nifti
from fedmed.errors import BundleError

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".gif")  # a request for any of these gets a PNG


def scores(prediction: Any, classes: Mapping[int, str], threshold: float | None = None) -> list[dict[str, Any]]:
    """Each class with its score, in the form that MONAI Label's clients expect, and whether the model calls it.

    Args:
        prediction: (C,), as the bundle's postprocessing left it.
        classes: channel -> name.
        threshold: of classes that may hold together, the score from which each is called; None: the highest one is.

    Raises:
        BundleError: the values are not finite, or not one for each class.
    """
    values = _plain(prediction).flatten()
    if len(values) != len(classes) or not bool(torch.isfinite(values).all()):
        raise BundleError(
            f"the bundle gives {values.tolist()[:8]} for its {len(classes)} classes; correct its channel_def"
        )
    called = torch.arange(len(values)) == values.argmax() if threshold is None else values >= threshold
    return [
        {"idx": channel, "label": classes[channel], "score": float(values[channel]), "called": bool(called[channel])}
        for channel in sorted(classes)
    ]


def flat_label(data: Mapping[str, Any], key: str, image_key: str) -> np.ndarray:
    """A 2D prediction as a label map of the picture's own size.

    Args:
        data: the case after postprocessing, with ``width_first``.
        key, image_key: its prediction (1, ...) or one-hot (C, ...), and its image with the reader's metadata.

    Returns:
        (W, H), uint8, the number of a class or 0.

    Raises:
        BundleError: the result of the bundle's postprocessing is not a label map.
    """
    prediction = _plain(data[key])
    label = _one_channel(prediction if prediction.ndim == 3 else prediction[None])
    if not bool(((label == label.round()) & (label >= 0) & (label <= 255)).all()):
        raise BundleError(
            "the bundle's postprocessing leaves values that are not class numbers; end it with AsDiscreted"
        )
    image = data[image_key]
    meta = image.meta if isinstance(image, MetaTensor) else data.get(f"{image_key}_meta_dict", {})
    size = [int(n) for n in meta.get("spatial_shape", label.shape)][:2]
    target = size if data["width_first"] else size[::-1]
    if list(label.shape) != target:
        label = interpolate(label[None, None], size=target, mode="nearest-exact")[0, 0]
    return (label if data["width_first"] else label.T).numpy().astype(np.uint8)


def _plain(prediction: Any) -> Tensor:
    tensor = prediction.as_tensor() if isinstance(prediction, MetaTensor) else torch.as_tensor(prediction)
    return tensor.cpu().to(torch.float64)


def _one_channel(prediction: Tensor) -> Tensor:
    if len(prediction) == 1:
        return prediction[0]
    if not bool((prediction.sum(0) == 1).all()) or not bool((prediction.amax(0) == 1).all()):
        raise BundleError(
            f"the bundle's postprocessing leaves {len(prediction)} channels that are not one-hot; end it with "
            "AsDiscreted(argmax=True)"
        )
    return prediction.argmax(0).to(torch.float64)


def write_png(label: np.ndarray) -> str:
    """Write a label map (W, H) as a PNG of H rows in a new temporary file and return its path."""
    handle, path = tempfile.mkstemp(suffix=".png")
    with os.fdopen(handle, "wb") as stream:
        Image.fromarray(np.ascontiguousarray(label.T), mode="L").save(stream, "PNG")
    return path


def keep_second_affine(image: Path, mask: Path) -> None:
    """Give a mask just written the qform of its image, where that is another affine than the sform.

    A viewer takes one or the other of a file, so that a mask lies on its image only if it has both. Files that are not
    NIfTI, which have one affine, stay as they are.
    """
    if not all(path.is_file() and path.name.lower().endswith((".nii", ".nii.gz")) for path in (image, mask)):
        return
    header = nib.load(image).header
    if affine_notes(header):
        saved = nib.load(mask, mmap=False)  # the file is written again
        nib.save(nifti(np.asarray(saved.dataobj), saved.affine, header), mask)


def read_width_first(transforms: Sequence[Any], path: str | None) -> bool:
    """True where the bundle reads a picture as (W, H), as MONAI does unless a bundle says otherwise, or as (H, W).

    A transform of the bundle's own that reads pictures says it by its attribute ``width_first``.
    """
    for transform in transforms:
        if (first := getattr(transform, "width_first", None)) is not None:
            return bool(first)
        loader = _loader(transform)
        reader = next((r for r in reversed(loader.readers) if path and r.verify_suffix(path)), None) if loader else None
        if isinstance(reader, PILReader):
            return reader.reverse_indexing
        if isinstance(reader, ITKReader):
            return not reader.reverse_indexing
    return True


def _loader(transform: Any) -> LoadImage | None:
    transform = getattr(transform, "load_image_d", transform)  # MONAI Label wraps it
    return transform._loader if isinstance(transform, LoadImaged) else None
