"""Choice of the encoder's map that passes attention over time and the selection of channels."""

from collections.abc import Sequence

from .encoder import FIRST_STRIDE, STRIDE


def level_for(size: Sequence[int], stages: int = 4, least: int = 8) -> int:
    """The deepest stage, counted from 0, whose map of a frame has at least ``least`` tokens along both sides.

    For frames of at least 256 pixels and four stages that is the deepest of all, which Fang et al. 2025 use. A frame so
    small that no map has as many gets the first.

    Args:
        size: (H, W) of frames in pixels.
        stages: of the encoder, at strides 4, 8, 16, 32.
        least: tokens.

    Raises:
        ValueError: a number below 1.
    """
    if min(*size, stages, least) < 1:
        raise ValueError(f"size {list(size)}, {stages} stages, {least} tokens: give whole numbers of at least 1")
    sides = [-(-min(size) // (FIRST_STRIDE * STRIDE**stage)) for stage in range(stages)]
    return max((stage for stage, side in enumerate(sides) if side >= least), default=0)
