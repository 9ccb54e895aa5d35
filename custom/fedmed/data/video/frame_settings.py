"""What is taken from a video: size, rate, and what is cut off or left out."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedmed.data.video.frame_grid import NEARLY
from fedmed.data.video.frame_rules import RULES
from fedmed.errors import DataError

VERSION = 1  # to be raised when the same settings give other frames
DAMAGE = ("refuse", "count")
RATE_KEY = "'frame_rate' of a bundle's configuration"


@dataclass(frozen=True)
class FrameSettings:
    """Which frames of a video are taken, and how.

    Args:
        size: (height, width) in pixels to which each frame is scaled; its proportions may change.
        rate: frames a second, above 0. Frame k is the one that is shown k / rate seconds after the first frame; of
            videos of nearly a multiple, such as 29.97, see :func:`fedmed.data.video.frame_grid.frame_grid`.
            None = each frame of the video once, at its own time: for folders that hold frames here and there.
        crop: whether black borders are cut off, see :func:`fedmed.data.video.frame_rules.picture_box`.
        drop: names of rules whose frames are not kept: ``white``, ``dark``, ``out_of_body``, see
            :data:`fedmed.data.video.frame_rules.RULES`. All are counted, whether named here or not.
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
            f"names_rate is {self.names_rate!r}; give frames a second above 0, such as 25": (
                not _is_rate(self.names_rate)
            ),
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
        """What decides the frames, as text equal in every process; ``damage`` only decides whether they are used."""
        values = {name: value for name, value in asdict(self).items() if name != "damage"}
        return json.dumps({"version": VERSION, **values}, sort_keys=True)


def frames_between(seconds: float, rate: float | None) -> int:
    """Frames from one to the next that is ``seconds`` later, at ``rate`` frames a second: the nearest whole number.

    Raises:
        DataError: less than one frame, not a number, or no rate.
    """
    if rate is None:
        raise DataError(
            f"clips with a history need videos prepared at a rate; give frames a second, such as 5 ({RATE_KEY})"
        )
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
    if rate is None:
        return True
    return isinstance(rate, int | float) and not isinstance(rate, bool) and math.isfinite(rate) and rate > 0
