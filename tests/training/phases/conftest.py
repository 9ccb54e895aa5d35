"""A small network of frames with ``features`` and ``classifier``, and clips of moving squares."""

import torch
from ignite.engine import Events
from torch import nn


class FrameNet(nn.Module):
    """Logits (B, 3) of frames (B, 3, H, W) by way of 8 features."""

    def __init__(self, norm=True):
        super().__init__()
        layers = [nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8) if norm else nn.GroupNorm(2, 8), nn.ReLU()]
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 8))
        self.classifier = nn.Linear(8, 3)

    def forward(self, x):
        return self.classifier(self.features(x))


def moving(clips, size, seed=0):
    """(B, k, 3, 12, 12) uint8: a bright bar that goes from left to right, on noise."""
    generator = torch.Generator().manual_seed(seed)
    frames = torch.randint(0, 60, (clips, size, 3, 12, 12), generator=generator)
    for k in range(size):
        frames[:, k, :, :, k * 11 // size : k * 11 // size + 2] += 150
    return frames.to(torch.uint8)


def build(norm=True):
    """Build the network, always with the same weights."""
    torch.manual_seed(0)
    return FrameNet(norm)


def clip_batches(batches=3, clips=2, size=5):
    """Return batches of clips as a loader gives them."""
    part = torch.arange(size)[None].expand(clips, -1) / size
    return [{"image": moving(clips, size, seed), "part": part} for seed in range(batches)]


def labelled_batches(batches=3, frames=6):
    """Return batches of labelled frames as a loader gives them."""
    labels = torch.arange(frames)[:, None] % 3  # where the bar is
    pictures = [moving(frames // 3, 3, seed).flatten(0, 1)[:, None] for seed in range(batches)]
    return [{"image": image, "labels": labels} for image in pictures]


def outputs_of(trainer):
    """Run a trainer and return the output of each iteration."""
    outputs = []
    with trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda e: outputs.append(dict(e.state.output))):
        trainer.run()
    return outputs
