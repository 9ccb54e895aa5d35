"""A video with what a model sees in it: still frames, and frames along time."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd
from matplotlib.colors import to_rgb
from numpy.typing import NDArray

from fedmed.data.video.file_source import open_video
from fedmed.data.video.frame_masks import FrameMasks
from fedmed.data.video.frame_settings import Frame
from fedmed.data.video.label_table import PHASE, SECOND, TimedLabels, read_label_table
from fedmed.data.video.source import Damage, ShownFrame, VideoSource, orientation
from fedmed.data.video.stored_video import StoredVideo
from fedmed.errors import DataError
from fedmed.reports.palette import MARKS
from fedmed.reports.run_files import read_table
from fedmed.reports.slice_picture import contours
from fedmed.reports.timelines import SAME, Ribbon, held
from fedmed.training.mask_recorder import SCORES
from fedmed.training.video_recorder import PROBABILITY, TRUTH

ANY = range(256)  # values of a mask
COVER = 0.45  # opacity of a mask that a model called
KNOWN, CALLED, MASKS = "truth", "prediction", "masks"
IMAGE, ERROR = "image", "error"  # columns of a bundle's table: the file, and why it could not be read


@dataclass(frozen=True)
class Still:
    """One frame as it is drawn.

    Attributes:
        second: at which it is asked for, from the video's first frame.
        image: (H, W, 3) uint8 RGB.
        outlines: (value of the mask, closed line (N, 2) of x and y in pixels); none where the frame has no mask.
        covered: values of the mask that a model called, whose colours lie over the image.
    """

    second: float
    image: Frame
    outlines: Sequence[tuple[int, NDArray[np.float64]]]
    covered: Sequence[int] = ()


def outline_colour(value: int) -> str:
    """Of a mask's value, above 0."""
    return MARKS[(value - 1) % len(MARKS)]


def stills(video: "ViewedVideo", times: Iterable[float], width: int) -> Iterator[Still]:
    """The frames that are shown at increasing times, as far as the video goes.

    All of the video is decoded, so that damage is told wherever it lies.

    Args:
        video: what is known.
        times: seconds from the first frame.
        width: of the images, in pixels; their height is even, and the first frame's.

    Raises:
        DataError: the video is damaged, or a mask has another size than its frame.
    """
    true, predicted = (
        {round(1000 * second): file for second, file in files.items()} for files in (video.masks, video.called)
    )
    last, height = None, 0
    for second, begun, shown in _shown_at(video.source, video.path, times):
        if last is None or last[0] is not shown:
            tall, wide = upright(shown)
            height = height or max(2, 2 * round(width * tall / wide / 2))  # of all frames, whatever comes later
            mask, other = (_mask(shown, video.path, begun, named, (height, width)) for named in (true, predicted))
            image, values = _covered(np.array(shown.scaled(height, width)), other)
            last = shown, image, _outlines(mask), values
        yield Still(second, *last[1:])


def _shown_at(source: VideoSource, path: Path, times: Iterable[float]) -> Iterator[tuple[float, float, ShownFrame]]:
    """(wanted time, time at which its frame begins, frame)."""
    wanted, start, shown = iter(times), 0.0, None
    due = next(wanted, None)
    for frame in source.frames(Damage(path)):
        start = frame.second if shown is None else start
        while shown is not None and due is not None and due < frame.second - start - SAME:
            yield due, shown.second - start, shown
            due = next(wanted, None)
        shown = frame
    while shown is not None and due is not None and due < max(shown.until, shown.second + SAME) - start:
        yield due, shown.second - start, shown
        due = next(wanted, None)


def upright(shown: ShownFrame) -> tuple[int, int]:
    """Rows and columns of a frame as it is to be seen."""
    tall, wide = shown.picture.height, shown.picture.width
    return (wide, tall) if orientation(shown.picture).swapped else (tall, wide)


