"""Stream a video once, and hold its labels and masks against it."""

import csv
import hashlib
import os
import re
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np
from PIL import Image

from fedmed.data.operation_names import PHASES
from fedmed.data.prepare.case import VideoCase
from fedmed.data.prepare.folder import PREPARED, link_or_copy
from fedmed.data.prepare.video_layouts.layout import Layout, Recording, Row
from fedmed.data.structure import check_name
from fedmed.data.video.folder_source import SINGLES, TABLE
from fedmed.data.video.frame_masks import FrameMasks, better_rate, used_masks
from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.label_table import PHASE, TIMES, TimedLabels, read_label_table
from fedmed.data.video.stored_video import Extraction, StoredVideo
from fedmed.errors import DataError

LOOKED_AT = (72, 96)  # height and width at which a video is streamed
Names = Sequence[str] | None
BEYOND = "gallbladder_extraction"  # in data sets of seven phases; the protocol has no place for it
# Retrograde: 0, 1, 2, 3; from the fundus 2 also after 3; then 4 and 5 in any order, 5 perhaps before and after 4.
# Any may be missing, since recordings are cut, so the beginning of every order is one, too.
ORDERS = re.compile("0?1?(2?3?|232)(45?|5(45?)?)?")


@dataclass(frozen=True)
class WantedVideos:
    """Options of a preparation of videos."""

    layout: str | None = None  # file of the folder ``video_layouts``; None: what the folder obviously is, else plain
    phases: Names = None  # the names that there may be; None: those of the layout
    tools: Names = None
    leave_out: Collection[str] = ()  # phases whose frames are left out, of folders with single frames
    ignore: bool = False  # whether all videos go to ``unlabeled``
    patient_pattern: str | None = None  # finds the patient in the name of a video, where the folder does not say it
    # Size and rate for which the space is foretold, and the rate of numbers in the names of frames.
    settings: FrameSettings = FrameSettings((224, 224))
    # Seconds of a block and of the gap after it: single frames are cut into blocks in turn for training and testing.
    blocks: tuple[float, float] | None = None


DEFAULT = WantedVideos()


def prepare_video(
    recording: Recording, layout: Layout, staging: Path, wanted: WantedVideos, copy: bool = False
) -> VideoCase:
    """Bring one recording into ``staging/prepared``, with its table and masks, and look at all of it.

    Videos and frames are linked, or with ``copy`` hard links or copies. Never raises for bad data: the faults stand in
    the returned case. ``layout`` reads the labels.
    """
    said, patient = recording.patient_said, recording.patient or recording.case
    case = VideoCase(recording.case, patient, recording.video, patient_said=said)
    case.notes += [*([layout.note] if layout.note else []), *recording.notes]
    place = {part: staging / PREPARED / part / recording.case for part in ("videos", "labels", "masks")}
    if recording.fault:
        case.faults.append(recording.fault.removeprefix(f"{recording.video}: "))
        return case
    try:
        rows = layout.rows(recording) if recording.labels else []
        if wanted.leave_out:
            recording, rows = _shortened(recording, rows, wanted.leave_out, case)
        case.image = bring_video(recording, place["videos"], copy)
        if recording.labels:
            case.table = _write_table(rows, place["labels"].with_name(f"{place['labels'].name}.csv"))
        if recording.masks:
            case.mask = _write_masks(recording, layout, place["masks"])
        header = rows[0] if rows else {}
        phases = wanted.phases or (layout.phases if PHASE in header else ())
        tools = wanted.tools or (layout.tools if set(header) - {*TIMES, PHASE} else ())
        values = set(layout.mask_values.values())
        inspect_video(case, wanted.settings, phases, tools, values)
        if not wanted.ignore:
            _check_names(case)
        case.notes += _left_out(case, FrameMasks(case.mask, values), wanted.settings.rate) if case.mask else []
    except DataError as error:
        case.faults.append(_without(str(error), recording, case))
    return case


def inspect_video(
    case: VideoCase, settings: FrameSettings, phases: Names, tools: Names, values: Collection[int]
) -> None:
    """Stream a video from beginning to end, and fill in what is known of it then; a folder at its frames' own times.

    Args:
        case: with ``image``, and perhaps ``table`` and ``mask``, the folder of its masks.
        settings: size and rate for which the space is foretold.
        phases, tools, values: the names and values that there may be; None for names: whatever the table has.

    Raises:
        DataError: what is wrong, and where.
    """
    video = case.image or case.found
    looked = replace(settings, size=LOOKED_AT, rate=None if video.is_dir() else settings.rate)
    extraction, digest = Extraction(video, looked), hashlib.sha256()
    for frame in extraction:
        digest.update(np.ascontiguousarray(frame).data)
    facts = extraction.facts()
    case.stored = stored = StoredVideo(video, Path(), facts)
    case.content, case.seconds, case.shape = digest.hexdigest(), facts["seconds"], (facts["frames"], *settings.size)
    case.sizes = ", ".join(f"{height}x{width}" for height, width in facts["source_sizes"])
    case.white, case.dark, case.out_of_body = (len(facts["flagged"][name]) for name in ("white", "dark", "out_of_body"))
    known = []
    if case.table:
        table = read_label_table(case.table, phases, tools)
        table.rows_of(stored)
        case.columns = (*([] if table.phases is None else [PHASE]), *table.tool_names)
        held = {"phases": table.phases is not None, "tools": table.tools is not None}
        known = [name for name, there in held.items() if there]
        end = stored.start + case.seconds
        case.rows, case.shown, case.lasting = len(table.seconds), table.shown(), table.lasting(end)
        case.notes += filter(None, [odd_order(table), table.last_row(end)])
    if case.mask:
        masks = FrameMasks(case.mask, values)
        files = masks.files()
        masks.of(stored)  # refuses masks of another video
        for _, path in files:
            masks.check(path, stored)
        case.masks, known = len(files), [*known, "masks"]
    case.label = ", ".join(known)
    if len(facts["source_sizes"]) > 1:
        case.notes.append("the size of the frames changes midway")


