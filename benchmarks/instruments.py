#!/usr/bin/env python3
"""Cost of time in the network for instruments: attention, frames a second, memory; and of engine and store.

Measures, in turns, so that a busy machine slows both alike; on a CPU by processor time:

    attention   all windows at once against a loop over windows that says the same, forward and backward (target 10)
    frames      a second with attention over time and selection against the newest frame alone (target 0.70), and with
                the maps of past frames kept (target 0.85)
    memory      peak of one step on clips of 4 frames, batch 2 (stated), with the published network; of a stream of 12
                frames against one of 6 (target 1.05)
    training    steps a second, batch 2, with rotation and scale of frames and masks: the engine against the same
                written out, on ready batches (target 0.95); from the store, masks from their files, against ready
                batches (target 0.95)
    scores      milliseconds of a core for Dice, IoU, HD95 and ASSD of three classes of a frame (target 30): parts a few
                pixels off, and the same with one pixel in a hundred called at random

    python benchmarks/instruments.py --threads 1
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch import Tensor
from video import make_film

from fedmed.data.augment.clip_views import ClipViews
from fedmed.data.video.clips import ClipRule
from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.listed_videos import MaskedVideos, masked_clip_loader
from fedmed.losses.cross_entropy_dice import CrossEntropyDice
from fedmed.training.mask_recorder import class_scores
from fedmed.training.trainer import SupervisedEngine
from fedmed.training.video_frames import StackedFrames

BUNDLE = Path(__file__).resolve().parents[1] / "bundles" / "instrument_segmentation"
sys.path.append(str(BUNDLE))

from instrument_nets.instrument_net import InstrumentNet  # noqa: E402
from instrument_nets.stream import FrameStream  # noqa: E402
from instrument_nets.temporal_attention import TemporalAttention  # noqa: E402
from instrument_nets.windows import relative_positions, seen_tokens  # noqa: E402

GIB = 2**30
PEAKS = ("load", "train", "6", "12")
SELECTION = torch.ones(512)  # as wide as CLIP's embeddings


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=512, help="height and width of frames (default 512)")
    parser.add_argument("--turns", type=int, default=5, help="timed turns of each kind (default 5)")
    parser.add_argument("--steps", type=int, default=2, help="training steps of a turn (default 2)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--parts", nargs="+", choices=tuple(PARTS), default=list(PARTS), help="what to measure")
    parser.add_argument("--peak", choices=PEAKS, help=argparse.SUPPRESS)  # in a process of its own
    return parser.parse_args()


def loop_over_windows(made: TemporalAttention, frames: Tensor) -> Tensor:
    """F* as its equations read: for each window, cut and pool what it sees of each frame, then attend (Eq. 3-4)."""
    size, height, width = made.window, *frames.shape[3:]
    normed = made.norm(frames.movedim(2, -1))
    result, rows = frames[:, -1].clone(), [relative_positions(size, reach) for reach in made.reaches]
    for top in range(0, height, size):
        for left in range(0, width, size):
            newest = normed[:, -1, top : top + size, left : left + size]
            place = [y * size + x for y in range(newest.shape[1]) for x in range(newest.shape[2])]
            tokens, added = [], []
            for number, (pool, reach) in enumerate(zip(made.frame_pools, made.reaches, strict=True)):
                down = seen_tokens(height, size, pool, reach)[top // size].tolist()
                across = seen_tokens(width, size, pool, reach)[left // size].tolist()
                blocks, seen = [], []
                for a, y in enumerate(down):
                    for b, x in enumerate(across):
                        if 0 <= y * pool < height and 0 <= x * pool < width:
                            ys = torch.arange(y * pool, (y + 1) * pool).clamp(max=height - 1)
                            xs = torch.arange(x * pool, (x + 1) * pool).clamp(max=width - 1)
                            blocks.append(normed[:, number][:, ys][:, :, xs].flatten(1, 2))
                            seen.append(a * reach + b)
                if not seen:
                    continue
                weight = made.pools[number].weight.flatten()
                tokens.append(torch.stack(blocks, dim=1).movedim(2, -1) @ weight + made.pools[number].bias)
                added.append(made.tables[number][:, rows[number][place][:, seen].to(frames.device)])
            context = torch.cat(tokens, dim=1)
            q, k, v = (
                linear(x).unflatten(-1, (made.heads, -1)).transpose(1, 2)
                for linear, x in ((made.query, newest.flatten(1, 2)), (made.key, context), (made.value, context))
            )
            weights = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5 + torch.cat(added, dim=-1), dim=-1)
            attended = (weights @ v).transpose(1, 2).flatten(2).unflatten(1, newest.shape[1:3]).movedim(-1, 1)
            result[:, :, top : top + size, left : left + size] += attended
    return result


def in_turns(kinds: list[Callable[[], object]], args: argparse.Namespace) -> list[float]:
    """Seconds of each kind, the median of turns after one that is not counted."""
    rows = []
    for _ in range(args.turns + 1):
        row = []
        for kind in kinds:
            start = now(args)
            kind()
            row.append(now(args) - start)
        rows.append(row)
    return [statistics.median(column) for column in zip(*rows[1:], strict=True)]


def now(args: argparse.Namespace) -> float:
    if args.device == "cpu":
        return time.process_time() / args.threads
    torch.cuda.synchronize(args.device)
    return time.perf_counter()


def attention(size: tuple[int, int], args: argparse.Namespace) -> list[float]:
    """Seconds of the loop and of all windows at once on maps of this size, after checking that they give the same."""
    made = TemporalAttention(256).to(args.device)
    frames = torch.randn(2, 4, 256, *size, device=args.device, requires_grad=True)
    with torch.no_grad():
        torch.testing.assert_close(made(frames), loop_over_windows(made, frames), atol=1e-5, rtol=1e-4)
    kinds = (lambda: loop_over_windows(made, frames), lambda: made(frames))
    return in_turns([lambda kind=kind: kind().square().mean().backward() for kind in kinds], args)


@torch.inference_mode()
def frames_a_second(args: argparse.Namespace) -> list[float]:
    """Of single frames, of clips, and of a stream that keeps maps, one video's frames one after the other."""
    single = InstrumentNet(temporal=False, selection=False).to(args.device).eval()
    whole = InstrumentNet(indicator=SELECTION).to(args.device).eval()
    clip, stream = torch.rand(1, 12, args.side, args.side, device=args.device), FrameStream(whole)
    for _ in range(4):
        stream(clip[:, -3:])
    kinds = [lambda: single(clip[:, -3:]), lambda: whole(clip), lambda: stream(clip[:, -3:])]
    return [1 / seconds for seconds in in_turns(kinds, args)]


