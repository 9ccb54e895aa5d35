"""Clients of a pooled dataset: which patient or video belongs to whom, also by the edges of its frames."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import yaml
from numpy.typing import NDArray

from fedmed.data.datalist import LABELLED
from fedmed.data.prepare.pool import Track, run_all
from fedmed.data.prepare.report import Rows
from fedmed.data.prepare.split import apportion
from fedmed.data.prepare.video_layouts.layout import Recording
from fedmed.data.video.file_source import open_video
from fedmed.data.video.frame_settings import dark_sides
from fedmed.errors import DataError
from fedmed.site_names import name_fault
from fedmed.yaml_limits import load_limited

GROUPS = ("large", "intermediate", "small")  # CHO1, CHO2, CHO3 of the thesis
FRAMES, SIDE = 24, 256  # looked at of each video, and the height and width to which they are scaled


@dataclass(frozen=True)
class SiteRecordings:
    """One of the sites.

    Attributes:
        site: its name in the federation.
        lists: name of each recording that it gets -> its list, "" where patients are divided among the lists.
        about: why it gets them, for its report.
    """

    site: str
    lists: Mapping[str, str]
    about: str = ""


def one_a_video(site: str, recordings: Iterable[Recording]) -> list[SiteRecordings]:
    """A client for each recording."""
    return [
        SiteRecordings(f"{site}_{re.sub(r'[^a-z0-9]+', '_', one.stem.lower())}", {one.case: ""}) for one in recordings
    ]


def read_clients(path: Path, site: str, recordings: Sequence[Recording]) -> list[SiteRecordings]:
    """The clients of a YAML (client -> list -> names of videos without folder and ending), as far as they are here.

    A client none of whose videos is in the folder belongs to another data set, and is left out.

    Raises:
        DataError: no such file, an unknown list, a video that is in two lists, missing or there twice, a client without
            ``training`` or ``testing`` or with a name that no site can have, or none of the clients is here.
    """
    content = _content(path)
    cases: dict[str, list[str]] = {}
    for one in recordings:
        cases.setdefault(PurePosixPath(one.stem).name, []).append(one.case)
    listed = [str(video) for lists in content.values() for video in _videos(path, lists)]
    if twice := [video for video, number in Counter(listed).items() if number > 1]:
        raise DataError(f"{path}: the video '{twice[0]}' is listed twice; a score would be too good: list it once")
    clients = []
    for name, lists in content.items():
        if fault := name_fault(f"{site}_{name}"):
            raise DataError(f"{path}: {fault}")
        where = {str(video): key for key in lists for video in lists[key]}
        if not set(where) & set(cases):
            continue
        for video in where:
            if (number := len(cases.get(video, ()))) != 1:
                has = "is not in the folder" if not number else f"is there {number} times: {', '.join(cases[video])}"
                raise DataError(f"{path}: {name}: the video '{video}' {has}; give a folder that has it once")
        for key in ("training", "testing"):
            if not lists.get(key):
                raise DataError(f"{path}: {name}: has no list '{key}'; a client trains and is tested: name some videos")
        lists_of = {cases[video][0]: key for video, key in where.items()}
        clients.append(SiteRecordings(f"{site}_{name}", lists_of, f"{path.name}: {name}"))
    if not clients:
        raise DataError(f"{path}: the folder has none of its videos, such as '{listed[0] if listed else ''}'")
    return clients


def _content(path: Path) -> dict[str, dict[str, list[object]]]:
    try:
        content = load_limited(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise DataError(f"{path}: the clients cannot be read ({error}); correct the file") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: names no clients; write a line such as site_a: {{training: [a], testing: [b]}} each")
    return content


def _videos(path: Path, lists: object) -> list[object]:
    if isinstance(lists, Mapping) and set(lists) <= set(LABELLED) and all(isinstance(x, list) for x in lists.values()):
        return [video for videos in lists.values() for video in videos]
    raise DataError(f"{path}: {lists!r} are not the lists of a client; write training: […] and testing: […]")


def require_tests(
    clients: Iterable[SiteRecordings], recordings: Iterable[Recording], fractions: Sequence[float]
) -> None:
    """Refuse a client with too few patients for a test list, before any video is read.

    Raises:
        DataError: names it.
    """
    patients = {one.case: one.patient for one in recordings}
    for client in clients:
        drawn = len({patients[case] for case, name in client.lists.items() if not name})
        if drawn and not apportion(drawn, fractions)[2]:
            raise DataError(
                f"the client '{client.site}' ({client.about}) has {drawn} patients, and with --split "
                f"{' '.join(map(str, fractions))} no test list; give another split, or divide the videos otherwise"
            )


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
        frames = [] if recording.fault else open_video(recording.video, 1.0).sample(FRAMES, SIDE, SIDE, exact=True)
    except DataError as error:
        return Edges(recording.case, np.empty(0), str(error))
    widths = dark_sides(np.stack(frames)) if frames else np.empty(0)
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
