"""Transforms of this bundle's inference."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from monai.config import KeysCollection
from monai.data import MetaTensor
from monai.data.utils import affine_to_spacing, compute_shape_offset, zoom_affine
from monai.transforms import InvertibleTransform, MapTransform, Spacing
from monai.utils import TraceKeys

from covid_ct.errors import BundleInputError
from covid_ct.resampling import resample

SHEAR = 1e-3  # cosine of an angle that still counts as right: 0.3 mm over a chest


class SafeSpacingd(MapTransform, InvertibleTransform):
    """Trilinear resampling to a voxel size; ``Invertd`` takes a prediction back to the image's own grid.

    Grid and values are those of MONAI's ``Spacingd``, which training uses. There are two differences. It needs little
    memory: ``Spacingd`` computes with float64 coordinates of every voxel, eleven times a scan in float32. And it does
    not change other entries of the case: MONAI 1.6 updates every entry whose name begins with the key and an
    underscore as if it were a metadata dictionary, and fails on the ``image_path`` that MONAI Label adds.

    Axes that are not at right angles (a tilted gantry) are straightened, as in training, by MONAI's ``Spacing``, which
    needs its usual memory.

    Args:
        keys: entries to resample, each a MetaTensor (C, X, Y, Z) of any type; the result is float32 (float64 stays).
        pixdim: voxel size in mm along the array's three axes.

    Raises:
        BundleInputError: not three sizes above 0.
    """

    def __init__(self, keys: KeysCollection, pixdim: Sequence[float], allow_missing_keys: bool = False) -> None:
        super().__init__(keys, allow_missing_keys)
        if len(pixdim) != 3 or not all(size > 0 for size in pixdim):
            raise BundleInputError(f"pixdim is {list(pixdim)}; three sizes in mm above 0 are needed")
        self.pixdim = tuple(float(size) for size in pixdim)
        self.straighten = Spacing(self.pixdim)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        case = dict(data)
        for key in self.key_iterator(case):
            case[key] = self._forward(case[key])
        return case

    def inverse(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Resample to the grid that the image had before, with exactly its affine."""
        case = dict(data)
        for key in self.key_iterator(case):
            case[key] = self._back(case[key])
        return case

    def _forward(self, image: MetaTensor) -> MetaTensor:
        spacing = affine_to_spacing(image.affine, 3)
        if not _right_angled(image.affine, spacing):
            return self.straighten(image)
        step = [new / old for new, old in zip(self.pixdim, spacing.tolist(), strict=True)]
        before = {"shape": tuple(image.shape[1:]), "step": step, "affine": image.affine.clone()}
        scale = torch.diag(torch.tensor([*step, 1.0], dtype=image.affine.dtype))
        grid = image.affine.numpy()
        shape, _ = compute_shape_offset(before["shape"], grid, zoom_affine(grid, self.pixdim, diagonal=False))
        result = _resampled(image, [int(n) for n in shape], step, image.affine @ scale)
        return self.push_transform(result, orig_size=before["shape"], extra_info=before)

    def _back(self, image: MetaTensor) -> MetaTensor:
        if image.applied_operations[-1][TraceKeys.CLASS_NAME] != type(self).__name__:
            return self.straighten.inverse(image)
        before = self.pop_transform(image)["extra_info"]
        return _resampled(image, before["shape"], [1 / s for s in before["step"]], before["affine"])


def _right_angled(affine: torch.Tensor, spacing: torch.Tensor) -> bool:
    axes = affine[:3, :3] / spacing
    return bool((axes.T @ axes - torch.eye(3, dtype=axes.dtype)).abs().max() < SHEAR)


def _resampled(image: MetaTensor, shape: Sequence[int], step: Sequence[float], affine: torch.Tensor) -> MetaTensor:
    values = image.as_tensor().to(torch.promote_types(image.dtype, torch.float32))
    result = MetaTensor(resample(values, shape, step)).copy_meta_from(image)
    result.affine = affine
    return result


class ForegroundProbabilityd(MapTransform):
    """Keep channel 1 of two-channel probabilities, (2, X, Y, Z) to (1, X, Y, Z); channel 0 is its complement."""

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        case = dict(data)
        for key in self.key_iterator(case):
            case[key] = case[key][1:2].clone()  # a view would keep both channels in memory
        return case


class ForegroundMaskd(MapTransform):
    """Turn probabilities into a mask (1, X, Y, Z) of 0.0 and 1.0.

    Args:
        keys: entries to convert: (2, X, Y, Z), or (1, X, Y, Z) of the foreground alone.
        threshold: probability of the foreground above which a voxel belongs to it; 0.5 equals argmax.
    """

    def __init__(self, keys: KeysCollection, threshold: float = 0.5, allow_missing_keys: bool = False) -> None:
        super().__init__(keys, allow_missing_keys)
        if not 0 <= threshold < 1:
            raise ValueError(f"threshold is {threshold}; a probability in [0, 1) is needed")
        self.threshold = threshold

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        case = dict(data)
        for key in self.key_iterator(case):
            case[key] = (case[key][-1:] > self.threshold).float()
        return case