def peak(args: argparse.Namespace) -> None:
    """Print the peak of a new process in bytes: after loading, training one step, or streaming some frames."""
    network = InstrumentNet(indicator=SELECTION).to(args.device)
    if args.peak == "train":
        optimizer = torch.optim.AdamW(network.parameters(), 6e-5)
        network(torch.rand(2, 12, args.side, args.side, device=args.device)).square().mean().backward()
        optimizer.step()
    elif args.peak != "load":
        stream = FrameStream(network.eval())
        with torch.inference_mode():
            for _ in range(int(args.peak)):
                stream(torch.rand(1, 3, args.side, args.side, device=args.device))
    if args.device != "cpu":
        print(torch.cuda.max_memory_allocated(args.device))
    else:
        # Of this program alone: ru_maxrss would not be below what the process that started it has.
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        print(next(1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")))


def peak_of(kind: str, args: argparse.Namespace) -> float:
    """GiB that a process of its own has at most."""
    given = ("--peak", kind, "--side", args.side, "--device", args.device, "--threads", args.threads)
    done = subprocess.run([sys.executable, __file__, *map(str, given)], check=True, capture_output=True, text=True)
    return int(done.stdout.split()[-1]) / GIB


def attention_rows(table: Table, args: argparse.Namespace) -> None:
    for size in ((args.side // 32, args.side // 32), (30, 40)):  # of the deepest map; of a shallower one
        loop, ours = attention(size, args)
        name = f"attention on {size[0]} x {size[1]}, batch 2, ms"
        table.add_row(name, f"{1000 * loop:.0f}", f"{1000 * ours:.0f}", f"{loop / ours:.1f}", "≥ 10")


def frame_rows(table: Table, args: argparse.Namespace) -> None:
    single, clips, kept = frames_a_second(args)
    for name, rate, target in (("clips", clips, "≥ 0.70"), ("maps kept", kept, "≥ 0.85")):
        table.add_row(f"frames / s, {name}", f"{single:.2f}", f"{rate:.2f}", f"{rate / single:.2f}", target)


def memory_rows(table: Table, args: argparse.Namespace) -> None:
    load, train, short, long = (peak_of(kind, args) for kind in PEAKS)
    table.add_row("peak of training, batch 2, GiB (loaded, trained)", f"{load:.2f}", f"{train:.2f}", "", "")
    ratio = f"{long / short:.2f}"
    table.add_row("peak of a stream, GiB (6, 12 frames)", f"{short:.2f}", f"{long:.2f}", ratio, "≤ 1.05")


def three_instruments(side: int, shift: int) -> NDArray[np.uint8]:
    """Shaft, wrist and jaw of each, from the left into the middle; the ends ``shift`` pixels further."""
    mask = np.zeros((side, side), np.uint8)
    ends = [side * share // 40 + shift for share in (0, 20, 25, 28)]
    for top in (side // 8, side * 3 // 8, side * 5 // 8):
        for part, (left, right) in enumerate(zip([0, *ends[1:3]], ends[1:], strict=True), 1):
            mask[top : top + side // 10, left:right] = part
    return mask


def masked_film(root: Path, side: int) -> MaskedVideos:
    """A film of ten seconds with a mask each second, prepared as by the bundle's train.yaml."""
    make_film(root / "film.mp4", 10, (side, side), 10)
    (root / "masks").mkdir()
    for second in range(10):
        Image.fromarray(three_instruments(side, second)).save(root / "masks" / f"{1000 * second:08d}.png")
    (root / "list.json").write_text(json.dumps({"training": [{"video": "film.mp4", "masks": "masks"}]}))
    settings, classes = FrameSettings((side, side), 10.0), ["shaft", "wrist", "jaw"]
    return MaskedVideos(root, root / "list.json", "training", classes, settings, root / "cache")


def steps_a_second(videos: MaskedVideos, args: argparse.Namespace) -> list[float]:
    """Of steps written out and of the engine on the same ready batches, and of the engine from the store."""
    loader = masked_clip_loader(videos, ClipRule("history", 4, interval=0.2), 2, args.steps, 0)
    ready, loss, device = list(loader), CrossEntropyDice(dice_weight=0.3), torch.device(args.device)
    networks = [InstrumentNet(indicator=SELECTION).to(device).train() for _ in range(3)]
    optimizers = [torch.optim.AdamW(network.parameters(), 6e-5) for network in networks]
    still = dict.fromkeys(("flip", "shift", "brightness", "contrast", "saturation", "hue"), 0.0)
    prepare = StackedFrames(ClipViews(0, **still))

    def written_out() -> None:
        for batch in ready:
            image, label = prepare(batch, device)
            optimizers[0].zero_grad(set_to_none=True)
            value = loss(networks[0](image), label)
            value.backward()
            optimizers[0].step()
            float(value.detach())

    engines = [
        SupervisedEngine(device, 1, data, network, optimizer, loss_function=loss, prepare_batch=prepare)
        for data, network, optimizer in zip((ready, loader), networks[1:], optimizers[1:], strict=True)
    ]
    kinds: list[Callable[[], object]] = [written_out, *(engine.run for engine in engines)]
    return [args.steps / seconds for seconds in in_turns(kinds, args)]


def training_rows(table: Table, args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plain, engine, stored = steps_a_second(masked_film(Path(folder), args.side), args)
    for name, one, other in (("engine", plain, engine), ("store", engine, stored)):
        table.add_row(f"training steps / s, {name}", f"{one:.3f}", f"{other:.3f}", f"{other / one:.2f}", "≥ 0.95")


def score_rows(table: Table, args: argparse.Namespace) -> None:
    rng = np.random.default_rng(0)
    truth, near = three_instruments(args.side, 0), three_instruments(args.side, 7)
    noise = rng.integers(0, 4, truth.shape, np.uint8)
    for name, called, target in (
        ("near", near, "≤ 30"), ("with specks", np.where(rng.random(truth.shape) < 0.01, noise, near), ""),
    ):  # fmt: skip
        took = []
        for _ in range(2 * args.turns + 1):
            start = time.process_time()
            class_scores(truth, called, 3)
            took.append(time.process_time() - start)
        table.add_row(f"scores of a frame, {name}, ms", "", f"{1000 * statistics.median(took[1:]):.0f}", "", target)


PARTS = {
    "attention": attention_rows,
    "frames": frame_rows,
    "memory": memory_rows,
    "training": training_rows,
    "scores": score_rows,
}


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    if args.peak:
        return peak(args)
    table = Table("", "plain", "FedMed", "ratio", "target", title=f"{args.device}, {args.threads} threads")
    for part in args.parts:
        PARTS[part](table, args)
    Console().print(table)


if __name__ == "__main__":
    main()