def _check_names(case: VideoCase) -> None:
    """Refuse phases and tools that no job could name."""
    for kind, names in (("phase", case.lasting), ("tool", case.shown)):
        for name in names:
            try:
                check_name(name)
            except ValueError as error:
                raise DataError(f"{case.table}: no job can have a {kind} '{name}': {error}; rename it there") from error


def _left_out(case: VideoCase, masks: FrameMasks, rate: float | None) -> list[str]:
    """Note masks between the frames that are taken; of a folder between its own, since nobody knows the rate."""
    if case.stored is None or used_masks(masks, case.stored, None) == len(masks.files()):
        return []
    if case.stored.facts["rate"] is None:
        return ["some masks lie between the frames that there are"]
    return [f"at {rate:g} a second some masks are left out; {better_rate(masks, case.stored, rate)}"]


def bring_video(recording: Recording, target: Path, copy: bool) -> Path:
    """Link or copy a video, or frames with a table of them and of their times, to ``target``; return it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if not recording.frames:
        if copy and recording.video.is_dir():
            shutil.copytree(recording.video, target)
        else:
            _bring(recording.video, target, copy)
        return target
    for name, _ in recording.frames:
        _bring(recording.video / name, target / name, copy)
    names = [(name,) for name, _ in recording.frames]
    rows = [("file",), *names] if recording.single else [("file", "second"), *recording.frames]
    with (target / (SINGLES if recording.single else TABLE)).open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerows(rows)
    return target


def _bring(source: Path, target: Path, copy: bool) -> None:
    if copy:
        link_or_copy(source, target)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(source.absolute(), target)


def _shortened(
    recording: Recording, rows: list[Row], leave_out: Collection[str], case: VideoCase
) -> tuple[Recording, list[Row]]:
    """Single frames and their rows without those of some phases."""
    if not recording.frames or not rows:
        raise DataError("only single frames with phases can be left out, and this is a whole video; keep the phase")
    gone = {row["second"] for row in rows if row.get("phase") in leave_out}
    kept = tuple((name, second) for name, second in recording.frames if second not in gone)
    if not kept:
        raise DataError(f"every frame is of {' or '.join(leave_out)}, which is left out")
    if len(kept) < len(recording.frames):
        case.notes.append(f"{len(recording.frames) - len(kept)} frames of {', '.join(leave_out)} are left out")
    return replace(recording, frames=kept), [row for row in rows if row["second"] not in gone]


def _write_table(rows: list[Row], path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            times = {name: "" if row[name] is None else f"{row[name]:.10g}" for name in TIMES if name in row}
            writer.writerow({**row, **times})
    return path


def _write_masks(recording: Recording, layout: Layout, folder: Path) -> Path:
    folder.mkdir(parents=True)
    for second, files in recording.masks:
        Image.fromarray(layout.mask(files)).save(folder / f"{round(1000 * second):08d}.png")
    return folder


def _without(text: str, recording: Recording, case: VideoCase) -> str:
    """A sentence with the paths of what was found, not of what was written in between."""
    for written, original in ((case.image, recording.video), (case.table, next(iter(recording.labels), None))):
        text = text.replace(str(written), str(original)) if written and original else text
    return text.removeprefix(f"{recording.video}: ")


def odd_order(table: TimedLabels) -> str:
    """A sentence about the first phase that comes where the protocol (Kassem et al. 2023) does not have it.

    Returns:
        "" where all come in order, and where the table has no phases, or one that is not of the protocol: such is
        another operation, or another protocol.
    """
    if table.phases is None or not set(table.phase_names) <= {*PHASES, BEYOND}:
        return ""
    names = (table.phase_names[place] for place in table.phases)
    timed = [(PHASES.index(name), second) for name, second in zip(names, table.seconds, strict=True) if name != BEYOND]
    runs = [next(run) for _, run in groupby(timed, key=lambda one: one[0])]
    order = "".join(str(phase) for phase, _ in runs)
    for place, (phase, second) in enumerate(runs):
        if not ORDERS.fullmatch(order[: place + 1]):
            return (
                f"'{PHASES[phase]}' begins at {second:g} s, after '{PHASES[runs[place - 1][0]]}', which is in none of "
                "the protocol's orders; look whether it is labelled right"
            )
    return ""
