"""Features of prepared videos on disk: a file for each video and encoder, whole or not at all."""

import hashlib
import logging
from pathlib import Path

import monai
import torch
from torch import Tensor, nn

from fedmed.data.cache import CaseStore
from fedmed.data.video.stored_video import StoredVideo

log = logging.getLogger("fedmed.data")

SUFFIX = ".features"
VERSION = 1  # to be raised when the same encoder and video give other features


class FeatureStore:
    """Features of the kept frames of videos, in the cache folder of prepared cases.

    They are known by the encoder's tensors and by the prepared video: another model and a changed video make new ones,
    a renamed video does not.

    Args:
        cache_dir: of the site; see :class:`fedmed.data.cache.CaseStore`.
        encoder: whose features these are.
        amp: whether it computes in mixed precision.

    Raises:
        DataError: the folder cannot be made.
    """

    def __init__(self, cache_dir: Path | str, encoder: nn.Module, amp: bool = False) -> None:
        self.store: CaseStore | None = CaseStore(cache_dir)
        self.encoder = f"{encoder_digest(encoder)}\0{amp}"

    def read(self, video: StoredVideo) -> Tensor | None:
        """Features float32 (T, F) of the T kept frames, memory-mapped; None where there are none, or damaged ones."""
        if self.store is None or (content := self.store.read(path := self._path(self.store, video))) is None:
            return None
        found = content.get("features")
        if isinstance(found, Tensor) and found.ndim == 2 and len(found) == video.kept.sum() and _sound(found):
            return found
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


def _sound(features: Tensor) -> bool:
    return features.dtype == torch.float32 and bool(torch.isfinite(features).all())
