"""Small scans and masks, and entries of a datalist that name them."""

from pathlib import Path

import nibabel as nib
import numpy as np

SHAPE = (6, 5, 4)
AFFINE = np.array([[-0.7, 0, 0, 10], [0, -0.7, 0, 20], [0, 0, 2, -30], [0, 0, 0, 1]], dtype=float)


def ones(count=4, dtype=np.uint8):
    """A mask with ``count`` foreground voxels."""
    mask = np.zeros(SHAPE, dtype)
    mask.reshape(-1)[:count] = 1
    return mask


def save_nifti(path: Path, values=None, affine=AFFINE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.arange(120, dtype=np.int16).reshape(SHAPE) if values is None else values
    nib.save(nib.Nifti1Image(values, affine), path)
    return path


def entry(name, label=False, **more):
    masks = {"label": f"labels/{name}.nii.gz"} if label else {}
    return {"image": f"images/{name}.nii.gz", **masks, "patient": f"P-{name}", **more}


def tree(root):
    """Time of change and content of every file."""
    return {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in Path(root).rglob("*") if p.is_file()}
