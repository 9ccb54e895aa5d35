"""Inspection of videos with labels by time and masks by frame, in a site's check."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from fedmed.checks.entries import Cases, Entry
from fedmed.checks.inspection import Inspection, with_lists
from fedmed.checks.site_findings import SiteFinding, data_finding
from fedmed.data.prepare import phase_counts, tool_counts
from fedmed.data.prepare.case import Case, VideoCase
from fedmed.data.prepare.pool import DIED, Track, run_all
from fedmed.data.prepare.video_inspect import inspect_video
from fedmed.data.prepare.video_layouts.layout import PARTS
from fedmed.data.video.folder_source import TABLE
from fedmed.data.video.frame_masks import FrameMasks, better_rate, used_masks
from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.label_table import TimedLabels, read_label_table
from fedmed.data.video.stored_video import foretold, space_needed
from fedmed.errors import DataError
from fedmed.reports.words import NOTHING

FORETOLD = FrameSettings((224, 224), 1)  # whose space is foretold, where nothing was measured


class VideoInspection(Inspection):
    """Videos, streamed from beginning to end, with their tables and masks.

    Attributes:
        names: the part of a table whose names are the job's classes: ``tools`` or ``phases``.
        values: those that a mask may have.
    """

    noun = "video"
    facts = (
        ("Minutes", (1, 10, 30, 60, 120), lambda case: getattr(case, "seconds", 0) / 60),
        ("Lines of a frame", (240, 480, 720, 1080), lambda case: _lines(case)),
        ("Frames out of the body (%)", (1, 5, 10, 25), lambda case: _share(case)),
        ("Masks", (1, 10, 100, 1000), lambda case: getattr(case, "masks", None)),
    )
    names: ClassVar[str] = "tools"
    values: ClassVar[Collection[int]] = PARTS

    def open(
        self,
        entries: Sequence[Entry],
        workers: int = 1,
        track: Track | None = None,
        bundle: str | None = None,
        site_bundles: Path | None = None,
    ) -> dict[Entry, Case]:
        """As training streams them, whatever the bundle; nothing is stored."""
        named = list(dict.fromkeys((entry.image, entry.table, entry.mask) for entry in entries))
        work = partial(_inspected, values=self.values)
        cases = dict(zip(named, run_all(work, named, workers, track, apart=True, died=_died), strict=True))
        return with_lists({entry: cases[entry.image, entry.table, entry.mask] for entry in entries})

    def judge_images(self, cases: Cases, size: int | None) -> Iterator[SiteFinding]:
        """Find what is wrong with single videos and their labels, and frames out of the body."""
        for entry, case in cases.items():
            for fault in case.faults:
                kind = "video_labels" if fault.startswith(("table", "mask")) else "video"
                yield data_finding(kind, f"{entry.where}: {fault}", entry.list, entry.number)
            for note in case.notes if case.usable else ():
                yield data_finding("odd_video", f"{entry.where}: {note}", entry.list, entry.number)

    def judge_labels(
        self, entries: Sequence[Entry], classes: Sequence[str] | None, role: str | None, chooses: bool
    ) -> Iterator[SiteFinding]:
        """Find tables that do not have just the job's classes, and what is odd about those of a list together."""
        tables: dict[str, list[TimedLabels]] = {}
        for entry in entries if classes else ():
            if entry.table is None:
                continue
            try:
                table = read_label_table(entry.table, **{self.names: classes})
            except DataError as error:
                yield data_finding("video_labels", f"{entry.where}: {error}", entry.list, entry.number)
                continue
            tables.setdefault(entry.list, []).append(table)
        yield from self.judge_tables(tables, classes or (), role)

    def judge_times(self, entries: Sequence[Entry], rate: float | None) -> Iterator[SiteFinding]:
        """Find folders of frames whose tables have gaps where the job takes frames, such as of frames here and there.

        Preparing looks at a folder's own frames, so nothing has said it before; a video file was streamed at a rate.
        """
        for entry in entries if rate else ():
            if entry.table is None or not (entry.image / TABLE).is_file():
                continue
            try:
                labels = read_label_table(entry.table)
            except DataError:
                continue  # told by judge_labels
            try:
                labels.rows_of(foretold(entry.image, replace(FORETOLD, rate=rate)))
            except DataError as error:
                yield data_finding("video_labels", f"{entry.where}: {error}", entry.list, entry.number)

    def judge_tables(
        self, tables: Mapping[str, Sequence[TimedLabels]], classes: Sequence[str], role: str | None
    ) -> Iterator[SiteFinding]:
        """Find tools that a list never or always shows; list -> its tables."""
        rows = {name: [(len(table.seconds), table.shown()) for table in listed] for name, listed in tables.items()}
        for text in tool_counts.one_sided({name: tool_counts.added(listed) for name, listed in rows.items()}):
            yield data_finding("one_sided", text)

    def rows(self, entries: Sequence[Entry], cases: Sequence[Case]) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [("list", "videos", "patients", "minutes", "known", "masks")]
        for key in dict.fromkeys(entry.list for entry in entries):
            listed = [entry for entry in entries if entry.list == key]
            videos = [case for case in cases if key in case.lists and isinstance(case, VideoCase)]
            patients = str(len({entry.patient for entry in listed})) if all(e.patient for e in listed) else NOTHING
            known = "; ".join(sorted({case.label for case in videos if case.label})) or NOTHING
            minutes = f"{sum(case.seconds for case in videos) / 60:.1f}"
            rows.append((key, str(len(listed)), patients, minutes, known, str(sum(case.masks for case in videos))))
        return rows

    def cache_bytes(self, entries: Sequence[Entry], cases: Cases, sample: Sequence[Entry], mean: float | None) -> int:
        """Frames are all of one size, so the space grows with their number.

        Without a measurement, at 224 x 224 pixels and one frame a second.
        """
        frames = sum({entry.image: _frames(entry, cases) for entry in entries}.values())
        measured = sum(cases[entry].shape[0] for entry in sample if entry in cases and cases[entry].shape)
        if mean and measured:
            return round(mean * len(sample) * frames / measured)
        height, width = FORETOLD.size
        return frames * height * width * 3


