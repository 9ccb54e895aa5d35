"""Single frames of videos with the masks that are true and called, for a page and for a PNG."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from fedmed.errors import DataError
from fedmed.reports.dark_picture import EDGE
from fedmed.reports.palette import INK, MARKS
from fedmed.reports.plots import WIDTH
from fedmed.reports.run_files import read_arrays
from fedmed.reports.slice_picture import contours

KEYS = ("image", "truth", "prediction", "classes", "dice", "case")
COVER = 0.35  # opacity of a mask over its frame


@dataclass(frozen=True)
class FramePicture:
    """A frame: image (H, W, 3) float in 0…1, masks (H, W) of 0, 1, …, and the names of what 1, 2, … stand for."""

    kind: str
    case: str
    dice: float
    image: NDArray[np.float64]
    truth: NDArray[np.uint8]
    prediction: NDArray[np.uint8]
    classes: tuple[str, ...]


def read_frame(path: Path, kind: str) -> FramePicture:
    """Read ``best.npz`` and the like; DataError for a damaged file or masks of another shape."""
    image, truth, prediction, classes, dice, case = read_arrays(path, KEYS)
    if image.ndim != 3 or truth.shape != image.shape[:2] or prediction.shape != truth.shape:
        raise DataError(f"{path}: image, truth and prediction are not of one size; evaluate the site again")
    names = tuple(map(str, classes))
    return FramePicture(kind, str(case), float(dice), image[..., :3] / 255.0, truth, prediction, names)


def frames_with_masks(pictures: Sequence[FramePicture], site: str, colours: Mapping[str, str]) -> Figure:
    """Frames side by side, above with their true masks, below with those that the model called.

    Args:
        pictures, site: at least one, and whose they are.
        colours: of classes that have one of their own.
    """
    known = tuple(dict.fromkeys(name for one in pictures for name in one.classes))
    inks = {name: colours.get(name) or MARKS[place % len(MARKS)] for place, name in enumerate(known)}
    wide = WIDTH / 3
    tall = max(one.image.shape[0] / one.image.shape[1] for one in pictures) * wide
    figure = Figure(figsize=(wide * len(pictures), 2 * tall + 1.0), layout="constrained")
    figure.suptitle(site, x=0.004, ha="left", fontweight="bold", fontsize=11, color=INK)
    above, below = figure.subplots(2, len(pictures), squeeze=False)
    for one, top, bottom in zip(pictures, above, below, strict=True):
        _overlay(top, one, one.truth, inks)
        _overlay(bottom, one, one.prediction, inks)
        top.set_title(f"{one.kind}: {one.case}", fontsize=9.5)
        bottom.set_title(f"called, Dice {one.dice:.2f}", fontsize=9.5)
    patches = [Patch(color=ink, linewidth=0, label=name) for name, ink in inks.items()]
    figure.legend(handles=patches, loc="outside lower left", ncols=6, frameon=False, fontsize=9)
    return figure


def _overlay(axes: Axes, picture: FramePicture, mask: NDArray[np.uint8], inks: Mapping[str, str]) -> None:
    """A frame, its mask as a thin cover with outlines."""
    shown, (rows, columns) = picture.image.copy(), mask.shape
    for place, name in enumerate(picture.classes, start=1):
        shown[mask == place] = (1 - COVER) * shown[mask == place] + COVER * np.array(to_rgb(inks[name]))
    axes.imshow(shown, extent=(0, columns, rows, 0), interpolation="nearest")
    for place, name in enumerate(picture.classes, start=1):
        for x, y in (line.T for line in contours(mask == place, (1.0, 1.0))):
            axes.plot(x, y, color=inks[name], linewidth=1.2, path_effects=EDGE)
    axes.set_axis_off()
