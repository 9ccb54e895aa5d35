"""Images with the heat-map of the class that the model called."""

import base64
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from fedmed.reports.classified import Classified, read_classified
from fedmed.reports.palette import HEAT, INK, MUTED, PAPER
from fedmed.reports.run import Site

WIDE = 3.4  # inches of an image and its overlay
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
    rows, columns = pictures[0].image.shape
    tall, bars = WIDE * rows / (2 * columns), 0.1 + 0.22 * len(pictures[0].probabilities)
    size = {"figsize": (WIDE * len(pictures), tall + bars + 0.75), "layout": "constrained"}
    drawing = Figure(**size)
    drawing.get_layout_engine().set(wspace=0.06)
    drawing.suptitle(site.name, x=0.004, ha="left", fontweight="bold", fontsize=11, color=INK)
    grid = drawing.subplots(2, len(pictures), height_ratios=(tall, bars), squeeze=False)
    for (above, below), picture in zip(grid.T, pictures, strict=True):
        above.imshow(np.hstack([np.repeat(picture.image[..., None], 3, axis=2), overlay(picture)]))
        above.axvline(picture.image.shape[1] - 0.5, color=PAPER, linewidth=2)
        above.set_title(f"{picture.kind}: {'right' if picture.right else f'called {picture.predicted}'}", fontsize=9.5)
        above.set_axis_off()
        _bars(below, picture)
    return drawing


def _bars(axes: Axes, picture: Classified) -> None:
    """Names left of bars, all within the width of the pictures."""
    ranked = sorted(picture.probabilities.items(), key=lambda pair: -pair[1])
    for place, (name, value) in enumerate(ranked):
        true = name == picture.label
        axes.barh(place, value, height=0.55, color=INK if true else MUTED, alpha=1.0 if true else 0.55, linewidth=0)
        weight = {"va": "center", "fontsize": 8.5, "fontweight": "bold" if true else "normal"}
        axes.text(-1.0, place, f"{name}, truth" if true else name, color=INK, **weight)
        axes.text(1.3, place, f"{value:.2f}", color=INK, ha="right", **weight)
    axes.set_ylim(len(ranked) - 0.4, -0.6)
    axes.set_xlim(-1.0, 1.3)
    axes.set_axis_off()
