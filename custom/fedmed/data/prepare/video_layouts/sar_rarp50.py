"""SAR-RARP50 (Psychogyios et al. 2023): a video an operation, and masks of some of its frames."""

from pathlib import Path

from fedmed.data.prepare.video_layouts.layout import Layout, Recording, frames_a_second
from fedmed.errors import DataError

VIDEO = "video_left.avi"


class SarRarp50(Layout):
    """``video_01/video_left.avi`` with ``video_01/segmentation/000000060.png``, named by the number of the frame.

    Of its nine classes 1 is the jaws, 2 the wrist, 3 the shaft; needle, thread, suction tool, needle holder, clamps
    and catheter become background.
    """

    about = "SAR-RARP50: video_left.avi and segmentation/; parts of instruments, the rest is background"
    mask_values = {0: 0, 1: 3, 2: 2, 3: 1} | dict.fromkeys(range(4, 10), 0)

    def fits(self, folder: Path) -> bool:
        return any(folder.glob(f"*/{VIDEO}"))

    def find(self, folder: Path) -> list[Recording]:
        return [self._recording(video) for video in sorted(folder.glob(f"*/{VIDEO}"))]

    def _recording(self, video: Path) -> Recording:
        case, files = f"{video.parent.name}{video.suffix}", sorted((video.parent / "segmentation").glob("*.png"))
        try:
            rate = frames_a_second(video) if files else 1.0
            masks = tuple((int(path.stem) / rate, (path,)) for path in files)
        except (DataError, ValueError) as error:
            return Recording(case, video, fault=f"{error}; masks are named by the number of their frame")
        return Recording(case, video, masks=masks)
