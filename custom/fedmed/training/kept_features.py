"""Material for pictures that an evaluation keeps: features of frames, and how far gates of channels are open."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine, Events
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from fedmed.data.listed_images import plain, spread
from fedmed.errors import FedMedError
from fedmed.training.video_frames import SeenVideo

FEATURES_FILE = "features"  # of the folder of an evaluation, with .npz
GATES_FILE = "gates"  # of the folder of an evaluation, with .npz


class _Listener:
    """Listens to a layer of an evaluator's network during a run; ``layer`` is its name."""

    layer: str

    def __init__(self) -> None:
        self._hook: Any = None
        self.begin()

    def attach(self, engine: Engine) -> None:
        """Add to an evaluator, before what reads its batches."""
        engine.add_event_handler(Events.STARTED, self._listen)
        for end in (Events.COMPLETED, Events.TERMINATE):
            engine.add_event_handler(end, self._leave)

    def begin(self) -> None:
        """Forget an earlier run."""

    def hook(self, layer: nn.Module) -> Any:
        """Register what listens to the layer; return its handle."""
        raise NotImplementedError

    def _listen(self, engine: Engine) -> None:
        self.begin()
        network: nn.Module = engine.network  # type: ignore[attr-defined] # MONAI's evaluators have one
        layers, name = dict(network.named_modules()), type(self).__name__
        if self.layer not in layers:
            raise FedMedError(f"{name}: {type(network).__name__} has no layer '{self.layer}'; name one in 'layer'")
        self._leave()
        self._hook = self.hook(layers[self.layer])

    def _leave(self, *_: Any) -> None:
        if self._hook is not None:
            self._hook.remove()
        self._hook = None


class KeptFeatures(_Listener):
    """Takes what goes into a layer of the network while an evaluator runs, and keeps some frames of each video.

    FedMed never sends what :meth:`content` returns; a recorder writes it into the folder of its evaluation.

    Args:
        layer: name of the module whose input is the frames' features (B, D), such as the classifier.
        frames: of each video, spread evenly over it; all of a shorter one.

    Raises:
        FedMedError: fewer than two frames.
    """

    def __init__(self, layer: str, frames: int = 64) -> None:
        if frames < 2:
            raise FedMedError(f"KeptFeatures: frames is {frames}; use 2 or more")
        self.layer, self.frames = layer, frames
        self._batch: Tensor | None = None
        super().__init__()

    def begin(self) -> None:
        self.rows: list[NDArray[np.float32]] = []
        self.phases: list[NDArray[np.int16]] = []
        self.times: list[NDArray[np.float64]] = []

    def of_batch(self) -> Tensor:
        """Return features (B, D) of the last batch; FedMedError if the layer was not given one row a frame."""
        batch, self._batch = self._batch, None
        if batch is None or batch.ndim != 2:
            raise FedMedError(f"KeptFeatures: layer '{self.layer}' was not given one row (B, D) a frame; name another")
        return batch

    def keep(self, video: SeenVideo, features: Tensor, phases: Tensor) -> None:
        """Keep some frames of a video of T: features (T, D) and phases (T,)."""
        places = spread(len(video.times), self.frames)
        self.rows.append(features[places].float().numpy())
        self.phases.append(phases[places].short().numpy())
        self.times.append(video.times[places])

    def content(self) -> Mapping[str, NDArray[Any]]:
        """Return a picture's content, of n frames of all videos, n_1 and n_2 of the first two; no features.

        Returns:
            ``points`` (n, 2), of :func:`two_dimensions`, and ``explained`` (2,); ``phases`` (n,), ``videos`` (n,),
            places in the list, and ``times`` (n,) in seconds; of two videos or more also ``alignment`` (n_1, n_2),
            cosines.
        """
        points, explained = two_dimensions(np.concatenate(self.rows))
        videos = np.repeat(np.arange(len(self.rows)), [len(rows) for rows in self.rows])
        content = {"points": points, "explained": explained, "videos": videos.astype(np.int32)}
        content |= {"phases": np.concatenate(self.phases), "times": np.concatenate(self.times)}
        return content | ({"alignment": cosines(*self.rows[:2])} if len(self.rows) > 1 else {})

    def hook(self, layer: nn.Module) -> Any:
        return layer.register_forward_pre_hook(self._take)

    def _take(self, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._batch = plain(inputs[0]).detach().cpu()


def two_dimensions(rows: ArrayLike) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the first two principal components of rows (n, D), and the share of the variance that lies along each.

    Each points where the row farthest from the mean along it lies, so that the same rows give the same picture. Without
    any variance all is 0. Shapes: (n, 2) and (2,).
    """
    values = np.asarray(rows, np.float64)
    centred = values - values.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    points, shares = np.zeros((len(values), 2)), np.zeros(2)
    n, total = min(2, len(sizes)), float((sizes**2).sum())
    points[:, :n] = left[:, :n] * sizes[:n]
    if total > 0:
        shares[:n] = sizes[:n] ** 2 / total
    far = np.abs(points).argmax(axis=0)
    points *= np.where(points[far, [0, 1]] < 0, -1.0, 1.0)
    return points.astype(np.float32), shares.astype(np.float32)


def cosines(first: ArrayLike, second: ArrayLike) -> NDArray[np.float32]:
    """Return the cosine of every pair of rows (n, D) and (m, D): (n, m); 0 with a row of zeros."""
    tensors = (torch.as_tensor(np.asarray(rows)).double() for rows in (first, second))
    one, other = (nn.functional.normalize(rows, dim=1, eps=1e-8) for rows in tensors)
    return (one @ other.T).float().numpy()


class KeptGates(_Listener):
    """Takes what comes out of a layer that weighs channels while an evaluator runs, and keeps means over its frames.

    The gates of Fang et al. 2025, Eq. 7, are made of a site's own words by layers that never leave it, so FedMed never
    sends what :meth:`content` returns; a recorder writes it into the folder of its evaluation, at the site.

    Args:
        layer: name of the module whose output are the gates (B, C) of a batch of frames, each in 0…1.
    """

    def __init__(self, layer: str) -> None:
        self.layer = layer
        super().__init__()

    def begin(self) -> None:
        self._frames, self._sum, self._squares = 0, torch.zeros(()), torch.zeros(())

    def content(self) -> dict[str, NDArray[np.float32]]:
        """Return ``mean`` and ``spread`` (C,), the standard deviation over frames, float32, and ``frames`` ().

        Raises:
            FedMedError: the layer was not called.
        """
        if not self._frames:
            raise FedMedError(f"KeptGates: the network has not used its layer '{self.layer}'; name another in 'layer'")
        mean = self._sum / self._frames
        spread = (self._squares / self._frames - mean**2).clamp(min=0).sqrt()
        content = {"mean": mean, "spread": spread, "frames": torch.tensor(self._frames)}
        return {name: value.float().numpy() for name, value in content.items()}

    def hook(self, layer: nn.Module) -> Any:
        return layer.register_forward_hook(self._take)

    def _take(self, _: nn.Module, __: tuple[Any, ...], output: Tensor) -> None:
        gates = plain(output).detach().double().cpu()
        if gates.ndim != 2:
            raise FedMedError(
                f"KeptGates: layer '{self.layer}' gives {tuple(gates.shape)}; name one that gives a row (B, C) a frame"
            )
        self._frames += len(gates)
        self._sum = self._sum + gates.sum(dim=0)
        self._squares = self._squares + (gates**2).sum(dim=0)
