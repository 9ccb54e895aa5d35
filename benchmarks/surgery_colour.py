#!/usr/bin/env python3
"""Scores that colour alone reaches in the synthetic operating room: far less than a small network finds.

Renders some operations of each hospital of ``lap_tools`` at one frame a second, trains linear classifiers on colours
and a small network on the same frames, and prints how both do on operations of other patients: balanced accuracy, for
tools the mean over tools, beside chance. Some minutes on one core.

``--kind lap_phases``: phases alone, at all six hospitals.
``--kind lap_instruments``: of the four sites that train, parts alone, and which part a pixel of an instrument is.
"""

import argparse
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise

import cv2
import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fedmed.data.operation_names import PHASES, TOOLS
from fedmed_demo.federation import LAP_INSTRUMENTS, LAP_PHASES, LAP_TOOLS
from fedmed_demo.surgery.profile import PARTS, HospitalProfile
from fedmed_demo.surgery.recording import DrawnRecording, Room

SIZE = (64, 48)  # columns and rows that are classified


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=("lap_tools", "lap_phases", "lap_instruments"), default="lap_tools")
    parser.add_argument("--patients", type=int, default=8, help="of each hospital for training; half as many for tests")
    parser.add_argument("--epochs", type=int, default=12, help="of the small network")
    options = parser.parse_args()
    torch.set_num_threads(1)
    began = time.process_time()
    if options.kind == "lap_instruments":
        parts_alone(options.patients, options.epochs)
        return
    if options.kind == "lap_phases":
        phases_alone(options.patients, options.epochs)
        return
    train = frames(LAP_TOOLS.values(), 0, options.patients)
    test = frames(LAP_TOOLS.values(), options.patients, options.patients + max(options.patients // 2, 1))
    print(f"{len(train[0])} and {len(test[0])} frames in {time.process_time() - began:.0f} s of one core")
    present = train[2].mean(0)
    print("seen:", ", ".join(f"{tool} {100 * share:.0f} %" for tool, share in zip(TOOLS, present, strict=True)))
    print(f"{'balanced accuracy':<48}{'phases':>8}{'tools':>8}{'parts':>8}", flush=True)
    show("chance", (1 / len(PHASES), 0.5, 1 / len(PARTS)))
    show("mean colour (parts: of the pixel), linear", linear(lambda images: images.mean((1, 2)), train, test))
    show("mean, spread and quantiles of colours, linear", linear(quantiles, train, test))
    show("pixels (16 x 12), linear", linear(thumbnails, train, test))
    show("small network", network(train, test, options.epochs))


def show(name: str, scores: Sequence[float | None]) -> None:
    cells = "".join(f"{'–' if score is None else format(score, '.2f'):>8}" for score in scores)
    print(f"{name:<48}{cells}", flush=True)


def parts_alone(patients: int, epochs: int) -> None:
    """Balanced accuracy of the parts of each pixel, and of the part of those that are of an instrument."""
    hospitals = [one for one in LAP_INSTRUMENTS.values() if "training" in one.lists and not one.pictures]
    train, test = frames(hospitals, 0, patients), frames(hospitals, patients, patients + max(patients // 2, 1))
    shares = ", ".join(f"{name} {100 * (test[3] == n).mean():.1f} %" for n, name in enumerate(PARTS))
    print(f"{len(train[0])} and {len(test[0])} frames; pixels: {shares}")
    print(f"{'balanced accuracy':<48}{'parts':>8}{'which':>8}", flush=True)
    show("chance", (1 / len(PARTS), 1 / (len(PARTS) - 1)))
    inner, outer = (torch.tensor(part[0][:, ::2, ::2].reshape(-1, 3)) for part in (train, test))
    value, truth = (part[3][:, ::2, ::2].reshape(-1).astype(np.int64) for part in (train, test))
    score = balanced(fit(inner, torch.tensor(value), outer, len(PARTS)), truth)
    metal, tested = value > 0, truth > 0
    which = fit(inner[metal], torch.tensor(value[metal] - 1), outer[tested], len(PARTS) - 1)
    show("colour of the pixel, linear", (score, balanced(which, truth[tested] - 1)))
    called = segmented(trained(train, epochs), test[0])
    there = test[3] > 0
    called_part = called[:, 1:].argmax(1)[there]
    show("small network", (balanced(called.argmax(1), test[3]), balanced(called_part, test[3][there] - 1)))


def phases_alone(patients: int, epochs: int) -> None:
    """Balanced accuracy of the phase: of each pixel's frame by its colour, and of whole frames."""
    hospitals = LAP_PHASES.values()
    train, test = frames(hospitals, 0, patients), frames(hospitals, patients, patients + max(patients // 2, 1))
    print(f"{len(train[0])} and {len(test[0])} frames")
    print(f"{'balanced accuracy':<48}{'phases':>8}", flush=True)
    show("chance", (1 / len(PHASES),))
    inner, outer = (torch.tensor(part[0][:, 3::6, 4::8].reshape(-1, 3)) for part in (train, test))
    value, truth = (np.repeat(part[1], len(pixels) // len(part[1])) for part, pixels in ((train, inner), (test, outer)))
    show("colour of a single pixel, linear", (balanced(fit(inner, torch.tensor(value), outer, len(PHASES)), truth),))
    for name, features in {
        "mean colour, linear": lambda images: images.mean((1, 2)),
        "mean, spread and quantiles of colours, linear": quantiles,
        "pixels (16 x 12), linear": thumbnails,
    }.items():
        x, other = (torch.tensor(features(part[0])).float() for part in (train, test))
        show(name, (balanced(fit(x, torch.tensor(train[1]), other, len(PHASES)), test[1]),))
    model = trained(train, epochs)
    with torch.no_grad():
        outputs = [model(batch)[0] for batch in (torch.tensor(test[0]).permute(0, 3, 1, 2) - 0.4).split(64)]
    show("small network", (balanced(torch.cat(outputs).numpy().argmax(1), test[1]),))


def frames(
    hospitals: Iterable[HospitalProfile], first: int, last: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images (N, H, W, 3) 0 … 1, phases (N,), tools (N, 6) and masks (N, H, W) of patients ``first`` to ``last``."""
    rendered: list[tuple[np.ndarray, int, tuple[bool, ...], np.ndarray]] = []
    for hospital in hospitals:
        for number in range(first, last):
            recording = DrawnRecording(hospital, f"colour-{number}")
            room = Room(recording)
            for second in range(int(recording.operation.seconds)):
                frame = room.frame(second, float(second))
                image = cv2.resize(frame.image, SIZE, interpolation=cv2.INTER_AREA)
                mask = cv2.resize(frame.mask, SIZE, interpolation=cv2.INTER_NEAREST)
                rendered.append((image, frame.phase, frame.present, mask))
    images, phases, tools, masks = (np.stack(part) for part in zip(*rendered, strict=True))
    return images.astype(np.float32) / 255, phases, tools.astype(np.float32), masks


def quantiles(images: np.ndarray) -> np.ndarray:
    flat = images.reshape(len(images), -1, 3)
    parts = [flat.mean(1), flat.std(1), *np.quantile(flat[:, ::4], (0.05, 0.25, 0.5, 0.75, 0.95), axis=1)]
    return np.concatenate(parts, 1)


def thumbnails(images: np.ndarray) -> np.ndarray:
    return images.reshape(len(images), 12, 4, 16, 4, 3).mean((2, 4)).reshape(len(images), -1)


def linear(features, train, test) -> tuple[float, float, float | None]:
    """Scores of linear classifiers of whole frames; of single pixels only with mean colours, which each of them has."""
    x, other = (torch.tensor(features(part[0])).float() for part in (train, test))
    phase = fit(x, torch.tensor(train[1]), other, len(PHASES))
    tools = [fit(x, torch.tensor(train[2][:, n]).long(), other, 2) for n in range(len(TOOLS))]
    scores = [balanced(guess, test[2][:, n]) for n, guess in enumerate(tools)]
    pixels = None
    if x.shape[1] == 3:
        inner, outer = (part[0][::3].reshape(-1, 3)[::7] for part in (train, test))
        value, truth = (part[3][::3].reshape(-1)[::7] for part in (train, test))
        pixels = balanced(fit(torch.tensor(inner), torch.tensor(value).long(), torch.tensor(outer), len(PARTS)), truth)
    return balanced(phase, test[1]), float(np.mean(scores)), pixels


def fit(x: torch.Tensor, y: torch.Tensor, other: torch.Tensor, classes: int) -> np.ndarray:
    """Logistic regression with balanced classes; the classes found for ``other``."""
    mean, spread = x.mean(0), x.std(0) + 1e-6
    x, other = (x - mean) / spread, (other - mean) / spread
    layer = nn.Linear(x.shape[1], classes)
    nn.init.zeros_(layer.weight), nn.init.zeros_(layer.bias)
    weight = len(y) / (classes * torch.bincount(y, minlength=classes).clamp(min=1))
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=100)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(layer(x), y, weight) + 1e-3 * layer.weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return layer(other).argmax(1).numpy()


def balanced(guess: np.ndarray, truth: np.ndarray) -> float:
    """Mean over the classes that occur of the share of each that is found."""
    return float(np.mean([(guess[truth == value] == value).mean() for value in np.unique(truth)]))


class Small(nn.Module):
    """Four blocks of convolutions; the first three also tell the part of each pixel."""

    def __init__(self) -> None:
        super().__init__()
        wide = (12, 24, 32, 48)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.ReLU())])
        for a, b in pairwise(wide):
            convolutions = (nn.Conv2d(a, b, 3, padding=1), nn.Conv2d(b, b, 3, padding=1))
            self.blocks.append(nn.Sequential(*(m for c in convolutions for m in (c, nn.GroupNorm(4, b), nn.ReLU()))))
        self.phases, self.tools = nn.Linear(96, len(PHASES)), nn.Linear(96, len(TOOLS))
        self.parts = nn.Conv2d(12 + 24 + 32, len(PARTS), 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        size, maps = x.shape[2:], []
        for block in self.blocks:
            x = block(x)
            maps.append(functional.interpolate(x, size))
            x = functional.max_pool2d(x, 2)
        pooled = torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1)
        return self.phases(pooled), self.tools(pooled), self.parts(torch.cat(maps[:3], 1))


def trained(train, epochs: int) -> Small:
    """A small network that has learnt phases, tools and parts together."""
    torch.manual_seed(0)
    model = Small()
    images, phases, tools, masks = (torch.tensor(part) for part in train)
    images, masks = images.permute(0, 3, 1, 2) - 0.4, masks.long()
    weight = len(phases) / torch.bincount(phases, minlength=len(PHASES)).clamp(min=1) / len(PHASES)
    seldom = (1 - tools.mean(0)) / tools.mean(0).clamp(min=1e-3)
    parts = torch.bincount(masks.flatten(), minlength=4).double().rsqrt().float()
    steps = epochs * (len(images) // 64)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, steps)
    for _ in range(steps):
        pick = torch.randint(len(images), (64,))
        phase, tool, part = model(images[pick])
        loss = functional.cross_entropy(phase, phases[pick], weight)
        loss = loss + functional.binary_cross_entropy_with_logits(tool, tools[pick], pos_weight=seldom)
        loss = loss + functional.cross_entropy(part, masks[pick], parts / parts.mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def segmented(model: Small, images: np.ndarray) -> np.ndarray:
    """(N, 4, H, W) outputs for the parts of each pixel."""
    with torch.no_grad():
        return torch.cat(
            [model(batch)[2] for batch in (torch.tensor(images).permute(0, 3, 1, 2) - 0.4).split(64)]
        ).numpy()


def network(train, test, epochs: int) -> tuple[float, float, float]:
    model = trained(train, epochs)
    with torch.no_grad():
        outputs = [model(batch) for batch in (torch.tensor(test[0]).permute(0, 3, 1, 2) - 0.4).split(64)]
    phase, tool, part = (torch.cat(one).numpy() for one in zip(*outputs, strict=True))
    tool_scores = [balanced(tool[:, n] > 0, test[2][:, n] > 0) for n in range(len(TOOLS))]
    print("  each tool:", ", ".join(f"{t} {s:.2f}" for t, s in zip(TOOLS, tool_scores, strict=True)))
    return balanced(phase.argmax(1), test[1]), float(np.mean(tool_scores)), balanced(part.argmax(1), test[3])


if __name__ == "__main__":
    main()
