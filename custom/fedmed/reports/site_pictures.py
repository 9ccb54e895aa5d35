"""Pictures of a site's own cases, and of how two models see its frames."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from fedmed.errors import DataError, FedMedError, JobError
from fedmed.reports import plots
from fedmed.reports.label_charts import legend_height, phase_colours, phase_legend
from fedmed.reports.palette import INK, LIGHT, MUTED
from fedmed.reports.plots import WIDTH
from fedmed.reports.run import JOB_FOLDER
from fedmed.reports.run_contents import Site
from fedmed.reports.run_files import read_arrays
from fedmed.reports.timelines import read_phases, ribbons
from fedmed.training.kept_features import FEATURES_FILE

EVALUATION = "evaluation"
MODELS = {"evaluation_first": "before training", "evaluation": "selected model"}  # folders, oldest first
KEYS = ("points", "explained", "phases", "videos", "classes")
HIGH = 2.75  # inches of a panel
STRIP = 0.05  # of a matrix: the band with the phases beside it


def tested_site(folder: Path, name: str | None, title: str) -> Site:
    """A site that tested a model.

    Args:
        folder: the site's folder of a job, or its ``fedmed``, or the ``evaluation`` in it; with a name, of a run.
        name: of a site of a simulation.
        title: what pictures call it.

    Raises:
        JobError: no test is there.
    """
    inside = folder.parent if folder.name == EVALUATION else folder
    places = [folder / name / JOB_FOLDER] if name else [inside, inside / "fedmed", inside / JOB_FOLDER]
    if tested := next((place for place in places if (place / EVALUATION).is_dir()), None):
        return Site(title, "", folder=tested)
    looked = ", ".join(str(place / EVALUATION) for place in places)
    raise JobError(f"no test of a model at {folder}; looked for {looked}. Give the site's folder of a job that ended")


def phase_pictures(site: Site) -> Mapping[str, Figure]:
    """``ribbons`` and ``features``, of what is there.

    Raises:
        JobError: neither is there.
        DataError: a file is damaged.
    """
    timelines, features = list(site.pictures(read_phases)), feature_pictures(site)
    figures = {"ribbons": ribbons(timelines, site.name)} if timelines else {}
    figures |= {"features": feature_figure(features, site.name)} if features else {}
    if not figures:
        raise JobError(
            f"{site.folder} has a test and nothing to draw of it, neither best.npz nor features.npz; give the site's "
            "folder of a job for phases of operations whose test ended"
        )
    return figures


def write_pictures(draw: Callable[[], Mapping[str, Figure]], out: Path, dots: int) -> list[Path]:
    """Write each picture as NAME.png into a folder, which is made; return the files.

    Raises:
        FedMedError: the folder cannot be written.
    """
    with plots.style():
        figures = {out / f"{name}.png": figure for name, figure in draw().items()}
        try:
            out.mkdir(parents=True, exist_ok=True)
            for path, figure in figures.items():
                plots.png(figure, path, dots)
        except OSError as error:
            raise FedMedError(f"cannot write pictures to {out}: {error}; choose another folder with --out") from error
    return list(figures)


@dataclass(frozen=True)
class FeaturePicture:
    """n frames of a site's test videos, as one model sees them.

    Attributes:
        points: (n, 2), principal components of the features.
        explained: (2,) share of the variance along each.
        phases: (n,) true phases, places in ``classes``.
        videos: (n,) places in the list of videos, from 0.
        alignment: (n_1, n_2) cosines of frames of the first two videos; None of a single video.
    """

    points: NDArray[np.float64]
    explained: NDArray[np.float64]
    phases: NDArray[np.int64]
    videos: NDArray[np.int64]
    classes: tuple[str, ...]
    alignment: NDArray[np.float64] | None

    @property
    def aligned(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Phases (n_1,) and (n_2,) of the frames of the first two videos."""
        return self.phases[self.videos == 0], self.phases[self.videos == 1]

    @property
    def same_phase(self) -> float:
        """Of how many frames of both videos the most similar frame of the other one is of the same phase, 0…1."""
        assert self.alignment is not None
        first, second = self.aligned
        there = second[self.alignment.argmax(axis=1)] == first
        back = first[self.alignment.argmax(axis=0)] == second
        return float(np.concatenate([there, back]).mean())


