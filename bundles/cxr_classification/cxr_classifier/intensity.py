"""Bring grey values without a display window to [0, 1]."""

import numpy as np

PERCENTILES = (0.5, 99.5)


def stretch(values: np.ndarray, counted: np.ndarray | None = None) -> np.ndarray:
    """Map the 0.5th to the 99.5th percentile to 0 … 1, clipped: a bright marker or a dead pixel must not set the scale.

    Args:
        values: (H, W), any numbers.
        counted: (H, W) of bool, the pixels that the percentiles are taken of; None = all.

    Returns:
        (H, W) float32. If the two percentiles are equal, the smallest and largest value replace them; if those are
        equal too, all zeros.
    """
    values = values.astype(np.float32)
    pixels = values[counted] if counted is not None and counted.any() else values
    low, high = np.percentile(pixels, PERCENTILES)
    if high <= low:
        low, high = pixels.min(), pixels.max()
    if high <= low:
        return np.zeros_like(values)
    return np.clip((values - np.float32(low)) / np.float32(high - low), 0, 1).astype(np.float32)
