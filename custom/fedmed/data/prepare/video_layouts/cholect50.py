"""CholecT50 and CholecT45 (Nwoye et al. 2022, Strasbourg): frames and action triplets."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedmed.data.prepare.video_layouts.layout import PHASES, Layout, Recording, Row
from fedmed.data.video.folder_source import pictures_of
from fedmed.errors import DataError
from fedmed.files import read_json

TOOLS = ("grasper", "coagulation", "coagulation", "scissors", "clipper", "suction_irrigation")  # 1 bipolar, 2 hook
TOOL, PHASE, LENGTH = 1, 14, 15  # of an annotation


class CholecT50(Layout):
    """``videos/VID01/000000.png`` with ``labels/VID01.json``: for each frame, named by its number, its triplets.

    Frames may lie apart in time. A tool is there if a triplet names it; the bag is not annotated. A video without its
    JSON has no labels.
    """

    about = "CholecT50: frames in videos/VID01, triplets in labels/VID01.json; also a part of the frames"
    phases, tools = PHASES, tuple(dict.fromkeys(TOOLS))
    note = "tools are known where they act: those without an action count as absent; the specimen bag is not annotated"

    def fits(self, folder: Path) -> bool:
        return any((folder / "videos" / path.stem).is_dir() for path in (folder / "labels").glob("*.json"))

    def find(self, folder: Path) -> list[Recording]:
        return [self._recording(folder, path) for path in sorted((folder / "videos").iterdir()) if path.is_dir()]

    def _recording(self, folder: Path, video: Path) -> Recording:
        labels = folder / "labels" / f"{video.name}.json"
        if not labels.is_file():
            unlabelled = self.timed(Recording(video.name, video))
            fault = unlabelled.fault.removeprefix(f"{video}: ")
            return replace(unlabelled, fault=fault and f"{labels} is missing, and without labels {fault}")
        names = pictures_of(video)
        try:
            rate = _rate(_read(labels), labels)
            if odd := next((name for name in names if not Path(name).stem.isdigit()), None):
                raise DataError(f"{video / odd}: the name is not the number of a frame; call it like 000012.png")
            frames = tuple((name, int(Path(name).stem) / rate) for name in names)
        except DataError as error:
            return Recording(video.name, video, fault=str(error))
        return Recording(video.name, video, frames=frames, labels=(labels,))

    def rows(self, recording: Recording) -> list[Row]:
        path = recording.labels[0]
        content = _read(path)
        shown = {round(second * _rate(content, path)): second for _, second in recording.frames}
        annotated = content["annotations"]
        if gone := [frame for frame in shown if str(frame) not in annotated]:
            raise DataError(f"{path}: has no annotation of frame {gone[0]}; remove the frame, or get the whole file")
        return [_row(path, frame, second, annotated[str(frame)]) for frame, second in sorted(shown.items())]


def _read(path: Path) -> dict[str, Any]:
    content = read_json(path, DataError, "get it again from the data set")
    if not isinstance(content.get("annotations"), dict):
        raise DataError(f"{path}: has no 'annotations'; get it again from the data set")
    return content


def _rate(content: dict[str, Any], path: Path) -> float:
    rate = content.get("fps", 1)
    if not isinstance(rate, int | float) or not rate > 0:
        raise DataError(f"{path}: 'fps' is {json.dumps(rate)}; frames need a rate above 0")
    return float(rate)


def _row(path: Path, frame: int, second: float, triplets: Any) -> Row:
    listed = isinstance(triplets, list) and triplets
    well = listed and all(isinstance(one, list) and len(one) == LENGTH for one in triplets)
    phases = {one[PHASE] for one in triplets} if well else set()
    tools = {one[TOOL] for one in triplets} - {-1} if well else set()  # -1: none acts
    if len(phases) != 1 or not phases <= set(range(len(PHASES))) or not tools <= set(range(len(TOOLS))):
        raise DataError(
            f"{path}: frame {frame}: needs lists of {LENGTH} numbers with one phase of 0 to {len(PHASES) - 1} and "
            f"tools of 0 to {len(TOOLS) - 1}; it has phases {sorted(phases, key=str)}, tools {sorted(tools, key=str)}"
        )
    names = {TOOLS[tool] for tool in tools}
    return {"second": second, "phase": PHASES[phases.pop()]} | {name: int(name in names) for name in CholecT50.tools}
