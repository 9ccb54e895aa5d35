"""Choice of a video's frames, and how they look: times, rules of a frame's content, sizes."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmed.errors import DataError

SAME = 1e-6  # seconds: times that are nearer are one time; of rates: shares that are nearer
NEARLY = 0.005  # of a rate: 29.97 for 30 is 0.1 %
Frame = NDArray[np.uint8]
BORDER_LEVEL, BORDER_SHARE, LEAST_SIDE = 24, 0.05, 0.25
WHITE_LEVEL, WHITE_SHARE = 230, 0.5
DARK_LEVEL, DARK_SHARE = 40, 0.05
TISSUE_RATIO, TISSUE_SHARE = 1.15, 0.1
JUDGED_SIDE = 64
WORDS = {
    "white": f"more than {WHITE_SHARE:.0%} of the pixels have all channels above {WHITE_LEVEL} of 255",
    "dark": f"less than {DARK_SHARE:.0%} of the pixels have a channel of at least {DARK_LEVEL} of 255",
    "out_of_body": f"of the pixels that are not dark less than {TISSUE_SHARE:.0%} are reddish",
}
VERSION = 1  # to be raised when the same settings give other frames
DAMAGE = ("refuse", "count")
RATE_KEY = "'frame_rate' of a bundle's configuration"


@dataclass(frozen=True)
class FrameGrid:
    """Frame k is the last that begins at k / ``rate`` seconds, or up to ``slack`` seconds later."""

    rate: float  # frames a second
    slack: float = SAME
    steps: int | None = None  # frame k is frame k · ``steps`` of the video, whose rate decides; None: ``rate`` does

    def frames(self, seconds: float) -> int:
        """Count the frames of a video of this length; at least one."""
        return max(1, math.ceil((seconds - self.slack) * self.rate))


def frame_grid(source: float | None, rate: float) -> FrameGrid:
    """The grid of a video with ``source`` frames a second, None where uneven, of which ``rate`` are wanted.

    Where a video has almost a whole number of frames for each that is wanted, each n-th is taken: of 29.97 a second for
    10 every third, which are 9.99. At exactly 10 a second the times would drift along the video's frames, and miss
    nearly all masks. Videos of a whole number of frames a second, of an exact multiple and with other ratios are taken
    at ``rate``.
    """
    if source is None or abs(source / max(1, round(source)) - 1) < SAME:
        return FrameGrid(rate)
    steps = round(round(source) / rate)  # the nearest that is meant: of 59.94 for one in ten seconds 600, not 599
    if not steps or not SAME < abs(source / rate / steps - 1) <= NEARLY:
        return FrameGrid(rate)
    return FrameGrid(source / steps, 0.5 / source, steps)


def picture_box(frames: Sequence[Frame]) -> tuple[float, float, float, float]:
    """Find the picture inside black borders, from some frames of a video, spread over it.

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
    """(N,) shares of the width of frames (N, H, W, 3) that are dark columns left and right of the picture, together.

    A column is dark as in :func:`picture_box`, in its own frame alone. Not a number where every column is dark.
    """
    seen = (_brightest(frames) > BORDER_LEVEL).mean(axis=1) > BORDER_SHARE
    dark = np.argmax(seen, axis=1) + np.argmax(seen[:, ::-1], axis=1)
    return np.where(seen.any(axis=1), dark / seen.shape[1], np.nan)


def is_white(frame: Frame) -> bool:
    """More than half of the pixels have all channels above 230 of 255."""
    red, green, blue = np.moveaxis(frame, -1, 0)
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


def _brightest(frame: Frame) -> Frame:
    red, green, blue = np.moveaxis(frame, -1, 0)
    brightest: Frame = np.maximum(np.maximum(red, green), blue)  # much faster than max() along a short axis
    return brightest


RULES: Mapping[str, Callable[[Frame], bool]] = {"white": is_white, "dark": is_dark, "out_of_body": is_out_of_body}


@dataclass(frozen=True)
class FrameSettings:
    """Choice of a video's frames, and their size.

    Args:
        size: (height, width) in pixels to which each frame is scaled; its proportions may change.
        rate: frames a second, above 0. Frame k is the one that is shown k / rate seconds after the first frame; of
            videos of nearly a multiple, such as 29.97, see :func:`frame_grid`. None = each frame of the video once, at
            its own time: for folders that hold frames here and there.
        crop: whether black borders are cut off, see :func:`picture_box`.
        drop: names of ``RULES`` whose frames are not kept. All are counted, whether named here or not.
        damage: what to do about damaged packets, times that go back and a missing end: ``refuse`` the video, or leave
            out what is damaged and ``count`` it.
        names_rate: of a folder of frames without a table of times: the number in a file's name / this = its second.

    Raises:
        DataError: a value outside its range.
    """

    size: tuple[int, int]
    rate: float | None = 1.0
    crop: bool = False
    drop: tuple[str, ...] = ()
    damage: str = "refuse"
    names_rate: float | None = None

    def __post_init__(self) -> None:
        wrong = {
            f"size is {self.size!r}; give height and width in pixels, such as [224, 224]": not _is_size(self.size),
            f"rate is {self.rate!r}; give frames a second above 0, such as 1 ({RATE_KEY})": not _is_rate(self.rate),
            f"names_rate is {self.names_rate!r}; give numbers a second above 0": not _is_rate(self.names_rate),
            f"drop is {self.drop!r}; use names out of {', '.join(RULES)}": (
                isinstance(self.drop, str) or any(name not in RULES for name in self.drop)
            ),
            f"damage is {self.damage!r}; use one of {', '.join(DAMAGE)}": self.damage not in DAMAGE,
        }
        for message, bad in wrong.items():
            if bad:
                raise DataError(f"frames of a video: {message}")
        object.__setattr__(self, "size", tuple(self.size))
        object.__setattr__(self, "rate", None if self.rate is None else float(self.rate))
        object.__setattr__(self, "drop", tuple(sorted(set(self.drop))))

    def text(self) -> str:
        """Settings that decide the frames, as text equal in every process: all but ``damage``."""
        values = {name: value for name, value in asdict(self).items() if name != "damage"}
        return json.dumps({"version": VERSION, **values}, sort_keys=True)


def frames_between(seconds: float, rate: float | None) -> int:
    """Frames from one to the next that is ``seconds`` later, at ``rate`` frames a second: the nearest whole number.

    Raises:
        DataError: less than one frame, not a number, or no rate.
    """
    if rate is None:
        raise DataError(f"clips with a history need videos prepared at a rate; give frames a second ({RATE_KEY})")
    if not (math.isfinite(seconds * rate) and seconds * rate >= 1 - NEARLY):
        raise DataError(
            f"an interval of {seconds:g} s is less than one frame at {rate:g} frames a second; use at least "
            f"{1 / rate:.3g} s, or prepare the videos at {1 / seconds if seconds > 0 else 25:.3g} frames a second "
            f"('frame_interval' and {RATE_KEY})"
        )
    return round(seconds * rate)


def _is_size(size: Any) -> bool:
    plain = isinstance(size, Sequence) and not isinstance(size, str) and len(size) == 2
    return plain and all(isinstance(side, int) and side > 0 for side in size)


def _is_rate(rate: Any) -> bool:
    return rate is None or (isinstance(rate, int | float) and type(rate) is not bool and 0 < rate < math.inf)
