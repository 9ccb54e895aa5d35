#!/usr/bin/env python3
"""Cost of the server's training beside a plain loop over the same steps.

Runs both phases of fedmed.systems.fedst.server and, written out, the forward passes, losses and Adam steps
that they consist of, in turns, on a small encoder and decoder:

    benchmarks/server_training.py --side 64 --steps 20

The time is that of this process's CPU, so that other work on the machine does not count; with a GPU it is the clock's.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

from fedmed.federation.opened_model import run_trainer
from fedmed.systems.fedst.server import RepresentationTraining
from fedmed.training.trainer import AbortHandler, plain_batch


class Net(nn.Module):
    """An encoder of stride 4 and a decoder."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.GELU(), nn.Conv2d(width, width, 3, 2, 1), nn.GELU(),
            *(layer for _ in range(4) for layer in (nn.Conv2d(width, width, 3, 1, 1), nn.GELU())),
        )  # fmt: skip
        last = (nn.Conv2d(width, 4, 1), nn.Upsample(scale_factor=4))
        self.decoder = nn.Sequential(nn.Conv2d(width, width, 3, 1, 1), nn.GELU(), *last)

    def plain_feature(self, image: Tensor) -> Tensor:
        """(B, width, H / 4, W / 4)."""
        return self.encoder(image)

    def forward_plain(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and the feature."""
        feature = self.encoder(image)
        return self.decoder(feature), feature


def plain(averaged: Any, pre: Any, batches: list[dict[str, Tensor]]) -> None:
    """Both phases as a loop."""
    loss = nn.CrossEntropyLoss()
    with torch.no_grad():
        average = torch.cat([averaged.plain_feature(batch["image"]) for batch in batches]).mean(0)
    domain = nn.Parameter(0.02 * torch.randn_like(average))
    adam = torch.optim.Adam([*pre.parameters(), domain], 1e-4)
    for batch in batches:
        adam.zero_grad(set_to_none=True)
        logits, feature = pre.forward_plain(batch["image"])
        (loss(logits, batch["label"]) + 0.3 * (feature - domain - average).square().mean()).backward()
        adam.step()
    adam = torch.optim.Adam(averaged.parameters(), 1e-4)
    for batch in batches:
        adam.zero_grad(set_to_none=True)
        logits, feature = averaged.forward_plain(batch["image"])
        with torch.no_grad():
            instruments = pre.plain_feature(batch["image"]) - domain
        (loss(logits, batch["label"]) + 0.3 * (feature - instruments).square().mean()).backward()
        adam.step()


def engine(averaged: Any, start: dict[str, Tensor], batches: list[dict[str, Tensor]], device: str) -> None:
    """Both phases as the server runs them, with its handlers."""
    loss = nn.CrossEntropyLoss()
    training = RepresentationTraining(averaged, loss, batches, plain_batch, device, steps=len(batches))
    training.load_state_dict({}, start)
    ask = AbortHandler(lambda: False)
    training.run(
        lambda trainer, steps, name: run_trainer(trainer, steps, lambda: False, lambda *line: None, ()), ask.check
    )


def seconds(work: Callable[[], None], device: str) -> float:
    """Of one run."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    begun = clock()
    work()
    if device != "cpu":
        torch.cuda.synchronize()
    return clock() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=64, help="of square images, in pixels (default 64)")
    parser.add_argument("--width", type=int, default=32, help="channels (default 32)")
    parser.add_argument("--steps", type=int, default=20, help="of each phase (default 20; the paper: 100)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each, in turns (default 3)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    torch.set_num_threads(1)
    nets = [Net(args.width).to(args.device) for _ in range(2)]
    start = {name: tensor.clone() for name, tensor in nets[1].state_dict().items()}
    size = (2, 3, args.side, args.side)
    images = [torch.randn(size, device=args.device) for _ in range(args.steps)]
    batches = [{"image": image, "label": (image[:, 0] > 0).long()} for image in images]
    plain(*nets, batches[:2])
    times: dict[str, list[float]] = {"loop": [], "engine": []}
    for _ in range(args.repeats):
        times["loop"].append(seconds(lambda: plain(*nets, batches), args.device))
        times["engine"].append(seconds(lambda: engine(nets[0], start, batches, args.device), args.device))
    loop, engine_time = (statistics.median(values) / (2 * args.steps) for values in times.values())
    words = f"plain loop {1000 * loop:.2f} ms a step, the server's training {1000 * engine_time:.2f} ms"
    Console().print(f"{words}: {loop / engine_time:.1%} of its speed")


if __name__ == "__main__":
    main()
