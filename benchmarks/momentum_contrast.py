#!/usr/bin/env python3
"""Cost of FedMoCo's engine compared with plain momentum contrast, and bytes that its sites send.

Trains ResNet-18 on synthetic PNGs in two ways, in turns in one process, so that a busy machine slows both alike: the
bundle's engine, with loading from the cache, CLAHE, augmentation and negatives drawn from the statistics of two other
sites; and MoCo written out in PyTorch on batches that are ready. The target is 0.90 of its speed. Then the bytes of a
round are counted, with and without the statistics.

    benchmarks/momentum_contrast.py                                     # 64 and 128 pixels, on the CPU
    benchmarks/momentum_contrast.py --device cuda --size 256 --batch 64 --amp --workers 8
"""

import argparse
import copy
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from ignite.engine import Events
from monai.bundle import ConfigParser
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from fedmed.aggregation.sharing import tensor_bytes
from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import parsed, seed_everything
from fedmed.systems.fedmoco.metadata import FeatureMetadata

OTHERS = 2  # sites whose statistics the engine draws from
WARM_UP = 2  # blocks that are not counted


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, nargs="+", default=[64, 128], help="pixels of the square images")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--blocks", type=int, default=8, help="counted turns (default 8)")
    parser.add_argument("--images", type=int, default=256, help="synthetic images on disk (default 256)")
    parser.add_argument("--overlay", action="append", default=[], help="of the bundle, such as demo; none = ResNet-18")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--workers", type=int, default=0, help="loader processes (default 0)")
    parser.add_argument("--amp", action="store_true", help="mixed precision")
    return parser.parse_args()


