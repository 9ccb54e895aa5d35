"""A video that is prepared: frames in a memory map, and what is known of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class StoredVideo:
    """A prepared video.

    Attributes:
        source: the file or folder that it was made of.
        path: the memory map.
        facts: see :meth:`fedmed.data.video.extraction.Extraction.facts`.
    """

    source: Path
    path: Path
    facts: Mapping[str, Any]

    @cached_property
    def frames(self) -> NDArray[np.uint8]:
        """(T, H, W, 3) uint8 RGB, read from disk where it is used; dropped frames are black."""
        shape = (self.facts["frames"], self.facts["height"], self.facts["width"], 3)
        return np.memmap(self.path, np.uint8, "r", shape=shape)

    @cached_property
    def kept(self) -> NDArray[np.bool_]:
        """(T,) which frames are not dropped."""
        kept = np.ones(self.facts["frames"], bool)
        kept[self.facts["dropped"]] = False
        return kept

    @cached_property
    def times(self) -> NDArray[np.float64]:
        """(T,) seconds from the first frame."""
        rate = self.facts["rate"]
        return np.asarray(self.facts["times"]) if rate is None else np.arange(self.facts["frames"]) / rate

    @property
    def start(self) -> float:
        """The first frame's own time, in seconds: of a folder of frames that of its table or names, of a file 0."""
        return float(self.facts["first_second"]) if self.source.is_dir() else 0.0

    def __len__(self) -> int:
        return int(self.facts["frames"])

    def __getstate__(self) -> dict[str, Any]:
        # A pickled memory map would be a copy of all frames.
        return {name: value for name, value in self.__dict__.items() if name != "frames"}
