"""Facts that a NIfTI header may hold beside what everybody reads: other units, and a second affine."""

import logging
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import torch
from monai.transforms import MapTransform

from covid_ct.errors import BundleInputError
from covid_ct.files import nifti_stem

UNITS = {1: "metres", 3: "micrometres"}  # NIfTI's codes; 0 is unknown and 2 millimetres, which all readers assume
SPACE = 7  # the bits of xyzt_units that tell the unit of space
APART = 1e-3  # mm
NORMALISED = 10.0  # HU on both sides of 0; air and bone are far beyond
LEAST_AIR = -200.0  # HU; a chest has air in it and around it
log = logging.getLogger("covid_ct")


class CheckScand(MapTransform):
    """Pass on a loaded scan (X, Y, Z) with its metadata, as it is.

    Raises:
        BundleInputError: it has not three axes, its header gives voxels in other units than millimetres, or values are
            NaN or infinite, or normalised and not HU. Values that seem to have lost their rescale intercept are told in
            the log.
    """

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        for key in self.key_iterator(dict(data)):
            _check(data[key])
        return dict(data)


def _check(image: Any) -> None:
    meta = getattr(image, "meta", {})
    name = str(meta.get("filename_or_obj", "the scan"))
    if unit := UNITS.get(int(np.asarray(meta.get("xyzt_units", 0))) & SPACE):
        raise BundleInputError(f"{name}: its header gives voxels in {unit}; save it in millimetres")
    values = torch.as_tensor(image)
    if len(shape := list(values.shape)) != 3 and shape[3:] != [1]:
        raise BundleInputError(f"{name}: its shape is {shape}; save each volume as a file with three axes")
    if bad := int((~torch.isfinite(values)).sum()):
        raise BundleInputError(f"{name}: {bad} voxels are NaN or infinite; export it again")
    low, high = (float(end) for end in values.aminmax()) if values.numel() else (0.0, 0.0)
    if low < high and max(abs(low), abs(high)) <= NORMALISED:
        raise BundleInputError(f"{name}: values lie in {low:.3g}…{high:.3g}, which are not HU; export it in HU")
    if low > LEAST_AIR:
        log.warning(
            "%s: no value near that of air, -1000 (from %g on): has the rescale intercept been lost?", name, low
        )


class KeepQformd(MapTransform):
    """Give a mask that has just been saved the qform of its image, where that is another affine than its sform.

    Viewers take one or the other; a mask lies on its image in each of them if it has both.
    """

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        for key in self.key_iterator(dict(data)):
            meta = getattr(data[key], "meta", {})
            image, mask = (Path(str(meta.get(name, ""))) for name in ("filename_or_obj", "saved_to"))
            if _is_nifti(image) and _is_nifti(mask):
                _keep(image, mask)
        return dict(data)


def _keep(image: Path, mask: Path) -> None:
    header = nib.load(image).header
    qform, code = header.get_qform(coded=True)
    if not code or not header["sform_code"] or np.abs(qform - header.get_sform()).max() <= APART:
        return
    saved = nib.load(mask, mmap=False)  # the file is written again
    written = nib.Nifti1Image(np.asarray(saved.dataobj), saved.affine, saved.header)
    written.set_qform(qform, int(code))
    nib.save(written, mask)


def _is_nifti(path: Path) -> bool:
    return bool(nifti_stem(path.name)) and path.is_file()