def _mask(
    shown: ShownFrame, path: Path, begun: float, named: Mapping[int, Path], size: tuple[int, int]
) -> NDArray[np.uint8] | None:
    """The mask of a frame that begins at a second, on an image of a size; None where there is none."""
    early = int(1000 * begun)
    file = named.get(early) or named.get(early + 1)
    if file is None:
        return None
    facts = {"source_sizes": [upright(shown)], "picture_box": [0, 1, 0, 1], "height": size[0], "width": size[1]}
    return FrameMasks(file.parent, ANY).read(file, StoredVideo(path, Path(), facts))


def _outlines(mask: NDArray[np.uint8] | None) -> list[tuple[int, NDArray[np.float64]]]:
    """The lines of a mask; none without one."""
    values = [] if mask is None else np.unique(mask[mask > 0]).tolist()
    return [(value, line) for value in values for line in contours(mask == value, (1, 1))]


def _covered(image: Frame, mask: NDArray[np.uint8] | None) -> tuple[Frame, list[int]]:
    """An image under the colours of a mask, and the values of the mask."""
    values = [] if mask is None else np.unique(mask[mask > 0]).tolist()
    for value in values:
        inside = mask == value
        image[inside] = (1 - COVER) * image[inside] + COVER * 255 * np.array(to_rgb(outline_colour(value)))
    return image, values


@dataclass(frozen=True)
class ViewedVideo:
    """A video whose files are there; all times count from its first frame.

    Attributes:
        path: file, or folder of frames.
        source: what reads it.
        width: of its frames, in pixels.
        ribbons: ``truth`` and ``prediction``, as far as they are known.
        masks, called: second -> file, of what is there and of what a model called.
        classes: what 1, 2, … stand for in them, as far as it is known.
    """

    path: Path
    source: VideoSource
    width: int
    ribbons: Mapping[str, Ribbon]
    masks: Mapping[float, Path]
    called: Mapping[float, Path] = field(default_factory=dict)
    classes: Sequence[str] = ()

    @property
    def rows(self) -> list[str]:
        """Names along time: labels in the order of the ribbon that knows more of them, others below, and masks."""
        known = sorted(self.ribbons.values(), key=lambda ribbon: -len(ribbon.names))
        names = [name for ribbon in known for name in ribbon.names]
        return list(dict.fromkeys([*names, *([MASKS] if self.masks or self.called else [])]))

    def class_name(self, value: int) -> str:
        """Name of the class that a value of a mask stands for."""
        return self.classes[value - 1] if value <= len(self.classes) else f"mask {value}"


def read_viewed(
    video: Path,
    labels: Path | None,
    masks: Path | None,
    predictions: Path | None,
    threshold: float,
    called: Path | None,
) -> ViewedVideo:
    """Read all but the frames.

    Args:
        video: file, or folder of frames.
        labels: table by time.
        masks: folder of PNG files.
        predictions: table by time of probabilities.
        threshold: probability from which a label counts as called; of phases the likeliest is.
        called: folder of PNG files that a bundle's inference wrote.

    Raises:
        DataError: a file is missing, damaged or not what it should be; it says which, and what to do.
    """
    source, ribbons = open_video(video), dict[str, Ribbon]()
    first = next(iter(source.frames(Damage(video))), None)
    if first is None:
        raise DataError(f"{video}: none of its frames can be decoded; copy it again")
    shift = first.second if video.is_dir() else 0.0  # tables and masks of a folder count in its own time
    table = read_label_table(labels, None, None) if labels else None
    if table:
        ribbons[KNOWN] = _truth(table, source, shift)
    if predictions:
        ribbons[CALLED] = read_predictions(predictions, table.phase_names if table else (), threshold, video, shift)
    true, predicted = (_files(folder, shift) for folder in (masks, called))
    return ViewedVideo(video, source, upright(first)[1], ribbons, true, predicted)


def _files(folder: Path | None, shift: float) -> dict[float, Path]:
    """Second from the first frame -> mask."""
    return {second - shift: file for second, file in FrameMasks(folder, ANY).files()} if folder else {}


