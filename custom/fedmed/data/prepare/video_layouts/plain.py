"""Videos with a table and masks of the same name, or as ``videos.csv`` lists them."""

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path

from fedmed.data.prepare.folder import visible_files
from fedmed.data.prepare.report import LISTS
from fedmed.data.prepare.video_layouts.layout import Layout, Recording, Row, movies
from fedmed.data.video.folder_source import TABLE
from fedmed.data.video.frame_masks import FrameMasks
from fedmed.data.video.label_table import read_label_table
from fedmed.errors import DataError

INDEX = "videos.csv"
COLUMNS = ("video", "patient", "labels", "masks", "list")


class Plain(Layout):
    """``videos/a.mp4`` (or a folder of frames with ``frames.csv``), ``labels/a.csv``, ``masks/a/00012000.png``.

    ``videos.csv`` in the folder may say it instead: columns ``video`` and perhaps ``patient``, ``labels``, ``masks``
    and ``list``, paths relative to the folder.
    """

    about = "videos/a.mp4 with labels/a.csv and masks/a/, or as videos.csv lists them"
    phases = tools = None

    def fits(self, folder: Path) -> bool:
        return True

    def find(self, folder: Path) -> list[Recording]:
        if (folder / INDEX).is_file():
            return list(_listed(folder))
        frames = [place for place, files in visible_files(folder, ()) if any(file.name == TABLE for file in files)]
        found = sorted([*movies(folder), *frames])
        return [_recording(folder, video, _beside(folder, video)) for video in found]

    def rows(self, recording: Recording) -> list[Row]:
        path = recording.labels[0]
        table = read_label_table(path, None, None)
        rows: list[Row] = [{"second": second} for second in table.seconds.tolist()]
        for place, row in enumerate(rows):
            row |= {} if table.phases is None else {"phase": table.phase_names[table.phases[place]]}
            row |= {} if table.tools is None else dict(zip(table.tool_names, table.tools[place].tolist(), strict=True))
        return rows


def _beside(folder: Path, video: Path) -> Mapping[str, str]:
    """Table and masks that are called as the video: in ``labels`` and ``masks``, or beside it."""
    name = video.name if video.is_dir() else video.stem
    places = {"labels": [folder / "labels" / f"{name}.csv", video.parent / f"{name}.csv"],
              "masks": [folder / "masks" / name, video.parent / f"{name}_masks"]}  # fmt: skip
    found = {what: next((path for path in paths if path.exists()), None) for what, paths in places.items()}
    return {what: path.relative_to(folder).as_posix() for what, path in found.items() if path}


def _listed(folder: Path) -> Iterable[Recording]:
    with (folder / INDEX).open(newline="", encoding="utf-8-sig") as stream:
        rows = csv.DictReader(stream)
        if not {"video"} <= set(rows.fieldnames or ()) <= set(COLUMNS):
            raise DataError(f"{folder / INDEX}: has columns {rows.fieldnames}; use 'video' and more of {COLUMNS}")
        for line, row in enumerate(rows, 2):
            if Path(row["video"]).is_absolute() or ".." in Path(row["video"]).parts:
                raise DataError(f"{folder / INDEX}: line {line}: {row['video']!r} is not a path below the folder")
            if row["video"]:
                yield _recording(folder, folder / row["video"], row)


def _recording(folder: Path, video: Path, row: Mapping[str, str | None]) -> Recording:
    case = video.relative_to(folder).as_posix().removeprefix("videos/")
    fault, masks = "", list[tuple[float, tuple[Path, ...]]]()
    try:
        if row.get("masks"):
            masks = [(second, (file,)) for second, file in FrameMasks(folder / str(row["masks"]), ()).files()]
        if (name := row.get("list")) and name not in LISTS:
            raise DataError(f"{folder / INDEX}: the list {name!r} is unknown; use {', '.join(LISTS)}")
        if video.is_dir() and not (video / TABLE).is_file():
            raise DataError(
                f"{video}: nothing says when its frames are shown; write {TABLE} with the columns file,second"
            )
    except DataError as error:
        fault = str(error)
    labels = (folder / str(row["labels"]),) if row.get("labels") else ()
    patient, name = row.get("patient") or "", row.get("list") or ""
    return Recording(case, video, patient, labels=labels, masks=tuple(masks), list=name, fault=fault)
