"""Videos with a table and masks of the same name, or as ``videos.csv`` lists them."""

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path

from fedmed.data.prepare.folder import visible_files
from fedmed.data.prepare.report import LISTS
from fedmed.data.prepare.video_layouts.layout import (
    MOVIES,
    NAMES_RATE,
    Layout,
    Recording,
    Row,
    frames_a_second,
    movies,
    rows_of_text,
)
from fedmed.data.tables import csv_errors, table_lines
from fedmed.data.video.folder_source import PICTURES, SINGLES, TABLE
from fedmed.data.video.frame_masks import FrameMasks
from fedmed.data.video.label_table import END, SECOND, read_label_table
from fedmed.errors import DataError

INDEX = "videos.csv"
COLUMNS = ("video", "patient", "labels", "masks", "list")


class Plain(Layout):
    """``videos/a.mp4`` (or a folder of frames), ``labels/a.csv``, ``masks/a/00012000.png``.

    ``videos.csv`` in the folder may say it instead: columns ``video`` and perhaps ``patient``, ``labels``, ``masks``
    and ``list``, paths relative to the folder. ``masks`` may be a table too, ``masks/a.csv``: columns ``file``,
    relative to the table, and ``second`` or ``frame``, the number of a frame counted from 0. When frames are shown
    says ``frames.csv`` beside them, or ``names_rate`` with the numbers in their names.
    """

    about = (
        "videos/a.mp4, or a folder of frames with frames.csv (columns file, second) or with numbers in their names "
        f"and {NAMES_RATE}; labels/a.csv and masks/a/ where there are some; or as videos.csv lists them"
    )
    phases = tools = None

    def fits(self, folder: Path) -> bool:
        return True

    def find(self, folder: Path) -> list[Recording]:
        if (folder / INDEX).is_file():
            return [self.timed(one) for one in _listed(folder)]
        existing = sorted([*movies(folder), *_frame_folders(folder, empty=self.names_rate is not None)])
        return [self.timed(_recording(folder, video, _label_files(folder, video))) for video in existing]

    def rows(self, recording: Recording) -> list[Row]:
        path = recording.labels[0]
        table = read_label_table(path, None, None)
        rows: list[Row] = [{SECOND: second} for second in table.seconds.tolist()]
        for row, end in zip(rows if table.changes else (), [*table.seconds[1:].tolist(), table.end], strict=False):
            row[END] = end  # None: that of the video
        for place, row in enumerate(rows):
            row |= {} if table.phases is None else {"phase": table.phase_names[table.phases[place]]}
            row |= {} if table.tools is None else dict(zip(table.tool_names, table.tools[place].tolist(), strict=True))
        return rows


def _frame_folders(folder: Path, empty: bool) -> list[Path]:
    """Folders with a table of times, or with pictures that no such table can list and that are not masks.

    ``empty``: those with nothing in them too, since frames may be missing there.
    """
    places = dict(visible_files(folder, ()))
    tables = {place for place, files in places.items() if any(file.name in (TABLE, SINGLES) for file in files)}
    parents, listed = {place.parent for place in places}, sorted(tables)
    for place, files in places.items():
        masks = any(part.endswith("masks") for part in place.relative_to(folder).parts)
        endings = {file.suffix.lower() for file in files}
        frames = bool(endings & PICTURES and not endings & MOVIES) or (empty and not files and place not in parents)
        if frames and not masks and not tables & {place, *place.parents}:
            listed.append(place)
    return listed


def _label_files(folder: Path, video: Path) -> Mapping[str, str]:
    """Table and masks that are called as the video: in ``labels`` and ``masks``, or beside it."""
    name = video.name if video.is_dir() else video.stem
    masks = folder / "masks"
    places = {"labels": [folder / "labels" / f"{name}.csv", video.parent / f"{name}.csv"],
              "masks": [masks / name, video.parent / f"{name}_masks", masks / f"{name}.csv"]}  # fmt: skip
    existing = {what: next((path for path in paths if path.exists()), None) for what, paths in places.items()}
    return {what: path.relative_to(folder).as_posix() for what, path in existing.items() if path}


def _listed(folder: Path) -> Iterable[Recording]:
    with csv_errors(folder / INDEX):
        rows = csv.DictReader(table_lines(folder / INDEX))
        if not {"video"} <= set(rows.fieldnames or ()) <= set(COLUMNS):
            raise DataError(f"{folder / INDEX}: has columns {rows.fieldnames}; use 'video' and more of {COLUMNS}")
        for line, row in enumerate(rows, 2):
            if Path(row["video"]).is_absolute() or ".." in Path(row["video"]).parts:
                raise DataError(f"{folder / INDEX}: line {line}: {row['video']!r} is not a path below the folder")
            if row["video"]:
                yield _recording(folder, folder / row["video"], row)


def _recording(folder: Path, video: Path, row: Mapping[str, str | None]) -> Recording:
    case = folder.name if video == folder else video.relative_to(folder).as_posix().removeprefix("videos/")
    fault, masks = "", list[tuple[float, tuple[Path, ...]]]()
    try:
        if row.get("masks"):
            masks = [(second, (file,)) for second, file in _masks(folder / str(row["masks"]), video)]
        if (name := row.get("list")) and name not in LISTS:
            raise DataError(f"{folder / INDEX}: the list {name!r} is unknown; use {', '.join(LISTS)}")
    except DataError as error:
        fault = str(error)
    labels = (folder / str(row["labels"]),) if row.get("labels") else ()
    patient, name = row.get("patient") or "", row.get("list") or ""
    return Recording(case, video, patient, labels=labels, masks=tuple(masks), list=name, fault=fault)


def _masks(place: Path, video: Path) -> list[tuple[float, Path]]:
    """(second, file) of every mask of a folder or of a table."""
    if place.suffix.lower() != ".csv":
        return FrameMasks(place, ()).files()
    (_, header), *lines = rows_of_text(place, ",")
    when = next((name for name in ("second", "frame") if name in header), None)
    if when is None or "file" not in header:
        raise DataError(f"{place}: has columns {header}; use 'file', and 'second' or 'frame'")
    rate = frames_a_second(video) if when == "frame" else 1.0
    return [_mask(place, number, dict(zip(header, cells, strict=False)), when, rate) for number, cells in lines]


def _mask(table: Path, line: int, row: Mapping[str, str], when: str, rate: float) -> tuple[float, Path]:
    try:
        second = float(row[when]) / rate
    except (KeyError, ValueError) as error:
        raise DataError(f"{table}: line {line}: {when} is {row.get(when)!r}; write a number") from error
    name = row.get("file", "")
    if not name or Path(name).is_absolute() or ".." in Path(name).parts:
        raise DataError(f"{table}: line {line}: file {name!r} is not a path below the table's folder; correct it")
    return second, table.parent / name