def _truth(table: TimedLabels, source: VideoSource, shift: float) -> Ribbon:
    none = np.empty((len(table.seconds), 0))
    phases = none if table.phases is None else np.eye(len(table.phase_names))[table.phases]
    present = np.concatenate([phases, none if table.tools is None else table.tools], axis=1) > 0
    ribbon = held(table.seconds - shift, present, (*table.phase_names, *table.tool_names), bridge=True)
    if table.changes:  # the last row holds to the end of the video, as far as its header tells that
        with suppress(DataError):
            ribbon.ends[-1] = source.seconds() if table.end is None else table.end - shift
    return ribbon


def read_predictions(
    path: Path, phases: tuple[str, ...] = (), threshold: float = 0.5, video: Path | None = None, shift: float = 0.0
) -> Ribbon:
    """Read a table with ``second`` and ``p_<label>``, a probability for each label.

    Sites write one a video when they test. A bundle's ``predictions.csv`` may be of several videos, which its column
    ``image`` tells apart; frames of which its column ``error`` says that they could not be read are left out.

    Args:
        path: the file. If it has ``true_phase`` or ``phase``, all its labels are phases.
        phases: names that are phases in any case, of which the likeliest is called at a time.
        threshold: probability from which another label counts as called.
        video: whose rows are wanted of a bundle's table; None = all.
        shift: second of the video's first frame in a bundle's table.

    Raises:
        DataError: no such file, not such a table, or none of the video; of masks, where to get them.
    """
    if not path.is_file():
        raise DataError(f"{path}: there is no such table of predictions; give the CSV of this video")
    table = read_table(path)
    columns = [name for name in table if name.startswith(PROBABILITY)]
    if not columns and {*SCORES} <= {*table}:
        raise DataError(_no_masks(path, video))
    if SECOND not in table or not columns or table.empty:
        has = ", ".join(table) or "nothing"
        raise DataError(
            f"{path}: needs the column '{SECOND}' and probabilities, such as {PROBABILITY}grasper; it has {has}"
        )
    table = _rows_of(path, table, video)
    values = table[[SECOND, *columns]].apply(pd.to_numeric, errors="coerce").to_numpy(float)
    seconds, chances = values[:, 0] - (shift if IMAGE in table else 0.0), values[:, 1:]
    wrong = ~(np.isfinite(seconds) & ((chances >= 0) & (chances <= 1)).all(axis=1))
    wrong[1:] |= np.diff(seconds) <= 0
    if wrong.any():
        line = int(table.index[np.argmax(wrong)]) + 2
        raise DataError(f"{path}: line {line}: write seconds in order and probabilities from 0 to 1 there")
    names = tuple(name.removeprefix(PROBABILITY) for name in columns)
    called, phase = chances >= threshold, np.isin(names, names if {PHASE, TRUTH + PHASE} & {*table} else phases)
    if phase.any():
        called[:, phase] = chances[:, phase] == chances[:, phase].max(axis=1, keepdims=True)
    return held(seconds, called, names, bridge=False)


def _no_masks(path: Path, video: Path | None) -> str:
    """Say how to get the called masks of a run, which scored them and kept none."""
    return (
        f"{path}: has the scores of masks, and no test keeps the masks themselves. Instead of it give --called "
        f"OUT/masks/{video.name if video else 'VIDEO'}, which the inference of the run's exported bundle writes: "
        "fedmed export RUN BUNDLE --site SITE; (cd BUNDLE && python -m monai.bundle run --config_file "
        f"configs/inference.yaml --bundle_root . --dataset_dir {video or 'VIDEO'} --output_dir OUT)"
    )


def _rows_of(path: Path, table: pd.DataFrame, video: Path | None) -> pd.DataFrame:
    """Rows of a video whose frames could be read; all, where the table does not say whose they are.

    A video is known by its file's name, pictures by their folder's, or by none if the table is of that folder alone.
    """
    if IMAGE not in table:
        return table
    images, rows = [PurePosixPath(name.removeprefix("'")) for name in table[IMAGE]], table
    if video and not (video.is_dir() and all(image.parent.name == "" for image in images)):
        rows = table[[video.name in (image.name, image.parent.name) for image in images]]
        if rows.empty:
            raise DataError(f"{path}: has no frame of {video.name}; its first row is of {images[0]}")
    return rows[rows[ERROR] == ""] if ERROR in rows else rows
