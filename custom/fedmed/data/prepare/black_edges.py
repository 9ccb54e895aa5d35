"""Group videos by the width of the dark columns beside their picture: the clients of Markert (2022) from one data set.

Neither the thesis nor its code says how wide a large, an intermediate and a small edge are: here thirds of what was
measured, unless somebody gives the two limits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmed.data.prepare.clients import SiteRecordings
from fedmed.data.prepare.pool import Track, run_all
from fedmed.data.prepare.report import Rows
from fedmed.data.prepare.video_layouts.layout import Recording
from fedmed.data.video.frame_rules import dark_sides
from fedmed.data.video.source import open_video
from fedmed.errors import DataError

GROUPS = ("large", "intermediate", "small")  # CHO1, CHO2, CHO3 of the thesis
FRAMES, SIDE = 24, 256  # looked at of each video, and the height and width to which they are scaled


@dataclass(frozen=True)
class Edges:
    """The edges of one video.

    Attributes:
        case: its name.
        widths: (N,) of its frames, all dark ones left out; see :func:`dark_sides`.
        fault: why there are none.
    """

    case: str
    widths: NDArray[np.float64]
    fault: str = ""

    def group(self, low: float, high: float) -> int:
        """Place in ``GROUPS``: of most of its frames, at a tie the larger edge."""
        return int(np.argmax(np.bincount(2 - np.digitize(self.widths, (low, high), right=True), minlength=3)))


def measure_edges(recording: Recording) -> Edges:
    """Look at some frames spread over a video. Never raises for bad data: the fault is told."""
    try:
        found = [] if recording.fault else open_video(recording.video, 1.0).sample(FRAMES, SIDE, SIDE, exact=True)
    except DataError as error:
        return Edges(recording.case, np.empty(0), str(error))
    widths = dark_sides(np.stack(found)) if found else np.empty(0)
    widths = widths[np.isfinite(widths)]
    nothing = "" if len(widths) else f"{recording.video}: none of its frames can be decoded and shows anything"
    return Edges(recording.case, widths, recording.fault or nothing)


def split_by_edge(
    recordings: Sequence[Recording],
    site: str,
    limits: tuple[float, float] | None = None,
    workers: int = 1,
    track: Track[Edges] | None = None,
) -> tuple[list[SiteRecordings], Rows, list[str]]:
    """Divide videos among three clients: ``<site>1`` has large edges, ``<site>2`` intermediate ones, ``<site>3`` small.

    Args:
        recordings: of one data set.
        site: how the clients are called, before their number.
        limits: largest share of the width that is small, and largest one that is intermediate; None: the thirds of the
            widths of all frames.
        workers, track: see :func:`fedmed.data.prepare.pool.run_all`.

    Returns:
        The clients; rows (video, edge in % of the width: median of its frames, group, client), a heading first; and
        what is to be said: the limits, the numbers, and the videos that could not be measured.

    Raises:
        DataError: limits out of order, nothing could be measured, or a group has no video.
    """
    if limits and not 0 <= limits[0] < limits[1] < 1:
        raise DataError(f"--edges {limits[0]:g} {limits[1]:g}: give two shares of the width, such as 0.05 0.15")
    measured = run_all(measure_edges, recordings, workers, track)
    known = [one for one in measured if not one.fault]
    if not known:
        raise DataError(f"the edges of no video could be measured: {measured[0].fault if measured else 'no video'}")
    low, high = limits or np.quantile(np.concatenate([one.widths for one in known]), (1 / 3, 2 / 3)).tolist()
    said = f"{'given' if limits else 'thirds of the measured widths'}: up to {low:.2%} of the width is small, "
    said += f"up to {high:.2%} intermediate, more is large; most of {FRAMES} frames decide"
    groups = {one.case: one.group(low, high) for one in known}
    members = [[case for case, group in groups.items() if group == place] for place in range(len(GROUPS))]
    numbers = ", ".join(f"{len(cases)} {name}" for name, cases in zip(GROUPS, members, strict=True))
    if not all(members):
        raise DataError(f"black edges ({said}): {numbers}; each client needs videos: give other limits with --edges")
    clients = [
        SiteRecordings(f"{site}{place + 1}", dict.fromkeys(cases, ""), f"{name} black edges; limits {said}")
        for place, (name, cases) in enumerate(zip(GROUPS, members, strict=True))
    ]
    rows: Rows = [("video", "edge_percent", "group", "client")]
    for one in known:
        place = groups[one.case]
        rows.append((one.case, f"{100 * np.median(one.widths):.2f}", GROUPS[place], clients[place].site))
    faults = [f"{one.case} is at no client: {one.fault}" for one in measured if one.fault]
    return clients, rows, [f"Limits {said}", f"Videos: {numbers}", *faults]
