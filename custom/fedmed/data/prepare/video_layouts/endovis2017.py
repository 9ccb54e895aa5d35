"""EndoVis 2017, robotic instruments (Allan et al. 2019): frames and masks of parts, one folder an instrument."""

from collections.abc import Mapping
from pathlib import Path

from fedmed.data.prepare.video_layouts.layout import Layout, Recording, numbered_frames

RATE = 2  # frames a second
TESTS = "PartsSegmentation"  # of the test set: all instruments in one folder, and other values
TEST_VALUES = {0: 0, 30: 1, 100: 2, 255: 3, 200: 0}  # background, shaft, wrist, jaws, probe


class EndoVis2017(Layout):
    """``instrument_dataset_1/left_frames/frame000.png`` with ``ground_truth/<instrument>/frame000.png``.

    Values of a mask: 10 shaft, 20 wrist, 30 jaws. ``Other_labels`` (what has no parts, such as probes) is left out. The
    test set has ``PartsSegmentation/frame225.png`` in ``ground_truth`` or in its place, where 30 is the shaft, 100 the
    wrist and 255 the jaws. Its frames have black borders, 320 columns of 1920 on each side: train with ``crop: true``.
    """

    about = "EndoVis 2017: left_frames and ground_truth or PartsSegmentation; two frames a second, black borders"
    note = "frames of EndoVis 2017 have black borders; a study with 'crop: true' for all roles cuts them off"
    mask_values = {0: 0, 10: 1, 20: 2, 30: 3}

    def fits(self, folder: Path) -> bool:
        return any(folder.glob("*/left_frames")) and any(
            any(folder.glob(f"*/{name}")) for name in ("ground_truth", TESTS)
        )

    def find(self, folder: Path) -> list[Recording]:
        return [self._recording(place.parent) for place in sorted(folder.glob("*/left_frames"))]

    def _recording(self, folder: Path) -> Recording:
        frames = numbered_frames(folder / "left_frames", RATE)
        tests = [place for place in (folder / "ground_truth" / TESTS, folder / TESTS) if place.is_dir()]
        folders = sorted((folder / "ground_truth").glob("*"))
        kinds = tests[:1] or [kind for kind in folders if not kind.name.startswith("Other")]
        labelled = [
            (second, tuple(kind / name for kind in kinds if (kind / name).is_file())) for name, second in frames
        ]
        masks = tuple((second, files) for second, files in labelled if files)
        return Recording(folder.name, folder / "left_frames", frames=frames, masks=masks)

    def values_of(self, file: Path) -> Mapping[int, int]:
        return TEST_VALUES if file.parent.name == TESTS else self.mask_values
