"""HeiChole (Wagner et al. 2023, Heidelberg and others): one row a frame, without headings."""

import re
from pathlib import Path

from fedmed.data.operation_names import TOOLS
from fedmed.data.prepare.folder import visible_files
from fedmed.data.prepare.video_layouts.layout import (
    PHASES,
    Layout,
    Recording,
    Row,
    frames_a_second,
    movies,
    rows_of_text,
    whole,
)
from fedmed.errors import DataError

NAME = re.compile(r"hei-?chole(\d+)(?:_annotation_(phase|instrument))?$", re.IGNORECASE)


class HeiChole(Layout):
    """``Hei-Chole1.mp4``, ``Hei-Chole1_Annotation_Phase.csv``, ``Hei-Chole1_Annotation_Instrument.csv`` at any depth.

    Both tables have the number of the frame first; then the phase, 0 to 6; or seven columns of categories, of which
    the stapler, seen in one video, is left out, and further ones of single instruments. Frames are counted at the rate
    of their video. The table has a row a second.
    """

    about = "HeiChole: phases and categories of instruments for each frame; without the stapler"
    phases, tools = PHASES, TOOLS
    note = "the stapler is left out; what was outside of the body has been made white"

    def fits(self, folder: Path) -> bool:
        return any(_part(file)[1] for _, files in visible_files(folder, ()) for file in files)

    def find(self, folder: Path) -> list[Recording]:
        tables: dict[str, dict[str, Path]] = {}
        for path in (file for _, files in visible_files(folder, ()) for file in files if file.suffix == ".csv"):
            number, part = _part(path)
            if part:
                tables.setdefault(number, {})[part] = path
        recordings = []
        for video in sorted(movies(folder)):
            number, _ = _part(video)
            fault = (
                "" if number else f"{video}: is not called like Hei-Chole1.mp4, so nobody knows its labels; rename it"
            )
            labels = tables.get(number, {})
            files = tuple(labels[part] for part in ("phase", "instrument") if part in labels)
            case = video.relative_to(folder).as_posix()  # the same video may be there twice, of two sizes
            recordings.append(Recording(case, video, f"Hei-Chole{number}" if number else "", labels=files, fault=fault))
        return recordings

    def rows(self, recording: Recording) -> list[Row]:
        rate = frames_a_second(recording.video)
        rows: dict[int, Row] = {}
        for path in recording.labels:
            read = _phase if _part(path)[1] == "phase" else _tools
            frames = {whole(path, line, cells[0]): read(path, line, cells) for line, cells in rows_of_text(path, ",")}
            seconds = range(int(max(frames) / rate) + 1)
            if rows and len(rows) != len(seconds):
                raise DataError(f"{path}: ends at {seconds[-1]} s, and {recording.labels[0].name} at {max(rows)} s")
            for second in seconds:
                if (frame := round(second * rate)) not in frames:
                    raise DataError(f"{path}: has no row for frame {frame}; it has gaps, or belongs to another video")
                rows.setdefault(second, {"second": second}).update(frames[frame])
        return list(rows.values())


def _part(path: Path) -> tuple[str, str]:
    """Number of the video, and what a file says of it: phase, instrument, or ""; "" for other files."""
    match = NAME.match(path.stem)
    return (match[1], (match[2] or "").lower()) if match else ("", "")


def _phase(path: Path, line: int, cells: list[str]) -> Row:
    number = whole(path, line, cells[1] if len(cells) > 1 else "")
    if not 0 <= number < len(PHASES):
        raise DataError(f"{path}: line {line}: the phase {number} is unknown; phases are 0 to {len(PHASES) - 1}")
    return {"phase": PHASES[number]}


def _tools(path: Path, line: int, cells: list[str]) -> Row:
    wanted = cells[1 : 1 + len(TOOLS)]
    if len(wanted) < len(TOOLS) or not set(wanted) <= {"0", "1"}:
        raise DataError(f"{path}: line {line}: needs {len(TOOLS)} values of 0 and 1 after the frame, has {wanted}")
    return dict(zip(TOOLS, map(int, wanted), strict=True))
