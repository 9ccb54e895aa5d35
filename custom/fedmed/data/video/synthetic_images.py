"""Pictures of a simulator with masks of instruments, such as a server trains with (Fang et al. 2025, Section 4)."""

from collections.abc import Sequence

from fedmed.data.video.frame_masks import picture
from fedmed.data.video.masked_videos import MaskedVideos
from fedmed.errors import DataError


class SyntheticImages(MaskedVideos):
    """The folders of single pictures of a list, prepared, with their masks; every picture is taken once.

    ``masked_clip_loader(images, ClipRule("history", k), …)`` gives batches with ``image`` (B, k, 3, H, W), uint8, a
    picture k times, and ``labels`` (B, 1, H, W), int64.

    The arguments are those of :class:`fedmed.data.video.masked_videos.MaskedVideos`; the rate does not matter.

    Raises:
        DataError: as :class:`MaskedVideos`; an entry is a video; or no mask shows an instrument.
    """

    def check(self, source: str, classes: Sequence[str]) -> None:
        for video in self.videos:
            if not video.facts.get("single"):
                raise DataError(
                    f"{video.source}: is a video, and single pictures are needed; list folders with pictures.csv, as "
                    "scripts/prepare_video.py --layout pictures makes them"
                )
        if not any(picture(file).any() for files in self.files for file in files.values()):
            count = sum(map(len, self.files))
            raise DataError(
                f"{source}: none of its {count} masks shows an instrument ({', '.join(classes)}); a model "
                "learns nothing from them: use other pictures, or say which values are instruments when they are "
                "prepared"
            )
