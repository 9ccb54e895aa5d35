"""Facts about a video for a site's fingerprint: its first frame's size and its labels. It is never decoded whole."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedmed.data.fingerprint.facts import ImageFacts, Read, counted_values
from fedmed.data.video.file_source import open_video
from fedmed.data.video.frame_masks import FrameMasks, picture
from fedmed.data.video.label_table import read_label_table
from fedmed.data.video.source import Damage
from fedmed.errors import DataError

MASKS = 5  # of a video
ANY_RATE = 1.0  # frames a second of a folder whose names are numbers: times do not matter here


def measure_phases(files: Mapping[str, Path], classes: Sequence[str], read: Read | None) -> ImageFacts:
    """Look at a video and the share of each phase in its table, if it has one.

    Args:
        files: ``video``, perhaps ``labels``.
        classes: names of the phases.
        read: not needed.

    Raises:
        DataError: video or table cannot be read, or the table has other phases.
    """
    lasting = read_label_table(files["labels"], classes).lasting() if "labels" in files and classes else {}
    labels = {number: float(lasting.get(name, 0)) for number, name in enumerate(classes)} if lasting else {}
    return ImageFacts(size=frame_size(files["video"]), labels=labels)


def measure_tools(files: Mapping[str, Path], classes: Sequence[str], read: Read | None) -> ImageFacts:
    """The same of tools: how often each is there, as a share of all that are.

    Args:
        files, classes, read: as above.

    Raises:
        DataError: as above.
    """
    shown = read_label_table(files["labels"], (), classes).shown() if "labels" in files and classes else {}
    labels = {number: float(shown.get(name, 0)) for number, name in enumerate(classes)} if shown else {}
    return ImageFacts(size=frame_size(files["video"]), labels=labels)


def measure_masks(files: Mapping[str, Path], classes: Sequence[str], read: Read | None) -> ImageFacts:
    """The same of masks: of some of a video, evenly apart, the share of each value.

    Args:
        files: ``video``, perhaps ``masks``, a folder.
        classes, read: not needed.

    Raises:
        DataError: a file cannot be read.
    """
    counts: dict[int, float] = {}
    masks = FrameMasks(files["masks"], range(256)).files() if "masks" in files else []
    for _, path in masks[:: max(1, len(masks) // MASKS)][:MASKS]:
        for value, number in counted_values(picture(path)).items():
            counts[value] = counts.get(value, 0.0) + number
    return ImageFacts(size=frame_size(files["video"]), values=counts)


def frame_size(video: Path) -> tuple[int, int]:
    """Height and width of the first frame, the only one that is decoded; DataError where there is none."""
    damage = Damage(video, refuse=False)
    for _ in open_video(video, ANY_RATE).frames(damage):
        break
    if not damage.sizes:
        raise DataError(f"{video}: none of its frames can be decoded")
    return damage.sizes[0]
