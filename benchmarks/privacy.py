#!/usr/bin/env python3
"""A site's limits in numbers: what noise promises (account), what it does to a model (dice), what it costs (cost).

And what an amplitude shows of an image (amplitude).

    python benchmarks/privacy.py account
    python benchmarks/privacy.py dice jobs/covid_fssl --clip 5 --noise 0 0.001 0.01 1
    python benchmarks/privacy.py cost [--mb 75]
    python benchmarks/privacy.py amplitude docs/images/amplitude.png

``account`` adds the exact ε of Gaussian noise in brackets (Balle and Wang 2018), below which no bound can fall.
``dice`` runs the job once for each noise, with the same limits at every demo site and noise from a fixed seed, and
prints the closing scores. ``cost`` is the least CPU time of one update on one thread. ``amplitude`` draws synthetic
frames of two hospitals, the first one rebuilt of its amplitude with random phases, and with the amplitude of the other.
"""

import argparse
import json
import math
import os
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import torch
import yaml
from scipy.optimize import brentq
from scipy.stats import norm

from fedmed.errors import FedMedError
from fedmed.federation.loop import run_job
from fedmed.jobs.job_folder import read_job
from fedmed.messages.answers import Update
from fedmed.privacy.limits import SiteLimits, read_ledger
from fedmed.privacy.protection import SENSITIVITY, epsilon
from fedmed.reports.palette import save_picture
from fedmed.reports.words import plain_number
from fedmed.settings.site import parse_site
from fedmed.systems.algorithms.feddg import half_spectra, mix_amplitudes
from fedmed_demo.federation import LAP_TOOLS
from fedmed_demo.surgery.recording import DrawnRecording

SCORES = ["val_dice", "dice_mean", "dice_std", "n_cases"]


def exact(noise: float, answers: int, delta: float) -> float:
    mu = math.sqrt(answers) * SENSITIVITY / noise

    def excess(eps: float) -> float:
        return norm.cdf(mu / 2 - eps / mu) - math.exp(eps + norm.logcdf(-mu / 2 - eps / mu)) - delta

    return brentq(excess, 0, mu * mu + 20 * mu)


def account(delta: float, noises: list[float], rounds: list[int]) -> None:
    print(f"ε at δ = {delta:g}, in brackets the exact value\n")
    print(f"| noise_multiplier | {' | '.join(f'{n} rounds' for n in rounds)} |")
    print(f"|---:|{'---:|' * len(rounds)}")
    for z in noises:
        cells = [f"{plain_number(epsilon([(z, n)], delta))} ({plain_number(exact(z, n, delta))})" for n in rounds]
        print(f"| {z:g} | {' | '.join(cells)} |")


def dice(job: Path, clip: float, noises: list[float]) -> None:
    sites = sorted(read_job(job).study.sites)
    print(f"| noise_multiplier | std | ε | selected after | {' | '.join(sites)} |")
    print(f"|---:|---:|---:|---:|{'---:|' * len(sites)}")
    for z in noises:
        with tempfile.TemporaryDirectory() as temporary:
            root = Path(temporary)
            limits = {"clip_norm": clip}
            limits |= {"noise_multiplier": z, "noise_seed": 0, "allowed_metrics": SCORES} if z else {}
            settings = {site: _site(root, site, limits) for site in sites}
            try:
                run_job(job, root / "ws", settings)
            except FedMedError as error:
                print(f"| {z:g} | {z * clip:g} | – | ended: {error} |")
                continue
            result = json.loads((root / "ws/server/simulate_job/fedmed/result.json").read_text())
            spent = [line["epsilon"] for s in sites for line in read_ledger(root / "ws" / s) if "epsilon" in line]
        best = result["best_round"]
        chosen = "–" if best is None else "the start" if best < 0 else f"round {best + 1}"
        scores = [f"{result['test'].get(site, {}).get('dice_mean', math.nan):.3f}" for site in sites]
        largest = plain_number(max(spent)) if spent else "∞"
        print(f"| {z:g} | {z * clip:g} | {largest} | {chosen} | {' | '.join(scores)} |", flush=True)


def _site(root: Path, site: str, limits: dict) -> object:
    path = root / f"{site}.yaml"
    values = {"demo": "chest_ct", "device": "cpu", "privacy": {**limits, "account": f"{site}.json"}}
    path.write_text(yaml.safe_dump(values))
    return parse_site(site, values, path)


