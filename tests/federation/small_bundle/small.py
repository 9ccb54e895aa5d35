"""Networks of a few numbers, in float64, and what trains them."""

import json
from pathlib import Path

import torch
from torch import nn


class Weight(nn.Module):
    """x -> w x, from w = 2."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))

    def forward(self, x):
        return self.w * x


class Layers(nn.Module):
    """(B, 3), or images of 3 pixels, -> (B, outputs)."""

    def __init__(self, dropout, outputs=1):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(dropout))
        self.head = nn.Linear(4, outputs)
        self.double()

    def forward(self, x):
        return self.head(self.body(x.flatten(1)))


class Worded(nn.Module):
    """(B, 3) -> (B, 1), with a gate of its own weights on a constant that follows from the site's words."""

    def __init__(self, words, place):
        super().__init__()
        self.place = place
        letters = torch.tensor([*words["procedure"].encode().ljust(16)[:16]], dtype=torch.float64)
        self.register_buffer("constant", letters / 256, persistent=False)
        self.body, self.gate = nn.Linear(3, 1).double(), nn.Linear(16, 1).double()

    def forward(self, x):
        return self.body(x) * torch.sigmoid(self.gate(self.constant))


class HalfSquare(nn.Module):
    """Half the mean square."""

    def forward(self, result, wanted):
        return (result - wanted).square().mean() / 2


def load(datalist):
    """Pairs of lists."""
    return json.loads(Path(datalist).read_text())["training"]


def batches(data, size):
    """In their order."""
    made = [data[start : start + size] for start in range(0, len(data), size)]
    return [dict(zip(("image", "label"), map(f64, zip(*some, strict=True)), strict=True)) for some in made]


def class_batches(data, size):
    """Batches whose labels are the class: 1 where the value is above 0, else 0."""
    return [{**batch, "label": (batch["label"][:, 0] > 0).long()} for batch in batches(data, size)]


def pictures(data):
    """Pairs whose image is (1, 1, 3) in [0, 1]."""
    return [{"image": f64(image).sigmoid().view(1, 1, 3), "label": f64(label)} for image, label in data]


def picture_batches(data, size):
    """In their order."""
    return [{**batch, "image": batch["image"].sigmoid().view(-1, 1, 1, 3)} for batch in batches(data, size)]


def f64(values):
    return torch.tensor(list(values), dtype=torch.float64)
