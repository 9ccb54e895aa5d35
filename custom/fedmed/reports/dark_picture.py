"""What pictures on black share: their ground, letters that can be read on any image, and how they are written."""

from io import BytesIO
from pathlib import Path

from matplotlib import patheffects
from matplotlib.figure import Figure
from PIL import Image

from fedmed.errors import FedMedError
from fedmed.files import write_atomically

NIGHT = "#08090b"
EDGE = [patheffects.withStroke(linewidth=2.5, foreground=NIGHT)]  # can be read on black and on white


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
