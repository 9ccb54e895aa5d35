"""Images with the heat-map of the class that the model called."""

import base64
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from fedmed.reports.classified import Classified, read_classified
from fedmed.reports.palette import HEAT, INK, MUTED
from fedmed.reports.run import Site

OPAQUE = 0.72  # of the strongest heat; the image must stay visible below it


def ramp(heat: np.ndarray) -> np.ndarray:
    """Colours of heat in 0..1: (…) -> (…, 3) float in 0..1."""
    stops = np.array([[int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)] for colour in HEAT])
    places = np.linspace(0, 1, len(stops))
    return np.stack([np.interp(heat, places, stops[:, channel]) for channel in range(3)], axis=-1)


def overlay(picture: Classified) -> np.ndarray:
    """The image below its heat: (H, W, 3) float in 0..1. Where nothing is warm, the image is as it was."""
    opacity = OPAQUE * np.sqrt(picture.heat)[..., None]  # root: half the heat must not look like none
    return picture.image[..., None] * (1 - opacity) + ramp(picture.heat) * opacity


def css_gradient() -> str:
    """The colours for a legend."""
    return f"linear-gradient(90deg, {', '.join(HEAT)})"


def entry(picture: Classified) -> dict[str, Any]:
    """A picture, ready for the page."""
    ranked = sorted(picture.probabilities.items(), key=lambda pair: -pair[1])
    return {
        "kind": picture.kind,
        "case": picture.case,
        "image": _encoded(picture.image),
        "overlay": _encoded(overlay(picture)),
        "label": picture.label,
        "predicted": picture.predicted,
        "right": picture.right,
        "bars": [{"name": name, "value": value, "true": name == picture.label} for name, value in ranked],
    }


def _encoded(image: np.ndarray) -> str:
    buffer, array = BytesIO(), (image * 255).round().astype(np.uint8)
    Image.fromarray(array).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def figure(site: Site) -> Figure | None:
    """The pictures of a site side by side: image, overlay, and probabilities below; None where there are none."""
    pictures = list(site.pictures(read_classified))
    if not pictures:
        return None
    drawing = Figure(figsize=(3.3 * len(pictures), 5.0), layout="constrained")
    drawing.suptitle(site.name, x=0.004, ha="left", fontweight="bold", fontsize=11, color=INK)
    grid = drawing.add_gridspec(2, 2 * len(pictures), height_ratios=(2.6, 1))
    for place, picture in enumerate(pictures):
        left, right = (drawing.add_subplot(grid[0, 2 * place + side]) for side in (0, 1))
        left.imshow(picture.image, cmap="gray", vmin=0, vmax=1)
        right.imshow(overlay(picture))
        left.set_title(f"{picture.kind}: {'right' if picture.right else f'called {picture.predicted}'}", fontsize=9.5)
        for axes in (left, right):
            axes.set_axis_off()
        _bars(drawing.add_subplot(grid[1, 2 * place : 2 * place + 2]), picture)
    return drawing


def _bars(axes: Axes, picture: Classified) -> None:
    ranked = sorted(picture.probabilities.items(), key=lambda pair: -pair[1])
    for place, (name, value) in enumerate(ranked):
        axes.barh(place, value, height=0.62, color=INK if name == picture.label else MUTED, linewidth=0)
        axes.annotate(f"{value:.2f}", (value, place), (4, 0), textcoords="offset points", va="center", fontsize=8.5)
    names = [f"{name} (truth)" if name == picture.label else name for name, _ in ranked]
    axes.set_yticks(range(len(ranked)), names, color=INK, fontsize=8.5)
    axes.set_ylim(len(ranked) - 0.4, -0.6)
    axes.set_xlim(0, 1.16)
    axes.set_xticks([])
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
