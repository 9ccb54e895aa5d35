"""A video with what is known of it and what a model says of it, read to be shown."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedmed.data.datalist import case_names, list_entries, read_datalist
from fedmed.data.entry_forms import UNLABELED, listed_file
from fedmed.data.video.frame_masks import FrameMasks
from fedmed.data.video.label_table import SECOND, LabelTable, read_label_table, unknown
from fedmed.data.video.source import Damage, VideoSource, open_video
from fedmed.data.video.stored_video import StoredVideo
from fedmed.engines.presence_recorder import PROBABILITY, TRUTH, frames_file
from fedmed.errors import DataError, JobError
from fedmed.reports.ribbon import Ribbon, held
from fedmed.reports.run import JOB_FOLDER
from fedmed.reports.run_files import read_table
from fedmed.reports.video_stills import ANY, upright
from fedmed.settings.site import SiteConfig

LISTS = ("testing", "training", "validation", UNLABELED)


@dataclass(frozen=True)
class ViewedVideo:
    """A video whose files are there; all times count from its first frame.

    Attributes:
        path: file, or folder of frames.
        source: what reads it.
        width: of its frames, in pixels.
        truth, predicted: what its table says, and what a model called.
        masks: second -> file.
        doubt: why table and video do not belong together, as training would say it; empty where they do.
    """

    path: Path
    source: VideoSource
    width: int
    truth: Ribbon | None
    predicted: Ribbon | None
    masks: Mapping[float, Path]
    doubt: str

    @property
    def ribbons(self) -> list[Ribbon]:
        """Truth and prediction, as far as they are known."""
        return [one for one in (self.truth, self.predicted) if one is not None]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the rows of labels: those of the table, and then what only the prediction has."""
        return tuple(dict.fromkeys(name for ribbon in self.ribbons for name in ribbon.names))


@dataclass(frozen=True)
class Listed:
    """A video of a site: its place in a list, counted from 0, its name, and the files that its entry names."""

    key: str
    place: int
    name: str
    files: Mapping[str, Path]


def read_viewed(
    video: Path, labels: Path | None, masks: Path | None, predictions: Path | None, threshold: float
) -> ViewedVideo:
    """Read all but the frames.

    Args:
        video: file, or folder of frames.
        labels: table by time.
        masks: folder of PNG files.
        predictions: table by time of probabilities.
        threshold: probability from which a label counts as called; of phases the likeliest is.

    Raises:
        DataError: a file is missing, damaged or not what it should be; it says which, and what to do.
    """
    source = open_video(video)
    first = next(iter(source.frames(Damage(video))), None)
    if first is None:
        raise DataError(f"{video}: none of its frames can be decoded; copy it again")
    shift = first.second if video.is_dir() else 0.0  # tables and masks of a folder count in its own time
    table = read_label_table(labels, None, None) if labels else None
    files = FrameMasks(masks, ANY).files() if masks else []
    called = read_predictions(predictions, table.phase_names if table else (), threshold) if predictions else None
    doubt = _doubt(table, video, source, first.second) if table else ""
    truth = _truth(table, shift) if table else None
    own = {second - shift: file for second, file in files}
    return ViewedVideo(video, source, upright(first)[1], truth, called, own, doubt)


def _truth(table: LabelTable, shift: float) -> Ribbon:
    phases = np.empty((len(table.seconds), 0)) if table.phases is None else np.eye(len(table.phase_names))[table.phases]
    tools = np.empty((len(table.seconds), 0)) if table.tools is None else table.tools
    present = np.concatenate([phases, tools], axis=1) > 0
    names = (*table.phase_names, *table.tool_names)
    return held(table.seconds - shift, present, names, bridge=True)


def _doubt(table: LabelTable, video: Path, source: VideoSource, first: float) -> str:
    facts: dict[str, Any] = {"frames": 0, "rate": None, "times": [], "seconds": source.seconds(), "first_second": first}
    try:
        table.rows_of(StoredVideo(video, Path(), facts))
    except DataError as error:
        return str(error)
    return ""


