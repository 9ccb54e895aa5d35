"""What single frames show, by their colours: black borders, white-out, darkness, and what is not inside a body.

All take uint8 RGB frames (H, W, 3). The rules are simple on purpose, so that a report can state them. None is a
guarantee: a close look at skin has the colour of tissue, so a face may well pass as the inside of a body.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Frame = NDArray[np.uint8]

BORDER_LEVEL, BORDER_SHARE, LEAST_SIDE = 24, 0.05, 0.25
WHITE_LEVEL, WHITE_SHARE = 230, 0.5
DARK_LEVEL, DARK_SHARE = 40, 0.05
TISSUE_RATIO, TISSUE_SHARE = 1.15, 0.1
JUDGED_SIDE = 64


def picture_box(frames: Sequence[Frame]) -> tuple[float, float, float, float]:
    """Where the picture lies inside black borders, from some frames of a video, spread over it.

    A row or column belongs to the picture if, in any of the frames, more than 5 % of its pixels have a channel above
    24 of 255. So the corners outside a round picture stay, and so does text in the border if it is that large.

    Returns:
        Top, bottom, left and right as shares of height and width; the whole frame where that would be less than a
        quarter of either.
    """
    rows, columns = (
        np.any([(_brightest(frame) > BORDER_LEVEL).mean(axis=axis) > BORDER_SHARE for frame in frames], axis=0)
        for axis in (1, 0)
    )
    (top, bottom), (left, right) = ((np.argmax(seen), len(seen) - np.argmax(seen[::-1])) for seen in (rows, columns))
    if min((bottom - top) / len(rows), (right - left) / len(columns)) < LEAST_SIDE or not rows.any():
        return 0.0, 1.0, 0.0, 1.0
    return float(top / len(rows)), float(bottom / len(rows)), float(left / len(columns)), float(right / len(columns))


def dark_sides(frames: Frame) -> NDArray[np.float64]:
    """(N,) how wide the dark columns left and right of the picture are together, as a share of the frames' width.

    A column is dark as in :func:`picture_box`, in its own frame alone.

    Args:
        frames: (N, H, W, 3), of one size.

    Returns:
        From 0 up to less than 1; not a number where every column is dark.
    """
    seen = (_brightest(frames) > BORDER_LEVEL).mean(axis=1) > BORDER_SHARE
    dark = np.argmax(seen, axis=1) + np.argmax(seen[:, ::-1], axis=1)
    return np.where(seen.any(axis=1), dark / seen.shape[1], np.nan)


def is_white(frame: Frame) -> bool:
    """More than half of the pixels have all channels above 230 of 255."""
    red, green, blue = _channels(frame)
    return bool((np.minimum(np.minimum(red, green), blue) > WHITE_LEVEL).mean() > WHITE_SHARE)


def is_dark(frame: Frame) -> bool:
    """Less than 5 % of the pixels have a channel of at least 40 of 255."""
    return bool((_brightest(frame) >= DARK_LEVEL).mean() < DARK_SHARE)


def is_out_of_body(frame: Frame) -> bool:
    """Less than 10 % of the pixels that are not dark are reddish: red at least 1.15 times green and 1.15 times blue.

    Tissue, fat and blood are reddish under white light; theatre, drapes and screens mostly are not. Frames that are
    white or dark are not judged. Views inside a trocar lie between 10 and 20 % and are kept.
    """
    if is_white(frame) or is_dark(frame):
        return False
    lit = frame[_brightest(frame) >= DARK_LEVEL].astype(np.float32)
    others = TISSUE_RATIO * np.maximum(lit[:, 1], lit[:, 2])
    return bool((lit[:, 0] >= others).mean() < TISSUE_SHARE)


def matching_rules(frame: Frame) -> list[str]:
    """Names of the rules that a frame of any size matches, judged on about 64 x 64 of its pixels."""
    step = max(1, min(frame.shape[:2]) // JUDGED_SIDE)
    thinned = np.ascontiguousarray(frame[::step, ::step])
    return [name for name, rule in RULES.items() if rule(thinned)]


def _channels(frame: Frame) -> tuple[Frame, Frame, Frame]:
    return frame[..., 0], frame[..., 1], frame[..., 2]


def _brightest(frame: Frame) -> Frame:
    red, green, blue = _channels(frame)
    brightest: Frame = np.maximum(np.maximum(red, green), blue)  # much faster than max() along a short axis
    return brightest


WORDS = {
    "white": f"more than {WHITE_SHARE:.0%} of the pixels have all channels above {WHITE_LEVEL} of 255",
    "dark": f"less than {DARK_SHARE:.0%} of the pixels have a channel of at least {DARK_LEVEL} of 255",
    "out_of_body": f"of the pixels that are not dark less than {TISSUE_SHARE:.0%} are reddish",
}
RULES: Mapping[str, Callable[[Frame], bool]] = {"white": is_white, "dark": is_dark, "out_of_body": is_out_of_body}
