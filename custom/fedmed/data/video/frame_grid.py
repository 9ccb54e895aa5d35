"""At which times frames of a video are taken."""

from dataclasses import dataclass

SAME = 1e-6  # seconds: times that are nearer are one time; of rates: shares that are nearer
NEARLY = 0.005  # of a rate: 29.97 for 30 is 0.1 %


@dataclass(frozen=True)
class FrameGrid:
    """Frame k is the last that begins at k / ``rate`` seconds, or up to ``slack`` seconds later.

    Attributes:
        rate: frames a second.
        slack: seconds.
        steps: k of the frames that are taken are k · ``steps`` of the video, whose rate decides; None: ``rate`` does.
    """

    rate: float
    slack: float = SAME
    steps: int | None = None


def frame_grid(source: float | None, rate: float) -> FrameGrid:
    """The grid of a video from which ``rate`` frames a second are wanted.

    Where a video has almost a whole number of frames for each that is wanted, each n-th is taken: of 29.97 a second for
    10 every third, which are 9.99. At exactly 10 a second the times would drift along the video's frames, and miss
    nearly all masks. Videos of a whole number of frames a second, of an exact multiple and with other ratios are taken
    at ``rate``.

    Args:
        source: frames a second of the video, None where they do not come evenly.
        rate: frames a second that are wanted.
    """
    if source is None or abs(source / max(1, round(source)) - 1) < SAME:
        return FrameGrid(rate)
    steps = round(round(source) / rate)  # the nearest that is meant: of 59.94 for one in ten seconds 600, not 599
    if not steps or not SAME < abs(source / rate / steps - 1) <= NEARLY:
        return FrameGrid(rate)
    return FrameGrid(source / steps, 0.5 / source, steps)
