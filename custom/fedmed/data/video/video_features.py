"""Features of a video's frames, computed once by a network that no longer changes, and kept."""

import hashlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import monai
import torch
from torch import Tensor, nn

from fedmed.data.cache import CaseStore
from fedmed.data.video.clips import PreparedVideos, unit_float
from fedmed.data.video.stored_video import StoredVideo
from fedmed.errors import DataError
from fedmed.seeds import derive_seed

log = logging.getLogger("fedmed.data")

SUFFIX = ".features"
VERSION = 1  # to be raised when the same encoder and video give other features


class FeatureStore:
    """Features of the kept frames of videos, in the cache folder of prepared cases.

    They are known by the encoder's tensors, its precision (``amp``) and the prepared video: another model and a changed
    video make new ones, a renamed video does not. Errors are those of :class:`fedmed.data.cache.CaseStore`.
    """

    def __init__(self, cache_dir: Path | str, encoder: nn.Module, amp: bool = False) -> None:
        self.store: CaseStore | None = CaseStore(cache_dir)
        self.encoder = f"{encoder_digest(encoder)}\0{amp}"

    def read(self, video: StoredVideo) -> Tensor | None:
        """Features float32 (T, F) of the T kept frames, memory-mapped; None where there are none, or damaged ones."""
        if self.store is None or (content := self.store.read(path := self._path(self.store, video))) is None:
            return None
        features = content.get("features", torch.empty(0))
        sound = features.dtype == torch.float32 and bool(torch.isfinite(features).all())
        if sound and features.ndim == 2 and len(features) == video.kept.sum():
            return features
        log.warning("the features %s are damaged and will be computed again", path)
        return None

    def write(self, video: StoredVideo, features: Tensor) -> None:
        """Keep features; a disk that is full is told once, and nothing is kept from then on."""
        if self.store is None:
            return
        try:
            self.store.write(self._path(self.store, video), {"features": features})
        except OSError as error:
            folder = self.store.folder
            log.warning("the cache %s cannot be written (%s); features are computed in each round", folder, error)
            self.store = None

    def _path(self, store: CaseStore, video: StoredVideo) -> Path:
        key = hashlib.sha256(f"{VERSION}\0{self.encoder}\0{video.path.stem}".encode()).hexdigest()
        return store.folder / f"{key}{SUFFIX}"


def encoder_digest(encoder: nn.Module) -> str:
    """SHA-256 of what an encoder computes: its layers, their tensors, and MONAI's version, which has made them."""
    kind = type(encoder)
    digest = hashlib.sha256(f"{kind.__module__}.{kind.__qualname__}\0{encoder}\0{monai.__version__}".encode())
    for name, tensor in sorted(encoder.state_dict().items()):
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"\0{name}\0{plain.dtype}\0{tuple(plain.shape)}\0".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


class VideoFeatures:
    """A loader of videos in their order, each as one batch of all its kept frames.

    A batch of T frames has ``image`` (1, F, T) float32, the features; ``video`` (T,) int64, the place in the list;
    ``time`` (T, 1) float32 seconds from the first frame; and, of labelled videos, ``label`` (1, T) int64.

    Features are computed when they are first asked for, not before: only then the encoder has its weights. They are
    kept on disk and never computed twice for an encoder and a video.

    Args:
        prepared: the videos.
        encoder: frames (B, 3, H, W) float32 in [0, 1] -> (B, F); it is used in eval mode.
        cache_dir: of the site.
        device: where the encoder lies.
        batch_size: frames that it gets at a time.
        amp: float16 mixed precision; has an effect on CUDA devices only.
    """

    def __init__(
        self,
        prepared: PreparedVideos,
        encoder: nn.Module,
        cache_dir: Path | str,
        device: torch.device | str = "cpu",
        batch_size: int = 64,
        amp: bool = False,
    ) -> None:
        self.prepared, self.encoder, self.cache_dir = prepared, encoder, cache_dir
        self.device, self.batch_size = torch.device(device), batch_size
        self.amp = amp and self.device.type == "cuda"
        self._features: list[Tensor] = []

    def __len__(self) -> int:
        return len(self.prepared.videos)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        self.prepare()
        return (self.batch(number) for number in range(len(self)))

    def prepare(self, before_batch: Callable[[], object] = lambda: None) -> None:
        """Compute what is not on disk; ``before_batch`` is called before each batch of frames.

        Raises:
            DataError: a feature is not a number, or the cache folder cannot be made.
        """
        if self._features:
            return
        store = FeatureStore(self.cache_dir, self.encoder, self.amp)
        all_features = []
        for video in self.prepared.videos:
            features = store.read(video)
            if features is None:
                features = self._computed(video, before_batch)
                store.write(video, features)
            all_features.append(features)
        self._features = all_features

    @torch.no_grad()
    def _computed(self, video: StoredVideo, before_batch: Callable[[], object]) -> Tensor:
        """Features float32 (T, F) of the kept frames, on the CPU."""
        self.encoder.eval()
        rows, parts = torch.from_numpy(video.kept).nonzero()[:, 0], []
        for chosen in rows.split(self.batch_size):
            before_batch()
            frames = torch.from_numpy(video.frames[chosen.numpy()].transpose(0, 3, 1, 2).copy())
            with torch.autocast("cuda", enabled=self.amp):
                parts.append(self.encoder(unit_float(frames.to(self.device))).float().cpu())
        features = torch.cat(parts)
        if not bool(torch.isfinite(features).all()):
            remedy = "start from another checkpoint, or correct the video if it is the only one"
            raise DataError(f"{video.source}: the encoder's features are NaN or infinite; {remedy}")
        return features

    def batch(self, number: int) -> dict[str, Tensor]:
        """A video as a batch, after :meth:`prepare`."""
        video, features = self.prepared.videos[number], self._features[number]
        times = torch.from_numpy(video.times[video.kept]).float()
        batch = {"image": features.T[None], "video": torch.full((len(times),), number), "time": times[:, None]}
        if self.prepared.labels is not None:
            batch["label"] = self.prepared.labels[number][torch.from_numpy(video.kept)][None]
        return batch


class ShuffledVideos:
    """The same in an order that is drawn anew for each pass."""

    def __init__(self, videos: VideoFeatures, seed: int) -> None:
        self.videos = videos
        self.order = torch.Generator().manual_seed(derive_seed(seed, "order of videos"))

    def __len__(self) -> int:
        return len(self.videos)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        self.prepare()
        return (self.videos.batch(number) for number in torch.randperm(len(self), generator=self.order).tolist())

    def prepare(self, before_batch: Callable[[], object] = lambda: None) -> None:
        """As :meth:`VideoFeatures.prepare`."""
        self.videos.prepare(before_batch)