def cost(megabytes: float, repeats: int = 3) -> None:
    tensors = {f"layer{i}": torch.randn(int(megabytes * 1e6 / 4 / 50)) for i in range(50)}
    kinds = {"recorded": {}, "clipped": {"clip_norm": 1.0}}
    kinds["clipped, with noise"] = {"clip_norm": 1.0, "noise_multiplier": 1.0, "allowed_metrics": []}
    with tempfile.TemporaryDirectory() as temporary:
        for name, limits in kinds.items():
            site, least = _site(Path(temporary), "ct_north", limits), math.inf
            for _ in range(repeats):
                started = time.process_time()
                SiteLimits(site, Path(temporary)).apply(Update("ct_north", 0, tensors, 1, 1))
                least = min(least, time.process_time() - started)
            print(f"{name:22s} {least:6.2f} s for an update of {megabytes:g} MB")


def retrieved(image: torch.Tensor, border: torch.Tensor, steps: int = 400, tail: int = 50) -> torch.Tensor:
    """A grey image (H, W) sought from its amplitude by somebody who knows which pixels are black (Fienup 1982)."""
    size, best = torch.fft.fft2(image).abs(), (math.inf, image)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        estimate = torch.rand(image.shape, generator=generator, dtype=image.dtype)
        for step in range(steps):
            spectrum = torch.fft.fft2(estimate)
            fitted = torch.fft.ifft2(size * spectrum / spectrum.abs().clamp(min=1e-12)).real
            possible = (fitted >= 0) & (fitted <= 1) & ~border
            estimate = torch.where(possible, fitted, estimate - 0.9 * fitted if step < steps - tail else 0)
        best = min(best, (float((torch.fft.fft2(estimate).abs() - size).norm()), estimate), key=lambda pair: pair[0])
    return best[1]


def amplitude(path: Path, second: float = 20.0) -> None:
    """Draw what is left of a frame without its phases, what the phases keep, and what may be sought from amplitudes."""
    frames = []
    for hospital in ("lap_hei1", "lap_cho1"):
        recording = DrawnRecording(LAP_TOOLS[hospital], "amplitude")
        frame = next(frame for frame in recording if frame.time >= second)
        frames.append(torch.from_numpy(frame.image).permute(2, 0, 1).double() / 255)
    image, other = torch.stack(frames)[:, None]
    drawn = torch.rand(image.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise = torch.fft.rfft2(drawn)  # its phases are those of a real image
    rebuilt = torch.fft.irfft2(torch.fft.rfft2(image).abs() * noise / noise.abs(), s=image.shape[2:])
    moved = mix_amplitudes(image, half_spectra(other), torch.ones(1))
    shown = {"a frame": image, "its amplitude, random phases": rebuilt, "another hospital's frame": other}
    shown["the first, with the other's amplitude"] = moved
    grey = other[0].mean(dim=0)
    sought = retrieved(grey, border=grey < 0.02)
    shown["the second, sought from its amplitude"] = sought.expand(1, 3, -1, -1)
    figure, places = plt.subplots(1, len(shown), figsize=(15, 2.5), layout="constrained")
    for axes, (title, picture) in zip(places, shown.items(), strict=True):
        axes.imshow(picture[0].clamp(0, 1).permute(1, 2, 0))
        axes.set_title(title, color="white", fontsize=10)
        axes.axis("off")
    save_picture(figure, path, 100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    table = commands.add_parser("account", help="ε for rounds and noise")
    table.add_argument("--delta", type=float, default=1e-5)
    table.add_argument("--noise", type=float, nargs="+", default=[0.5, 1, 2, 4, 8, 16, 32])
    table.add_argument("--rounds", type=int, nargs="+", default=[1, 14, 50, 200])
    runs = commands.add_parser("dice", help="scores of a demo job")
    runs.add_argument("job", type=Path)
    runs.add_argument("--clip", type=float, required=True)
    runs.add_argument("--noise", type=float, nargs="+", required=True)
    commands.add_parser("cost", help="seconds an update").add_argument("--mb", type=float, default=75)
    commands.add_parser("amplitude", help="a picture of it").add_argument("png", type=Path)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    if options.command == "account":
        account(options.delta, options.noise, options.rounds)
    elif options.command == "dice":
        dice(options.job, options.clip, options.noise)
    elif options.command == "cost":
        cost(options.mb)
    else:
        amplitude(options.png)


if __name__ == "__main__":
    main()
