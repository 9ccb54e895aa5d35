"""Cholec80 (Twinanda et al. 2017, Strasbourg): 80 videos at 25 frames a second."""

from pathlib import Path

from fedmed.data.prepare.video_layouts.layout import PHASES, Layout, Recording, Row, movies, rows_of_text, whole
from fedmed.data.video.label_table import unknown
from fedmed.errors import DataError

RATE = 25
THEIRS = (
    *("Preparation", "CalotTriangleDissection", "ClippingCutting", "GallbladderDissection"),
    *("GallbladderPackaging", "CleaningCoagulation", "GallbladderRetraction"),
)
NAMES = dict(zip(THEIRS, PHASES, strict=True))
COMMON = {  # Markert 2022: hook and bipolar forceps are one tool
    "Grasper": "grasper",
    "Clipper": "clipper",
    "Bipolar": "coagulation",
    "Hook": "coagulation",
    "Scissors": "scissors",
    "Irrigator": "suction_irrigation",
    "SpecimenBag": "specimen_bag",
}


class Cholec80(Layout):
    """``videos/video01.mp4``, ``phase_annotations/video01-phase.txt``, ``tool_annotations/video01-tool.txt``.

    Phases stand there for each frame, tools for each 25th. The table has a row a second, with the phase of that very
    frame: what changes in between is seen up to a second later.
    """

    about = "Cholec80: phases at 25 frames a second, tools at 1; Bipolar or Hook becomes coagulation"
    phases, tools = PHASES, tuple(dict.fromkeys(COMMON.values()))

    def fits(self, folder: Path) -> bool:
        return (folder / "phase_annotations").is_dir() or (folder / "tool_annotations").is_dir()

    def find(self, folder: Path) -> list[Recording]:
        recordings = []
        for video in sorted(movies(folder)):
            places = (folder / f"{part}_annotations" / f"{video.stem}-{part}.txt" for part in ("phase", "tool"))
            recordings.append(Recording(video.name, video, labels=tuple(path for path in places if path.is_file())))
        return recordings

    def rows(self, recording: Recording) -> list[Row]:
        rows: dict[int, Row] = {}
        for path in reversed(recording.labels):  # tools first: they name the seconds
            header, *lines = rows_of_text(path, "\t")
            if path.stem.endswith("-tool"):
                rows = {frame: row for line, cells in lines for frame, row in [_tools(path, line, header[1], cells)]}
                continue
            phases = {whole(path, line, cells[0]): _phase(path, line, cells) for line, cells in lines}
            wanted = rows or {frame: {"second": frame / RATE} for frame in range(0, max(phases) + 1, RATE)}
            if gone := [frame for frame in wanted if frame not in phases]:
                raise DataError(
                    f"{path}: has no phase for frame {gone[0]}; it belongs to another video, or is cut short"
                )
            rows = {frame: {"second": row["second"], "phase": phases[frame], **row} for frame, row in wanted.items()}
        return list(rows.values())


def _tools(path: Path, line: int, header: list[str], cells: list[str]) -> tuple[int, Row]:
    if len(cells) != len(header):
        raise DataError(f"{path}: line {line}: has {len(cells)} values for {len(header)} columns; correct it")
    frame = whole(path, line, cells[0])
    present = dict.fromkeys(COMMON.values(), 0)
    for name, cell in zip(header[1:], cells[1:], strict=True):
        if name not in COMMON:
            raise DataError(f"{path}: line 1: {unknown('tool', name, list(COMMON))}")
        if cell not in ("0", "1"):
            raise DataError(f"{path}: line {line}: '{name}' is {cell!r}; write 1 where the tool is seen, else 0")
        present[COMMON[name]] |= int(cell)
    if gone := [name for name in COMMON if name not in header]:
        raise DataError(
            f"{path}: line 1: the column '{gone[0]}' is missing; it has {', '.join(header)}: restore the file"
        )
    return frame, {"second": frame / RATE, **present}


def _phase(path: Path, line: int, cells: list[str]) -> str:
    name = cells[1] if len(cells) > 1 else ""
    if name not in NAMES:
        raise DataError(f"{path}: line {line}: {unknown('phase', name, list(NAMES))}")
    return NAMES[name]
