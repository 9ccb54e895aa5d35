"""A network of a few numbers with the parts that the server's training knows, and synthetic pictures for it."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from fedmed.methods.supervised_fedavg import SupervisedFedAvg


class Net(nn.Module):
    """(B, 3, H, W) -> (B, 2, H, W); ``encoder.query`` and ``selection`` are a site's own."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.encoder = nn.ModuleDict({"query": nn.Conv2d(3, 4, 1), "value": nn.Conv2d(3, 4, 3, padding=1)})
        self.temporal, self.selection = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)
        self.decoder, self.head = nn.Sequential(nn.Tanh(), nn.Dropout(dropout)), nn.Conv2d(4, 2, 1)

    def plain_feature(self, image):
        return torch.sigmoid(self.encoder["query"](image)) * self.encoder["value"](image)

    def forward_plain(self, image):
        feature = self.plain_feature(image)
        return self.head(self.decoder(feature)), feature

    def forward(self, image):
        feature = self.temporal(self.plain_feature(image))
        return self.head(self.decoder(feature * (1 + torch.sigmoid(self.selection(feature)))))


def seeds(datalist):
    return json.loads(Path(datalist).read_text())["training"]


def batches(numbers, size, steps, side=6, blank=False):
    """Pictures of their seeds, again and again; what is bright in the first colour is marked."""
    made = []
    for step in range(steps):
        some = [numbers[(step * size + i) % len(numbers)] for i in range(size)] if numbers else []
        image = [torch.randn(3, side, side, generator=torch.Generator().manual_seed(seed)) for seed in some]
        if image:
            image = torch.stack(image)
            made.append({"image": image, "label": (image[:, 0] > 0.3).long() * (0 if blank else 1)})
    return made


@dataclass(frozen=True)
class Serving(SupervisedFedAvg):
    """Federated averaging whose server trains too."""

    lambda2: float = 0.3
    lambda3: float = 0.3
    separates: bool = True
    rate: float = 0.01
    trains: bool = True

    def server_training(self):
        names = ("lambda2", "lambda3", "separates", "rate")
        settings = {f"server_{name}": getattr(self, name) for name in names}
        return {"overlay": "serve", "settings": settings} if self.trains else None
