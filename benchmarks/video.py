#!/usr/bin/env python3
"""Cost of video: taking frames out, memory, training from the store, and a restart?

Makes small films, then measures seven things, each against a plain counterpart in the same run and in turns, so that a
busy machine slows both alike:

    extraction   frames at 1 a second against a bare loop of PyAV that decodes all and scales the same (target 0.90)
    memory       peak of preparing a 60-minute film against a 6-minute one, each in its own process (target 1.10)
    inference    the same of the bundle for phases, overlay demo
    training     steps a second from the store against ready-made tensors (target 0.95)
    cycles       the loss of 2 clips of 16 frames with 2048 features against loops over frames (target 20)
    engines      steps a second with labels and on clips alone against the same steps written out (target 0.95)
    restart      seconds from a new process's imports to its first batch, everything prepared (target 2 s)

    python benchmarks/video.py --threads 1
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedmed.data.video.clips import ClipRule, PreparedVideos, clip_loader, unit_float
from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.source import THREADS
from fedmed.data.video.stored_video import Extraction
from fedmed.files import CHECKOUT
from fedmed.systems.fedcy.engine import CycleEngine, GuidedEngine
from fedmed.systems.fedcy.loss import CycleConsistencyLoss, nt_xent
from fedmed.training.video_frames import ClipBatches, FrameBatches

BUNDLE = CHECKOUT / "bundles" / "surgical_phase_classification"

PEAK = """
import sys
from pathlib import Path
import av  # counted before, not as growth
from fedmed.data.video.frame_settings import FrameSettings
from fedmed.data.video.video_store import VideoStore
Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the imports
VideoStore(sys.argv[2], FrameSettings((48, 64), 1)).get(sys.argv[1])
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""
INFER = """
import re, sys
from pathlib import Path
import torch
from monai.bundle import ConfigParser
from fedmed.bundles.infer import run_inference
bundle, film, short, out = map(Path, sys.argv[1:])
configs = [bundle / "configs" / f"{name}.yaml" for name in ("inference", "demo")]
sys.path.append(str(bundle))
parser = ConfigParser()
parser.read_config([str(path) for path in configs])
out.mkdir()
torch.save(parser.get_parsed_content("network_def").state_dict(), out / "model.pt")
values = {"output_dir": str(out), "model_path": str(out / "model.pt"), "device": "cpu"}
run_inference(bundle, configs, {**values, "dataset_dir": str(short)})  # what is imported on first use is not counted
Path("/proc/self/clear_refs").write_text("5")
run_inference(bundle, configs, {**values, "dataset_dir": str(film)})
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text()).group(1))
"""
RESTART = """
import sys, time
from fedmed.data.video.clips import PreparedVideos, clip_loader
from fedmed.data.video.clips import ClipRule
from fedmed.data.video.frame_settings import FrameSettings
side, cache, films = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
start = time.perf_counter()
prepared = PreparedVideos([{"video": film} for film in films], FrameSettings((side, side), 1), cache)
next(iter(clip_loader(prepared, ClipRule("partition", 8), 4, 1000, 0)))
print(time.perf_counter() - start)
"""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=224, help="height and width of frames in training (default 224)")
    parser.add_argument("--batch", type=int, default=4, help="clips of a batch (default 4)")
    parser.add_argument("--clip", type=int, default=8, help="frames of a clip (default 8)")
    parser.add_argument("--steps", type=int, default=10, help="timed training steps of each kind (default 10)")
    parser.add_argument("--turns", type=int, default=9, help="timed extractions of each kind (default 9)")
    parser.add_argument("--films", type=int, default=4, help="films of 40 s, 848 x 480 pixels (default 4)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser.parse_args()


def make_film(path: Path, seconds: int, size: tuple[int, int], rate: int, seed: int = 0) -> Path:
    """Write a film (width, height) of a texture that moves, in H.264."""
    width, height = size
    picture = np.random.default_rng(seed).integers(0, 255, (height // 8, width // 8, 3), dtype=np.uint8)
    picture = np.kron(picture, np.ones((8, 8, 1), np.uint8))
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=rate, options={"preset": "ultrafast"})
        stream.height, stream.width, stream.pix_fmt = *picture.shape[:2], "yuv420p"
        for number in range(seconds * rate):
            frame = av.VideoFrame.from_ndarray(np.roll(picture, 3 * number, axis=1), format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, rate)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def bare(path: Path, side: int, rate: int) -> int:
    """Decode all frames and scale each one of a second, by counting, with nothing else done."""
    taken = 0
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type, stream.codec_context.thread_count = "AUTO", THREADS
        reformatter = av.video.reformatter.VideoReformatter()
        for number, frame in enumerate(container.decode(stream)):
            if number % rate == 0:
                taken += reformatter.reformat(frame, side, side, format="rgb24", threads=1).to_ndarray().shape[2] // 3
    return taken


def seconds(work: Callable[[], int]) -> float:
    start = time.perf_counter()
    count = work()
    assert count == 40, f"{count} frames where 40 are to be taken"
    return time.perf_counter() - start


def extraction(film: Path, args: argparse.Namespace) -> tuple[float, float]:
    """Frames of the film a second, of the bare loop and of FedMed: medians of turns."""
    settings = FrameSettings((args.side, args.side), 1)
    kinds = (lambda: bare(film, args.side, 25), lambda: sum(1 for _ in Extraction(film, settings)))
    times = [[seconds(kind) for kind in kinds] for _ in range(args.turns + 1)][1:]
    plain, ours = (statistics.median(column) for column in zip(*times, strict=True))
    return 1000 / plain, 1000 / ours


def in_process(code: str, *given: object) -> float:
    """The number that a new process prints."""
    command = [sys.executable, "-c", code, *map(str, given)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def training(films: list[Path], root: Path, args: argparse.Namespace) -> tuple[float, float]:
    """Steps a second with ready-made tensors and from the store."""
    from monai.networks.nets import resnet18

    device, shape = torch.device(args.device), (args.batch, args.clip, 3, args.side, args.side)
    prepared = PreparedVideos(
        [{"video": film} for film in films], FrameSettings((args.side, args.side), 1), root / "cache"
    )
    loader = clip_loader(prepared, ClipRule("partition", args.clip), args.batch, args.steps + 2, 0)
    ready = torch.rand(shape)
    kinds: list[Iterator] = [iter([{"image": ready}] * (args.steps + 2)), iter(loader)]
    network = resnet18(spatial_dims=2, n_input_channels=3, num_classes=6, conv1_t_stride=2).to(device)
    optimizer = torch.optim.SGD(network.parameters(), 0.01)
    times = []
    for _ in range(args.steps + 2):
        row = []
        for batches in kinds:
            start = time.perf_counter()
            image = unit_float(next(batches)["image"].to(device, non_blocking=True)).flatten(0, 1)
            optimizer.zero_grad(set_to_none=True)
            network(image).square().mean().backward()
            optimizer.step()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            row.append(time.perf_counter() - start)
        times.append(row)
    plain, ours = (statistics.median(column) for column in zip(*times[2:], strict=True))
    return 1 / plain, 1 / ours


def in_turns(kinds: Sequence[Callable[[], object]], turns: int) -> list[float]:
    """Median seconds of each kind, whose turns alternate; the first turn does not count."""
    rows = []
    for _ in range(turns + 1):
        rows.append([])
        for kind in kinds:
            start = time.perf_counter()
            kind()
            rows[-1].append(time.perf_counter() - start)
    return [statistics.median(column) for column in zip(*rows[1:], strict=True)]


def cycles(turns: int) -> tuple[float, float]:
    """Losses a second of 2 clips x 16 frames x 2048 features, there and back: by loops, and FedMed's."""
    rows, made = torch.randn(2, 16, 2048), CycleConsistencyLoss()

    def loops() -> float:
        total, index = 0.0, torch.arange(1, 17)
        for u, v in (rows, rows.flip(0)):
            for k in range(16):
                alpha = torch.softmax(torch.stack([torch.cosine_similarity(u[k], row, dim=0) for row in v]) / 0.05, 0)
                near = sum(a * row for a, row in zip(alpha, v, strict=True))
                beta = torch.softmax(torch.stack([torch.cosine_similarity(near, row, dim=0) for row in u]) / 0.05, 0)
                mean = (beta * index).sum()
                variance = (beta * (index - mean) ** 2).sum().clamp(min=1e-6)
                total += float((k + 1 - mean) ** 2 / variance + 0.001 * variance.log()) / 16
        return total

    assert abs(loops() / float(made(rows).loss) - 1) < 1e-2, "the loops compute something else"
    plain, ours = in_turns((loops, lambda: made(rows)), turns)
    return 1 / plain, 1 / ours


class FrameNet(nn.Module):
    """ResNet-18 as features, and one layer as classifier."""

    def __init__(self) -> None:
        super().__init__()
        from monai.networks.nets import resnet18

        self.features = resnet18(spatial_dims=2, n_input_channels=3, conv1_t_stride=2, feed_forward=False)
        self.classifier = nn.Linear(512, 6)

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.features(images))


def engine(labelled: bool, args: argparse.Namespace) -> tuple[float, float]:
    """Steps a second written out, and of the engine, with 32 frames: with labels, or 2 clips of 16 without."""
    shape = (32, 1) if labelled else (2, 16)
    image = torch.randint(256, (*shape, 3, args.side, args.side), dtype=torch.uint8)
    batch = {"image": image, "labels": torch.arange(32)[:, None] % 6, "part": torch.arange(16).expand(2, 16) / 16}
    batches, device, loss = [batch] * args.steps, torch.device(args.device), CycleConsistencyLoss()
    plain, ours = (FrameNet().to(device).train() for _ in range(2))
    step, its = (torch.optim.Adam(network.parameters(), 1e-5) for network in (plain, ours))

    def written_out() -> None:
        for given in batches:
            step.zero_grad(set_to_none=True)
            features = plain.features(unit_float(given["image"].to(device)).flatten(0, 1))
            if labelled:
                truth = given["labels"][:, 0].to(device)
                value = cross_entropy(plain.classifier(features), truth) + 10 * nt_xent(features, truth)
            else:
                value = 10 * loss(features.unflatten(0, shape)).loss
            value.backward()
            step.step()
            float(value.detach())

    if labelled:
        trainer = GuidedEngine(device, 1, batches, ours, its, prepare_batch=FrameBatches())
    else:
        trainer = CycleEngine(device, 1, batches, ours, its, prepare_batch=ClipBatches())
    timings = in_turns((written_out, trainer.run), 3)
    return args.steps / timings[0], args.steps / timings[1]


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    table = Table("", "plain", "FedMed", "ratio", "target", title=f"{args.device}, {args.threads} threads")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        films = [make_film(root / f"film{n}.mp4", 40, (848, 480), 25, n) for n in range(args.films)]
        plain, ours = extraction(films[0], args)
        table.add_row("extraction, frames / s", f"{plain:.0f}", f"{ours:.0f}", f"{ours / plain:.2f}", "≥ 0.90")
        lengths = [make_film(root / f"{minutes}.mp4", 60 * minutes, (64, 48), 10) for minutes in (6, 60)]
        short, long = (in_process(PEAK, film, root / "cache") / 1024 for film in lengths)
        table.add_row("peak memory, MB (6, 60 min)", f"{short:.0f}", f"{long:.0f}", f"{long / short:.2f}", "≤ 1.10")
        few, many = (in_process(INFER, BUNDLE, film, films[0], root / film.stem) / 1024 for film in lengths)
        table.add_row("memory at inference, MB (6, 60 min)", f"{few:.0f}", f"{many:.0f}", f"{many / few:.2f}", "≤ 1.10")
        plain, ours = training(films, root, args)
        table.add_row("training, steps / s", f"{plain:.2f}", f"{ours:.2f}", f"{ours / plain:.2f}", "≥ 0.95")
        plain, ours = cycles(args.turns)
        table.add_row("losses of cycles / s", f"{plain:.1f}", f"{ours:.0f}", f"{ours / plain:.0f}", "≥ 20")
        for labelled, name in ((True, "with labels"), (False, "on clips")):
            plain, ours = engine(labelled, args)
            table.add_row(f"engine {name}, steps / s", f"{plain:.2f}", f"{ours:.2f}", f"{ours / plain:.2f}", "≥ 0.95")
        first = in_process(RESTART, args.side, root / "cache", *films)
        table.add_row("first batch after a restart, s", "", f"{first:.2f}", "", "≤ 2")
    Console().print(table)


if __name__ == "__main__":
    main()
