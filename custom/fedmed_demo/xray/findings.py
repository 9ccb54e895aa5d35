"""Findings in a lung, and what only looks like one: consolidation, interstitial disease, and distractions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedmed_demo.grid import smooth_noise
from fedmed_demo.xray.body import Thorax
from fedmed_demo.xray.view import View

CLASSES = ("normal", "consolidation", "interstitial")


@dataclass(frozen=True)
class Severity:
    """Visibility of findings: ranges of the attenuation that they add, as shares of water's."""

    consolidation: tuple[float, float] = (0.65, 1.0)  # of consolidated lung over aerated lung
    size: tuple[float, float] = (32.0, 62.0)  # radius of a consolidation in mm of the phantom
    haze: tuple[float, float] = (0.05, 0.13)  # of ground glass over both lungs
    lines: tuple[float, float] = (8.0, 16.0)  # mm of water in the network of an interstitial disease


def consolidate(rng: np.random.Generator, thorax: Thorax, severity: Severity) -> np.ndarray:
    """Attenuation added by dense lung, usually of one side and one lobe; the coarse grid's shape, float32."""
    grid = thorax.grid
    x, _, z = grid.axes
    side = 1 if rng.random() < 0.58 else -1
    extra = np.zeros(grid.shape, dtype=np.float32)
    for spot in range(1 + (rng.random() < 0.25)):
        if spot and rng.random() < 0.35:
            side = -side
        inside = np.flatnonzero((thorax.lungs > 0.6) & (np.sign(x) == side))
        height = np.broadcast_to(z, grid.shape).reshape(-1)[inside]
        lobe = rng.choice([0.22, 0.45, 0.75], p=[0.5, 0.25, 0.25]) * thorax.sitter.patient.height
        weight = np.exp(-(((height - lobe - 20) / 30) ** 2)) + 1e-6
        index = np.unravel_index(rng.choice(inside, p=weight / weight.sum()), grid.shape)
        extra = np.maximum(extra, _spot(rng, thorax, severity, index, 1.0 if not spot else 0.65))
    return extra * thorax.lungs * (np.sign(x) == side if rng.random() < 0.8 else 1)


def _spot(
    rng: np.random.Generator, thorax: Thorax, severity: Severity, index: Sequence[int], share: float
) -> np.ndarray:
    """One dense region round a voxel with a soft, uneven border, sharp where it meets a fissure."""
    grid = thorax.grid
    dx, dy, dz = (a - a.reshape(-1)[i] for a, i in zip(grid.axes, index, strict=True))
    size = float(rng.uniform(*severity.size)) * share**0.5
    wide, deep, tall = size * rng.uniform(0.75, 1.25, 3) * np.array([1.0, 1.25, 0.9])
    rho = np.sqrt((dx / wide) ** 2 + (dy / deep) ** 2 + (dz / tall) ** 2)
    rho = rho + 0.28 * smooth_noise(rng, grid, 24.0)
    cover = 1 / (1 + np.exp(np.clip((rho - 1) / 0.13, -20, 20)))
    if rng.random() < 0.4:  # a fissure stops it
        edge = 0.45 * size if rng.random() < 0.5 else -0.45 * size
        cover *= np.clip((edge - dz if edge > 0 else dz - edge) / 5 + 0.5, 0, 1)
    return (cover * np.float32(share * rng.uniform(*severity.consolidation))).astype(np.float32)


def haze(rng: np.random.Generator, thorax: Thorax, severity: Severity) -> np.ndarray:
    """Attenuation added by ground glass of both lungs, more below and beside the hila; the coarse grid's shape."""
    z = thorax.grid.axes[2] / np.float32(thorax.sitter.patient.height)
    low = rng.uniform(0.2, 1.0)
    uneven = 1 + 0.35 * smooth_noise(rng, thorax.grid, 45.0) + low * (0.45 - z)
    return (thorax.lungs * np.maximum(uneven, 0.1) * rng.uniform(*severity.haze)).astype(np.float32)


def network(rng: np.random.Generator, view: View, lung: np.ndarray, severity: Severity) -> np.ndarray:
    """Thickened septa: a net of fine lines and small nodes over both lungs, mm of water, the image's shape."""
    strength = float(rng.uniform(*severity.lines))
    total = np.zeros(view.shape, dtype=np.float32)
    for length, share in ((9.0, 0.5), (15.0, 0.6), (24.0, 0.4)):
        ridge = np.exp(-((view.noise(rng, length) / 0.35) ** 2))
        total += np.float32(share) * (ridge - ridge.mean())
    _, z = view.axes
    uneven = 1 + 0.3 * view.noise(rng, 60.0) + rng.uniform(0, 0.6) * (0.5 - z / 230)
    return strength * total * np.maximum(uneven, 0.2) * np.sqrt(np.clip(lung / 90, 0, 1.6))


def distractions(rng: np.random.Generator, thorax: Thorax, view: View, lung: np.ndarray) -> np.ndarray:
    """Harmless or old things that any class may show, as mm of water: scars, nipples, granulomas, folds of skin."""
    s, h = thorax.sitter.patient.scale, thorax.sitter.patient.height
    x, z = view.axes
    total = np.zeros(view.shape, dtype=np.float32)
    for _ in range(rng.poisson(0.5)):  # a streak of collapsed lung
        at, lean = (_side(rng) * rng.uniform(40, 95), rng.uniform(0.2, 0.5) * h), rng.normal(0, 0.3)
        along, across = (x - at[0]) + lean * (z - at[1]), (z - at[1]) - lean * (x - at[0])
        total += np.exp(-((along / rng.uniform(12, 28)) ** 2) - (across / 2.5) ** 2) * rng.uniform(6, 16)
    if rng.random() < 0.3:  # nipples
        for side in (-1, 1):
            away = np.hypot(x - side * 78 * s, z - 0.30 * h)
            total += 6 / (1 + np.exp(np.clip((away - 5) / 0.9, -20, 20)))
    for _ in range(rng.poisson(0.3)):  # an old, calcified nodule
        away = np.hypot(x - _side(rng) * rng.uniform(40, 95), z - rng.uniform(0.3, 0.8) * h)
        total += 10 / (1 + np.exp(np.clip((away - rng.uniform(2, 4)) / 0.7, -20, 20)))
    total *= np.clip(lung / 40, 0, 1)
    # Veins fuller than usual: broad, soft shadows round the hila, which are not interstitial disease.
    fullness = rng.uniform(0, 5)
    for side in (-1, 1):
        away = np.hypot((x - side * 42 * s) / 24, (z - 0.56 * h) / 36)
        total += fullness * np.exp(-(away**2))
    uneven = rng.uniform(0.4, 1.6) * view.noise(rng, 70.0) + rng.uniform(0.3, 1.0) * view.noise(rng, 28.0)
    return total + uneven * np.clip(lung / 60, 0, 1.5)


def _side(rng: np.random.Generator) -> float:
    return 1.0 if rng.random() < 0.5 else -1.0
