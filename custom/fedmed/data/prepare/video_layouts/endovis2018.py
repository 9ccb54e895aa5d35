"""EndoVis 2018, robotic scenes (Allan et al. 2020): frames and masks in colours."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedmed.data.prepare.video_layouts.layout import Layout, Recording, numbered_frames
from fedmed.data.video.frame_masks import picture
from fedmed.errors import DataError

RATE = 2  # the data set states no times
PARTS = {(0, 255, 0): 1, (125, 255, 12): 2, (0, 255, 255): 3}
OTHERS = (  # tissue, kidney (2), thread, clamps, needle, suction, intestine, ultrasound probe
    *((0, 0, 0), (255, 55, 0), (24, 55, 125), (187, 155, 25), (128, 155, 25), (0, 255, 125)),
    *((255, 255, 125), (123, 15, 175), (124, 155, 5), (12, 255, 141)),
)
COLOURS = {**PARTS, **dict.fromkeys(OTHERS, 0)}


class EndoVis2018(Layout):
    """``seq_1/left_frames/frame000.png`` with ``seq_1/labels/frame000.png``, at any depth.

    Shaft, wrist and claspers keep their places; everything else, tissue and further instruments, becomes background.
    """

    about = "EndoVis 2018: left_frames and labels in colours; parts of instruments, the rest is background"

    def fits(self, folder: Path) -> bool:
        return any((place.parent / "labels").is_dir() for place in folder.rglob("left_frames"))

    def find(self, folder: Path) -> list[Recording]:
        return [self._recording(folder, place) for place in sorted(folder.rglob("left_frames"))]

    def _recording(self, folder: Path, video: Path) -> Recording:
        frames, labels = numbered_frames(video, RATE), video.parent / "labels"
        masks = tuple((second, (labels / name,)) for name, second in frames if (labels / name).is_file())
        return Recording(video.parent.relative_to(folder).as_posix(), video, frames=frames, masks=masks)

    def mask(self, files: Sequence[Path]) -> NDArray[np.uint8]:
        stored = picture(files[0])
        if stored.ndim != 3:
            raise DataError(f"{files[0]}: the mask has shape {stored.shape}; this layout has masks in colours")
        colours, places = np.unique(stored[..., :3].reshape(-1, 3), axis=0, return_inverse=True)
        if unknown := [colour for colour in map(tuple, colours.tolist()) if colour not in COLOURS]:
            raise DataError(f"{files[0]}: the mask has the colour {unknown[0]}, which is not one of the data set")
        values = np.array([COLOURS[tuple(colour)] for colour in colours.tolist()], np.uint8)
        return values[places.reshape(-1)].reshape(stored.shape[:2])
