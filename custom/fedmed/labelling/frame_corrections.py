"""Readers' masks of single frames of videos that are folders of pictures, such as the parts of instruments."""

import io
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fedmed.data.entry_forms import Video
from fedmed.data.video.folder_source import FrameFolder
from fedmed.data.video.frame_masks import picture
from fedmed.errors import DataError
from fedmed.labelling.correction_plan import NEW, REPLACED, TRAINING, CorrectionPlan, DrawnMask
from fedmed.labelling.frame_mask import PNG, read_frame_mask
from fedmed.labelling.work_folder import plain_name


class FrameCorrections(CorrectionPlan):
    """An entry names a video and a folder of masks, each called after the time of its frame.

    The folder that a video had stays as it is: its masks are copied into the corrected one.
    """

    form = Video(labels=False, masks=True)
    key = "masks"
    unit = "% of the frame"
    healthy = "a frame that shows nothing"

    def read(self, label: Path, image: Path) -> DrawnMask:
        values = read_frame_mask(label, image)
        return DrawnMask(values, image, 100 * float((values != 0).mean()), self._file(image))

    def is_same(self, former: str, mask: DrawnMask) -> bool:
        file = f"{former}/{mask.file}"
        try:
            earlier = picture(io.BytesIO(self.masks[file]) if file in self.masks else self.site.data_root / file)
        except DataError:
            return False
        return bool(np.array_equal(earlier, mask.values))

    def put(self, target: str, former: str | None, mask: DrawnMask) -> str:
        file = mask.file
        had = former and (f"{former}/{file}" in self.masks or (self.site.data_root / former / file).is_file())
        if former and former != target:
            for other in self._files(former):
                self.masks[f"{target}/{other.name}"] = other.read_bytes()
                self.foreground |= other.name != file and self.has_foreground(other)
        content = io.BytesIO()
        Image.fromarray(mask.values).save(content, "PNG")
        self.masks[f"{target}/{file}"] = content.getvalue()
        return REPLACED if had else NEW

    def name_of(self, case: str, entry: Mapping[str, Any]) -> str:
        return plain_name(Path(entry["video"]).name)

    def kept(self) -> Iterator[Path]:
        folders = (entry["masks"] for entry in self.lists[TRAINING])
        return (file for one in folders for file in self._files(one) if f"{one}/{file.name}" not in self.masks)

    def has_foreground(self, file: Path) -> bool:
        try:
            return bool(picture(file).any())
        except DataError:
            return False

    def place_of(self, image: Path) -> str:
        folder = Path(os.path.realpath(image.parent))  # a table may list frames of folders in the video's own
        return next((place for place in self._places.values() if folder.is_relative_to(place)), str(folder))

    def _files(self, masks: str) -> list[Path]:
        folder = self.site.data_root / masks  # is not there before the plan is carried out
        return sorted(path for path in folder.glob("*") if path.suffix.lower() == PNG)

    def _file(self, image: Path) -> str:
        """What the mask of a frame is called; DataError where nothing tells the frame's time."""
        video = self.place_of(image)
        name = os.path.relpath(os.path.join(os.path.realpath(image.parent), image.name), video)
        listed = FrameFolder(Path(video)).listed
        second = next((second for file, second in listed if os.path.normpath(file) == name), None)
        if second is None:
            raise DataError(f"{name} is not among the frames that {video} lists; correct its table")
        return f"{round(second * 1000):08d}.png"
