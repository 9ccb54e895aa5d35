"""A site's videos for training that uses no labels."""

from pathlib import Path

from fedmed.data.classes import load_images
from fedmed.data.datalist import Video
from fedmed.data.video.clip_loader import PreparedVideos
from fedmed.data.video.frame_settings import FrameSettings


def load_unlabelled_videos(
    data_root: Path | str,
    datalist: Path | str,
    settings: FrameSettings,
    cache_dir: Path | str,
    transductive: bool = False,
) -> PreparedVideos:
    """Return the videos of ``unlabeled`` and ``training``, prepared, each once and without labels.

    Args:
        data_root, datalist, transductive: see :func:`fedmed.data.classes.load_images`.
        settings, cache_dir: see :class:`fedmed.data.video.video_store.VideoStore`.

    Raises:
        DataError: no such video, or one that cannot be used.
    """
    videos = load_images(data_root, datalist, form=Video(), transductive=transductive)
    return PreparedVideos(videos, settings, cache_dir)