class PhaseInspection(VideoInspection):
    """The same where the job's classes are phases."""

    names = "phases"

    def judge_tables(
        self, tables: Mapping[str, Sequence[TimedLabels]], classes: Sequence[str], role: str | None
    ) -> Iterator[SiteFinding]:
        """Find phases that a list does not have, and a single one that is all that a labelled site would train on."""
        counts = {name: phase_counts.added(table.lasting() for table in listed) for name, listed in tables.items()}
        if role == "supervised" and (phase := phase_counts.alone(counts).get("training")):
            text = f"every frame of 'training' is of the phase '{phase}'; list videos with other phases too"
            yield data_finding("one_class", text, "training")
        for text in phase_counts.missing(counts, classes):
            yield data_finding("one_sided", text)


class MaskInspection(VideoInspection):
    """The same where the job's classes are what 1, 2, … stand for in masks; without a job, masks may have any value."""

    values = range(256)

    def judge_rate(self, cases: Cases, rate: float | None) -> Iterator[SiteFinding]:
        """Count the masks of a video that are used at the job's rate; without a job nothing is said."""
        for entry, case in cases.items() if rate else ():
            if entry.mask is None or not case.usable or not isinstance(case, VideoCase) or case.stored is None:
                continue
            masks = FrameMasks(entry.mask, self.values)
            number, used = len(masks.files()), used_masks(masks, case.stored, rate)
            if used < number:
                text = f"{used} of {number} masks are used at the job's {rate:g} frames a second"
                hint = f"{better_rate(masks, case.stored, rate)}, which the study lead sets as 'frame_rate'"
                kind = "unused_masks" if used else "video_labels"
                yield data_finding(kind, f"{entry.where}: {text}; {hint}", entry.list, entry.number)

    def judge_labels(
        self, entries: Sequence[Entry], classes: Sequence[str] | None, role: str | None, chooses: bool
    ) -> Iterator[SiteFinding]:
        """Find masks with values that stand for none of the job's classes."""
        for entry in entries if classes else ():
            if entry.mask is None:
                continue
            try:
                FrameMasks(entry.mask, range(len(classes or ()) + 1)).check_values()
            except DataError as error:
                yield data_finding("video_labels", f"{entry.where}: {error}", entry.list, entry.number)


def _inspected(named: tuple[Path, Path | None, Path | None], values: Collection[int]) -> VideoCase:
    """Stream one video. Never raises for bad data: the faults stand in the returned case."""
    video, table, masks = named
    case = VideoCase(video.name, video.name, video, video, masks, table=table)
    try:
        inspect_video(case, FORETOLD, None, None, values)
    except DataError as error:
        text = re.sub(rf"^{re.escape(str(video))}:? ?", "", str(error))  # the entry's place says it
        part = next((word for word, place in (("table", table), ("mask", masks)) if place and str(place) in text), "")
        case.faults.append(f"{part} {text}".strip())
    if case.out_of_body:
        case.notes.append(
            f"{case.out_of_body} of {case.shape[0]} frames look as if the camera was out of the body, where faces and "
            "names may be seen; let the study drop 'out_of_body'"
        )
    return case


def _died(named: tuple[Path, Path | None, Path | None]) -> VideoCase:
    video, table, masks = named
    return VideoCase(video.name, video.name, video, video, masks, table=table, faults=[DIED])


def _frames(entry: Entry, cases: Cases) -> int:
    """Number of frames that a video will have in the store; of one that was not opened, as its header says."""
    if entry in cases:
        return cases[entry].shape[0] if cases[entry].usable else 0
    try:
        return space_needed([entry.image], replace(FORETOLD, rate=None if entry.image.is_dir() else 1)).frames
    except DataError:
        return 0  # said where it is opened


def _lines(case: Case) -> float | None:
    sizes = getattr(case, "sizes", "")
    return float(sizes.split("x")[0]) if sizes else None


def _share(case: Case) -> float | None:
    return 100 * case.out_of_body / case.shape[0] if isinstance(case, VideoCase) and case.shape else None
