"""How a site's readers draw: tight outlines, generous or loose ones, or a density threshold inside a rough outline."""

import numpy as np
from scipy import ndimage

from fedmed.data.synthetic.grid import Grid
from fedmed.errors import DataError

STYLES = ("tight", "generous", "loose", "threshold")


def annotate(disease: np.ndarray, image: np.ndarray, lungs: np.ndarray, grid: Grid, style: str) -> np.ndarray:
    """Draw the mask of one scan in one of ``STYLES``: uint8, 0 or 1, the grid's shape.

    ``disease`` and ``lungs`` are shares of each voxel, 0 … 1; ``image`` is the scan in HU, as the reader sees it.
    """
    if style == "tight":
        mask = disease > 0.55
    elif style == "generous":
        mask = _grown(disease > 0.4, grid, 3.5) & (lungs > 0.1)
    elif style == "loose":  # one outline round neighbouring lesions
        mask = _grown(disease > 0.3, grid, 7.0) & (lungs > 0.1)
    elif style == "threshold":
        blurred = ndimage.gaussian_filter(image, [0.9, 0.9, 0.3])
        mask = _grown(disease > 0.35, grid, 4.0) & (blurred > -690) & (lungs > 0.5)
        mask = ndimage.binary_opening(mask, np.ones((2, 2, 1), dtype=bool))
    else:
        raise DataError(f"annotation style '{style}' is unknown; use one of {', '.join(STYLES)}")
    return mask.astype(np.uint8)


def _grown(mask: np.ndarray, grid: Grid, margin: float) -> np.ndarray:
    """``mask`` grown by ``margin`` mm within each slice, its outline smoothed as a quick hand would."""
    width = [margin / grid.spacing[0], margin / grid.spacing[1], 0]
    return ndimage.gaussian_filter(mask.astype(np.float32), width) > 0.22