def make_site(root: Path, images: int, size: int) -> Path:
    """Write images of the size that is trained on, so that only loading is measured; return the datalist."""
    rng, entries = np.random.default_rng(0), []
    for number in range(images):
        coarse = Image.fromarray(rng.integers(0, 256, (size // 8, size // 8), dtype=np.uint8))
        coarse.resize((size, size), Image.Resampling.BICUBIC).save(root / f"{number}.png")
        entries.append({"image": f"{number}.png"})
    path = root / "datalist.json"
    path.write_text(json.dumps({"unlabeled": entries}))
    return path


def configuration(root: Path, size: int, steps: int, args: argparse.Namespace) -> ConfigParser:
    """The bundle's pre-training, with the sizes asked for."""
    datalist = make_site(root, args.images, size)
    facts = {"dataset_dir": str(root), "datalist": str(datalist), "cache_dir": str(root / "cache"), "seed": 0}
    facts |= {"device": args.device, "amp": args.amp, "num_workers": args.workers, "max_epochs": 1}
    config = Bundle("cxr_classification", [*args.overlay, "pretrain"]).parser(**facts, epoch_length=steps)
    config.update({"image_size": size, "batch_size": args.batch, "train#handlers": [], "rsa_samples": 10})
    return config


def plain_step(config: ConfigParser, args: argparse.Namespace) -> Callable[[], None]:
    """One step of MoCo in plain PyTorch, on the same network with ready batches."""
    size, queue_size, dim, rate = (
        parsed(config, name) for name in ("image_size", "queue_size", "dim", "learning_rate")
    )
    device = torch.device(args.device)
    query = copy.deepcopy(parsed(config, "network")).train()
    key = copy.deepcopy(query).requires_grad_(False)
    optimizer = torch.optim.SGD(query.parameters(), rate, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler(device.type, enabled=args.amp)
    views = torch.rand(2, args.batch, 1, size, size, device=device)
    queue = nn.functional.normalize(torch.rand(queue_size, dim, device=device))
    target, pointer = torch.zeros(args.batch, dtype=torch.long, device=device), 0

    def step() -> None:
        nonlocal pointer
        with torch.no_grad():
            for slow, fast in zip(key.parameters(), query.parameters(), strict=True):
                slow.mul_(0.999).add_(fast, alpha=0.001)
        with torch.autocast(device.type, enabled=args.amp):
            with torch.no_grad():
                keys = key(views[1])
            queries = query(views[0])
        logits = torch.cat([(queries * keys).sum(1, keepdim=True), queries @ queue.T], dim=1) / 0.2
        loss = nn.functional.cross_entropy(logits.float(), target)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        queue[pointer : pointer + args.batch] = keys
        pointer = (pointer + args.batch) % queue_size

    return step


class Turns:
    """Runs the plain step between the engine's, and notes the seconds of both.

    With loader processes a turn is several steps long, of which the first are not counted: their batches were loaded
    while the plain steps ran.
    """

    def __init__(self, step: Callable[[], None], args: argparse.Namespace) -> None:
        self.step, self.cuda = step, torch.device(args.device).type == "cuda"
        self.skip = 2 * args.workers  # prefetched
        self.block = self.skip + (1 if not args.workers else max(8, args.workers))
        self.engine: list[float] = []
        self.plain: list[float] = []
        self.done, self.start = 0, 0.0

    def attach(self, engine) -> None:
        """Add to a trainer."""
        engine.add_event_handler(Events.EPOCH_STARTED, self._restart)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self._note)

    def _now(self) -> float:
        if self.cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    def _restart(self) -> None:
        self.done, self.start = 0, self._now()

    def _note(self) -> None:
        self.done += 1
        if self.done == self.skip:
            self.start = self._now()
        if self.done < self.block:
            return
        counted = self.block - self.skip
        middle = self._now()
        self.engine.append((middle - self.start) / counted)
        for _ in range(counted):
            self.step()
        self.plain.append((self._now() - middle) / counted)
        self._restart()


def measure(size: int, args: argparse.Namespace) -> tuple[float, float, dict[str, int]]:
    """Median seconds of a plain and of the engine's step, and the bytes of a round."""
    seed_everything(0)
    with tempfile.TemporaryDirectory() as folder:
        turns_wanted = args.blocks + WARM_UP
        config = configuration(Path(folder), size, 1, args)
        turns = Turns(plain_step(config, args), args)
        config = configuration(Path(folder), size, turns_wanted * turns.block, args)
        trainer, network = parsed(config, "train#trainer"), parsed(config, "network")
        sent = FeatureMetadata(network, parsed(config, "metadata#loader"), min_images=2, device=args.device)()
        other = {name: sent[name] for name in ("mu", "sigma")}
        trainer.receive({"others": [other] * OTHERS})
        turns.attach(trainer)
        trainer.run()
    plain, engine = (statistics.median(times[WARM_UP:]) for times in (turns.plain, turns.engine))
    return plain, engine, round_bytes(network, other, trainer.extras())


def round_bytes(network: nn.Module, other: dict[str, Tensor], extras: dict[str, float]) -> dict[str, int]:
    """Bytes that one site sends and gets in a round, without framing."""
    model, statistics_ = tensor_bytes(network.state_dict()), tensor_bytes(other)
    return {
        "model, each way": model,
        "rsa, up (a float)": 4 * len(extras),
        "statistics, up": statistics_,
        f"statistics of {OTHERS} others, down": OTHERS * statistics_,
    }


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    title = f"batch {args.batch}, {args.device}, {args.threads} threads, {args.workers} workers, AMP {args.amp}"
    table = Table("image", "plain MoCo, s a step", "engine, s a step", "speed of plain", title=title)
    for size in args.size:
        plain, engine, sizes = measure(size, args)
        table.add_row(f"{size} x {size}", f"{plain:.4f}", f"{engine:.4f}", f"{plain / engine:.3f}")
    console = Console()
    console.print(table, "target: 0.90", sep="\n")
    wire = Table("of a round", "bytes", title="FedMoCo on the wire")
    for what, count in sizes.items():
        wire.add_row(what, f"{count:,}")
    console.print(wire)


if __name__ == "__main__":
    main()
