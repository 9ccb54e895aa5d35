"""Which site of a federation gets which of a folder's recordings, where one folder becomes several sites."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import yaml

from fedmed.data.datalist import LABELLED
from fedmed.data.prepare.split import apportion
from fedmed.data.prepare.video_layouts.layout import Recording
from fedmed.errors import DataError
from fedmed.site_names import name_fault
from fedmed.yaml_limits import load_limited


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
