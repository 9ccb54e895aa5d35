"""How many masks of a video are of a frame that is taken, at one rate or another."""

import math
from dataclasses import replace

from fedmed.data.video.frame_grid import NEARLY, frame_grid
from fedmed.data.video.frame_masks import FrameMasks
from fedmed.data.video.source import open_video
from fedmed.data.video.stored_video import StoredVideo

USUAL = (1.0, 2.0, 5.0, 10.0, 15.0, 25.0, 30.0, 50.0, 60.0)  # frames a second that are proposed


def used_masks(masks: FrameMasks, video: StoredVideo, rate: float | None) -> int:
    """How many masks are of a frame that is taken at ``rate``, whatever the rate at which the video was gone through.

    Args:
        masks, video: the folder, and what is known of its video.
        rate: frames a second; of single pictures, and with None, it is that of ``video``.

    Raises:
        DataError: see :meth:`fedmed.data.video.frame_masks.FrameMasks.of`.
    """
    return len(masks.of(video if rate is None or video.facts.get("single") else _at(video, rate)))


def better_rate(masks: FrameMasks, video: StoredVideo, rate: float | None = None) -> str:
    """At which rate all masks are used, as half a sentence: the next above ``rate``, or else below.

    Usual rates that divide the video's own come into question, and that itself.

    Raises:
        DataError: see :func:`used_masks`.
    """
    number, own = len(masks.files()), open_video(video.source).steady_rate()
    rates = USUAL if own is None else (*(rate for rate in USUAL if _divides(rate, own)), own)
    nearest = sorted(rates, key=lambda one: (one < (rate or 0), abs(one - (rate or 0))))
    fitting = next((one for one in nearest if used_masks(masks, video, one) == number), None)
    return f"at {'no usual rate' if fitting is None else f'{fitting:.4g} a second'} all of them are used"


def _divides(rate: float, own: float) -> bool:
    steps = own / rate
    return steps > 1 and abs(steps - round(steps)) <= NEARLY * steps


def _at(video: StoredVideo, rate: float) -> StoredVideo:
    """The same video as if its frames had been taken at another rate."""
    grid = frame_grid(open_video(video.source).steady_rate(), rate)
    frames = max(1, math.ceil((float(video.facts["seconds"]) - grid.slack) * grid.rate))
    return replace(video, facts={**video.facts, "rate": grid.rate, "frames": frames})
