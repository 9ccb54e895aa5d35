"""Segment a video as its frames come, each passed through the encoder once."""

from collections import deque

from torch import Tensor

from .instrument_net import InstrumentNet


class FrameStream:
    """Logits of frames in their order; the maps of past frames are kept, as many as a clip reaches back.

    It gives what the network gives for clips whose frames lie ``interval`` apart, where the newest stands for those
    before the video's first. Memory does not grow with the video.

    Args:
        network: in eval mode.
        interval: frames from one frame of a clip to the next, at the rate at which frames come.

    Raises:
        ValueError: an interval below 1; when called, a frame of another size than the one before.
    """

    def __init__(self, network: InstrumentNet, interval: int = 1) -> None:
        if interval < 1:
            raise ValueError(f"interval is {interval} frames; use at least 1, or frames that come more often")
        self.network, self.interval = network, interval
        self.kept: deque[Tensor] = deque(maxlen=(network.frames - 1) * interval)

    def __call__(self, frame: Tensor) -> Tensor:
        """Logits (1, classes, H, W) of the next frame (1, 3, H, W), colours in [0, 1]."""
        levels = self.network.features(frame)
        newest = levels[self.network.level]
        if self.kept and self.kept[-1].shape != newest.shape:
            raise ValueError(
                f"a frame of {tuple(frame.shape[2:])} pixels follows one of another size; call restart() "
                "before another video"
            )
        logits = self.network.combine(levels, self._past(newest), frame.shape[2:])
        if self.network.temporal is not None:
            self.kept.append(newest)
        return logits

    def restart(self) -> None:
        """Forget past frames: the next one is the first of another video."""
        self.kept.clear()

    def _past(self, newest: Tensor) -> list[Tensor]:
        """Maps of the clip's older frames, the oldest first."""
        back = [number * self.interval for number in range(self.network.frames - 1, 0, -1)]
        return [self.kept[-steps] if steps <= len(self.kept) else newest for steps in back]
