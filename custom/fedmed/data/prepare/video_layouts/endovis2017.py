"""EndoVis 2017, robotic instruments (Allan et al. 2019): frames and masks of parts, one folder an instrument."""

from pathlib import Path

from fedmed.data.prepare.video_layouts.layout import Layout, Recording, numbered_frames

RATE = 2  # frames a second


class EndoVis2017(Layout):
    """``instrument_dataset_1/left_frames/frame000.png`` with ``ground_truth/<instrument>/frame000.png``.

    Values of a mask: 10 shaft, 20 wrist, 30 jaws. ``Other_labels`` (what has no parts, such as probes) is left out.
    """

    about = "EndoVis 2017: left_frames and ground_truth, values 10, 20, 30; two frames a second"
    mask_values = {0: 0, 10: 1, 20: 2, 30: 3}

    def fits(self, folder: Path) -> bool:
        return any(folder.glob("*/left_frames")) and any(folder.glob("*/ground_truth"))

    def find(self, folder: Path) -> list[Recording]:
        return [self._recording(place.parent) for place in sorted(folder.glob("*/left_frames"))]

    def _recording(self, folder: Path) -> Recording:
        frames = numbered_frames(folder / "left_frames", RATE)
        kinds = [kind for kind in sorted((folder / "ground_truth").glob("*")) if not kind.name.startswith("Other")]
        found = [(second, tuple(kind / name for kind in kinds if (kind / name).is_file())) for name, second in frames]
        masks = tuple((second, files) for second, files in found if files)
        return Recording(folder.name, folder / "left_frames", frames=frames, masks=masks)