def read_features(path: Path) -> FeaturePicture:
    """Read what a recorder kept; DataError for a damaged file."""
    points, explained, phases, videos, classes, cosines = read_arrays(path, KEYS, also=("alignment",))
    alignment = cosines.astype(float) if cosines.ndim == 2 else None  # of a single video there is none
    names = tuple(map(str, classes))
    picture = FeaturePicture(points, explained, phases.astype(int), videos.astype(int), names, alignment)
    sizes = tuple(int((videos == place).sum()) for place in (0, 1))
    fits = points.shape == (len(phases), 2) and videos.shape == phases.shape and explained.shape == (2,)
    known = picture.phases.min(initial=0) >= 0 and picture.phases.max(initial=0) < len(classes)
    if not (fits and known) or (alignment is not None and alignment.shape != sizes):
        raise DataError(f"{path}: points, phases and videos do not fit together; evaluate the site again")
    return picture


def feature_pictures(site: Site) -> dict[str, FeaturePicture]:
    """Return name of the model -> picture, of what is here; nothing without the selected model's."""
    if site.folder is None:
        return {}
    paths = {model: site.folder / folder / f"{FEATURES_FILE}.npz" for folder, model in MODELS.items()}
    pictures = {model: read_features(path) for model, path in paths.items() if path.is_file()}
    return pictures if MODELS["evaluation"] in pictures else {}


def feature_figure(pictures: Mapping[str, FeaturePicture], site: str) -> Figure:
    """For each model a panel with a dot a frame; beside them, of two videos, how alike each two frames are."""
    classes = next(iter(pictures.values())).classes
    aligned = {model: one for model, one in pictures.items() if one.alignment is not None}
    widths = [1.15] * len(pictures) + [1.0] * len(aligned)
    figure = Figure(figsize=(WIDTH, HIGH + 0.45 + legend_height(classes)))
    figure.set_layout_engine("constrained", w_pad=0.08)
    figure.suptitle(site, x=0.004, ha="left", fontweight="bold", fontsize=11, color=INK)
    panels = figure.subplots(1, len(widths), width_ratios=widths, squeeze=False)[0]
    for axes, (model, one) in zip(panels, pictures.items(), strict=False):
        _scatter(axes, one, model)
    for axes, (model, one) in zip(panels[len(pictures) :], aligned.items(), strict=True):
        _alignment(axes, one, model)
    phase_legend(figure, classes)
    return figure


def _scatter(axes: Axes, picture: FeaturePicture, model: str) -> None:
    axes.set_title(f"Frames, {model}\n", fontsize=9.5)
    for place, colour in enumerate(phase_colours(picture.classes).values()):
        x, y = picture.points[picture.phases == place].T
        axes.scatter(x, y, s=15, color=colour, alpha=0.75, linewidths=0)
    shares = [f"{share:.0%}" for share in picture.explained]
    _bare(axes, f"first component, {shares[0]} of variance", f"second, {shares[1]}")


def _alignment(axes: Axes, picture: FeaturePicture, model: str) -> None:
    cosines, (first, second) = picture.alignment, picture.aligned
    assert cosines is not None
    low, high = float(cosines.min()), float(cosines.max())
    strength = (cosines - low) / max(high - low, 1e-9)
    image = np.concatenate([np.broadcast_to(to_rgb(LIGHT[0]), (*cosines.shape, 3)), 0.75 * strength[..., None]], axis=2)
    axes.imshow(image, interpolation="nearest", aspect="auto", extent=(0, len(second), len(first), 0))
    axes.plot(cosines.argmax(axis=1) + 0.5, np.arange(len(first)) + 0.5, ".", color=LIGHT[1], markersize=3)
    colours, across, along = list(phase_colours(picture.classes).values()), STRIP * len(second), STRIP * len(first)
    for start, end, phase in _stretches(first):
        axes.add_patch(Rectangle((-1.3 * across, start), across, end - start, facecolor=colours[phase], linewidth=0))
    for start, end, phase in _stretches(second):
        axes.add_patch(Rectangle((start, -1.3 * along), end - start, along, facecolor=colours[phase], linewidth=0))
    axes.set(xlim=(-1.3 * across, len(second)), ylim=(len(first), -1.3 * along))
    axes.set_title(f"Two videos, {model}:\n{picture.same_phase:.0%} meet their phase", fontsize=9.5)
    _bare(axes, f"second video; cosine {low:.2f} to {high:.2f}", "first video, from its start down")


def _stretches(phases: NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """(start, end, phase) of frames that follow one another and are of one phase."""
    edges = [0, *(np.flatnonzero(np.diff(phases)) + 1).tolist(), len(phases)]
    for start, end in pairwise(edges):
        yield start, end, int(phases[start])


def _bare(axes: Axes, below: str, left: str) -> None:
    """Two names and neither ticks nor lines."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(below, color=MUTED, fontsize=8.5)
    axes.set_ylabel(left, color=MUTED, fontsize=8.5)