def read_predictions(path: Path, phases: tuple[str, ...] = (), threshold: float = 0.5) -> Ribbon:
    """Read a table with ``second`` and a column of probabilities for each label, called ``p_<label>`` or ``<label>``.

    Columns ``true_<label>`` are left aside: this is what a site writes when it tests a model.

    Raises:
        DataError: no such file, or not such a table.
    """
    if not path.is_file():
        raise DataError(f"{path}: there is no such table of predictions; give the CSV of this video")
    table = read_table(path)
    columns = [name for name in table if name != SECOND and not name.startswith(TRUTH)]
    if SECOND not in table or not columns or table.empty:
        raise DataError(
            f"{path}: needs a column '{SECOND}' and one of probabilities for each label, such as {PROBABILITY}grasper; "
            f"it has {', '.join(table) or 'nothing'}"
        )
    values = table[[SECOND, *columns]].apply(pd.to_numeric, errors="coerce").to_numpy(float)
    seconds, chances = values[:, 0], values[:, 1:]
    wrong = ~(np.isfinite(seconds) & ((chances >= 0) & (chances <= 1)).all(axis=1))
    wrong[1:] |= np.diff(seconds) <= 0
    if wrong.any():
        raise DataError(
            f"{path}: line {int(np.argmax(wrong)) + 2}: write seconds in order and probabilities from 0 to 1 there"
        )
    names = tuple(name.removeprefix(PROBABILITY) for name in columns)
    called, phase = chances >= threshold, np.isin(names, phases)
    if phase.any():  # one at a time
        called[:, phase] = chances[:, phase] == chances[:, phase].max(axis=1, keepdims=True)
    return held(seconds, called, names, bridge=False)


def find_listed(site: SiteConfig, video: str, key: str | None = None) -> Listed:
    """The video of a site that a person means.

    Args:
        site: whose datalist is looked at.
        video: its name or its path, or its place in the list ``key``, counted from 0 as in a check's messages.
        key: one of the datalist's lists; None is ``testing``, or else the first that there is.

    Raises:
        DataError: there is no such video, or one of its files is missing.
    """
    content = read_datalist(site.datalist)
    key = key or next((one for one in LISTS if content.get(one)), LISTS[0])
    keys = [key] if video.isdigit() else [key, *(one for one in LISTS if one != key)]
    listed = [(one, *item) for one in keys for item in enumerate(list_entries(site.datalist, one, video.isdigit()))]
    known = [(one, place, entry) for one, place, entry in listed if isinstance(entry, Mapping) and "video" in entry]
    for one, place, entry in known:
        (name,), path = case_names([entry]), str(entry["video"])
        same = video in (name, path, Path(path).name) or Path(video).resolve() == (site.data_root / path).resolve()
        if place == int(video) if video.isdigit() else same:
            parts = ["video", *(part for part in ("labels", "masks") if part in entry and one != UNLABELED)]
            where = f"{site.datalist}: entry {place} of '{one}'"
            return Listed(one, place, name, {part: listed_file(site.data_root, where, part, entry) for part in parts})
    names = [str(place) if video.isdigit() else case_names([entry])[0] for _, place, entry in known]
    has = f"{unknown('video', video, names)}; a place is one in '{key}'" if names else f"'{key}' names no video"
    raise DataError(f"{site.datalist}: {has}")


def find_predictions(run: Path, site: str, listed: Listed) -> Path:
    """The table that a site wrote for a video when it tested a run's model.

    Args:
        run: the workspace of a run, or the site's own folder of its job.
        site: its name.
        listed: the video.

    Raises:
        JobError: no test of videos is there, or none of this one.
    """
    places = (run / site / JOB_FOLDER, run / JOB_FOLDER, run / "fedmed", run)
    folder = next((place / "evaluation" for place in places if (place / "evaluation" / "frames").is_dir()), None)
    if folder is None:
        looked = ", ".join(str(place / "evaluation") for place in places)
        raise JobError(f"no test of videos of {site} at {run}; looked at {looked}. Give a run that ended, where it ran")
    file = frames_file(folder, listed.place, listed.name)
    if listed.key != "testing" or not file.is_file():
        tested = ", ".join(sorted(path.name for path in file.parent.iterdir()))
        raise JobError(
            f"the run at {run} did not test {listed.name} of '{listed.key}'; a run tests the list 'testing': {tested}"
        )
    return file
