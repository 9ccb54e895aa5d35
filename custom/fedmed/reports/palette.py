"""Colours of a report: one a site, the same in every chart, on screen, in the dark and on paper.

Eight hues after Okabe and Ito (2008), told apart with every common colour vision; their yellow and black are replaced
because a line in them vanishes on white or on black. Beyond eight sites the colours repeat.
"""

import base64
from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib import patheffects
from matplotlib.figure import Figure
from PIL import Image

from fedmed.errors import FedMedError
from fedmed.files import write_atomically

LIGHT = ("#0072b2", "#d55e00", "#009e73", "#b5539b", "#b97f00", "#2f93c9", "#6b6b6b", "#7a5c3e")
DARK = ("#4aa8e0", "#f08a3c", "#2fc79a", "#dd8fc4", "#e6b23a", "#8fd0f5", "#a9adb3", "#c3a17c")
SKY, SLATE, SKY_DARK, SLATE_DARK = "#56b4e9", "#3a3f4a", "#bfe6ff", "#d9dde3"  # of phases alone, further apart
PHASES = (*LIGHT[:5], SKY, LIGHT[7], SLATE)  # of an operation, in their order; neighbours far apart
INK, MUTED, GRID, PAPER = "#1b1f24", "#667080", "#dfe3e8", "#fdfdfc"
INK_DARK, MUTED_DARK, GRID_DARK, PAPER_DARK = "#e9ebee", "#98a2b0", "#30363e", "#14171b"
TRUTH, PREDICTION = "#5ad1ff", "#ff9a2e"  # contours on grey CT, light and dark alike
TRUTH_INK, PREDICTION_INK = "#1587b8", "#c96a00"  # their names on white
MARKS = ("#33c3ff", "#ffd23f", "#7be07b", "#ff7fbf", "#c9a0ff", "#ff9a5a")  # masks over tissue, which is red and brown
HEAT = ("#7a1e5c", "#d55e00", "#ffdf5a")  # from cool to hot over a grey image: its lightness rises all the way
# Matplotlib draws in the light colours; in an inline SVG they become CSS variables, which the page sets per theme.
VARIABLES = {colour: f"--site-{index}" for index, colour in enumerate(LIGHT)} | {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    PAPER: "--paper",
    SKY: "--sky",
    SLATE: "--slate",
}
NIGHT = "#08090b"
EDGE = [patheffects.withStroke(linewidth=2.5, foreground=NIGHT)]  # can be read on black and on white


def site_colours(names: list[str]) -> dict[str, str]:
    """Site -> light colour, by its place in the report."""
    return {name: LIGHT[index % len(LIGHT)] for index, name in enumerate(names)}


def css(dark: bool) -> str:
    """The variables of one theme as CSS declarations."""
    light = (*LIGHT, INK, MUTED, GRID, PAPER, SKY, SLATE)
    theme = (*DARK, INK_DARK, MUTED_DARK, GRID_DARK, PAPER_DARK, SKY_DARK, SLATE_DARK) if dark else light
    return " ".join(f"{name}: {colour};" for name, colour in zip(VARIABLES.values(), theme, strict=True))


def png_address(image: np.ndarray) -> str:
    """An image (H, W) or (H, W, 3), float in 0..1, as the address of an 8-bit PNG within the page."""
    buffer = BytesIO()
    Image.fromarray((image * 255).round().astype(np.uint8)).save(buffer, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def save_picture(figure: Figure, path: Path, dots: int, colours: int | None = 256) -> None:
    """Write a figure as a PNG, by default of 256 colours, which is a third of the size and for grey images the same.

    Raises:
        FedMedError: the file cannot be written.
    """
    drawn = BytesIO()
    figure.savefig(drawn, format="png", dpi=dots, facecolor=NIGHT)
    picture = Image.open(drawn).convert("RGB")
    picture = picture.quantize(colours, dither=Image.Dither.NONE) if colours else picture
    try:
        write_atomically(path, lambda stream: picture.save(stream, "PNG", optimize=True))
    except OSError as error:
        raise FedMedError(f"{path} cannot be written ({error}); choose another --out") from error
