#!/usr/bin/env python3
"""Cost of an algorithm's changes of gradients and images in a step of training.

AlexNet of the bundle for tools on synthetic frames of 240 x 135 pixels, and gradient descent without momentum, as
Markert (2022) trained. The calls of a correction are timed inside the steps that they belong to, on a CPU in CPU time,
so that other work on the machine does not count. Targets: at most 3 % of a step for gradients, 10 % for images (FedDG,
with a bank of five sites). What happens once a round, such as copies of the model, stands in a column of its own. A
last line says how fast the engine of the sites is, without a correction, beside the same step written out (95 %).

    python benchmarks/corrections.py --threads 1
    python benchmarks/corrections.py --device cuda --steps 50
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from fedmed.bundles.bundle import Bundle
from fedmed.data.video.clips import unit_float
from fedmed.systems.algorithms.feddg import OTHERS, MixedAmplitudes, OwnAmplitudes
from fedmed.systems.algorithms.feddyn import DynamicTerm
from fedmed.systems.algorithms.fedprox import ProximalTerm
from fedmed.systems.algorithms.scaffold import CONTROL, ControlVariate
from fedmed.training.corrections.correction import Correction, RoundStart
from fedmed.training.trainer import SupervisedEngine
from fedmed.training.video_frames import FrameBatches

SIZE, SITES, BANK = (135, 240), 5, 100  # height and width; sites, and images of each in the bank


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=5, help="counted steps with each correction (default 5)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser.parse_args()


class Step:
    """A step of training, of which a correction is a part.

    Attributes:
        seconds: of the step alone, and of the correction's calls in it.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self.device = torch.device(args.device)
        bundle = Bundle("surgical_tool_classification").parser(device=args.device)
        self.network: nn.Module = bundle.get_parsed_content("network").train()
        self.parameters = dict(self.network.named_parameters())
        self.optimizer = torch.optim.SGD(self.network.parameters(), 1e-3)
        self.images = torch.rand(args.batch, 3, *SIZE, device=self.device)
        self.labels = (torch.rand(args.batch, 6, device=self.device) < 0.3).float()
        self.seconds: list[tuple[float, float]] = []
        self.clock = time.perf_counter if self.device.type == "cuda" else time.process_time

    def timed(self, work: Callable[[], object]) -> float:
        self.wait()
        start = self.clock()
        work()
        self.wait()
        return self.clock() - start

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def run(self, item: Correction) -> None:
        seen: list[Tensor] = []
        corrected = self.timed(lambda: seen.append(item.change_images(self.images)))

        def learn() -> None:
            self.optimizer.zero_grad(set_to_none=True)
            nn.functional.binary_cross_entropy_with_logits(self.network(seen[0]), self.labels).backward()

        alone = self.timed(learn)
        with torch.no_grad():
            corrected += self.timed(lambda: item.before_step(self.parameters))
            alone += self.timed(self.optimizer.step)
            corrected += self.timed(lambda: item.after_step(self.parameters))
        self.seconds.append((alone, corrected))

    def round(self, item: Correction, values: dict, steps: int) -> tuple[float, float, float]:
        """Medians of a step alone and of the correction in it, and what it does once, all in seconds.

        A first round is not counted: it makes the states that later rounds go on from.
        """
        for count in (1, steps):
            self.seconds = []
            tensors = {name: tensor.detach().clone() for name, tensor in self.network.state_dict().items()}
            start = RoundStart(tensors, frozenset(tensors), values, steps=count, parameters=self.parameters)
            once = self.timed(lambda start=start: item.begin(start))
            for _ in range(count):
                self.run(item)
            with torch.no_grad():
                once += self.timed(lambda: item.end(self.parameters))
        alone, corrected = (statistics.median(column) for column in zip(*self.seconds, strict=True))
        return alone, corrected, once


def engine_speed(step: Step, steps: int) -> float:
    """Speed of the engine as a share of the step written out: medians of turns."""
    batch = {"image": step.images[:, None].mul(255).byte().cpu(), "labels": step.labels[:, None].byte().cpu()}
    batches, loss = [batch] * steps, nn.BCEWithLogitsLoss()
    engine = SupervisedEngine(step.device, 1, batches, step.network, step.optimizer, loss, prepare_batch=FrameBatches())

    def written_out() -> None:
        for given in batches:
            step.optimizer.zero_grad(set_to_none=True)
            image = unit_float(given["image"].to(step.device)).flatten(0, 1)
            value = loss(step.network(image), given["labels"][:, -1].to(step.device).float())
            value.backward()
            step.optimizer.step()
            float(value.detach())

    rows = [(step.timed(written_out), step.timed(engine.run)) for _ in range(4)]
    plain, corrected = (statistics.median(column) for column in zip(*rows[1:], strict=True))
    return plain / corrected


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    step = Step(args)
    frames = [{"image": image} for image in torch.rand(BANK, 3, *SIZE)]
    amplitudes = OwnAmplitudes(frames, BANK)
    control = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in step.parameters.items()}
    kinds: dict[str, tuple[Correction, dict, float]] = {
        "FedProx": (ProximalTerm(0.01), {}, 0.03),
        "FedDyn": (DynamicTerm(0.01), {}, 0.03),
        "SCAFFOLD": (ControlVariate(), {CONTROL: control}, 0.03),
        "FedDG": (MixedAmplitudes(amplitudes), {OTHERS: [amplitudes()] * (SITES - 1)}, 0.10),
    }
    title = f"{args.device}, {args.threads} threads, batch {args.batch}, {args.steps} steps"
    table = Table("", "step, s", "of it more, s", "share", "target", "once a round, s", title=title)
    for name, (item, values, target) in kinds.items():
        alone, more, once = step.round(item, values, args.steps)
        row = (f"{alone:.3f}", f"{more:.4f}", f"{more / alone:.1%}", f"≤ {target:.0%}", f"{once:.2f}")
        table.add_row(name, *row)
    Console().print(table)
    Console().print(
        f"engine of the sites: {engine_speed(step, args.steps):.1%} of the speed of the loop (target: 95 %)"
    )


if __name__ == "__main__":
    main()
