"""Infected lung: ground glass, consolidation and nodules with soft, irregular borders."""

from dataclasses import dataclass

import numpy as np

from fedmed_demo.anatomy import Chest
from fedmed_demo.grid import Grid, paint, smooth_noise


@dataclass(frozen=True)
class LesionMix:
    """Lesions of a site's patients: relative frequencies of three kinds, and how they look."""

    ground_glass: float = 1.0  # opacities of -750 … -350 HU
    consolidation: float = 0.3  # -100 … 50 HU with a rim of ground glass
    nodule: float = 0.0  # round, -60 … 50 HU
    burden: tuple[float, float] = (0.01, 0.12)  # smallest and largest share of the lungs that a patient's lesions fill
    density: float = 0.0  # HU added to all lesions of a site's patients (stage of the disease)


MOST_LESIONS = 24


def add_lesions(
    image: np.ndarray, rng: np.random.Generator, grid: Grid, chest: Chest, lungs: np.ndarray, mix: LesionMix
) -> np.ndarray:
    """Paint lesions into ``image`` (HU) in place until they fill the drawn share of ``lungs`` (share of each voxel).

    Returns:
        Share of diseased lung in each voxel, 0 … 1, float32: the truth before any annotator.
    """
    disease = np.zeros(grid.shape, dtype=np.float32)
    density = np.full(grid.shape, -600.0, dtype=np.float32)
    warp = 0.26 * smooth_noise(rng, grid, 26.0) + 0.20 * smooth_noise(rng, grid, 11.0)
    warp += 0.08 * smooth_noise(rng, grid, 6.0)
    kinds = ("ground_glass", "consolidation", "nodule")
    odds = np.array([getattr(mix, kind) for kind in kinds])
    low, high = mix.burden
    goal = float(np.exp(rng.uniform(np.log(low), np.log(high)))) * float(lungs.sum())
    for centre in _centres(rng, grid, chest, lungs):
        kind = kinds[rng.choice(3, p=odds / odds.sum())]
        _add_lesion(disease, density, rng, grid, warp, centre, kind, goal, mix.density)
        if float((disease * lungs).sum()) >= goal:
            break
    disease *= lungs
    # Patchy inside: lobules that are spared or denser.
    patchy = density + 55 * smooth_noise(rng, grid, 8.0)
    paint(image, np.maximum(patchy, image), np.clip(disease * 1.05, 0, 1))
    return disease


def _centres(rng: np.random.Generator, grid: Grid, chest: Chest, lungs: np.ndarray) -> np.ndarray:
    """Voxel indices (MOST_LESIONS, 3): mostly near the pleura, low and behind."""
    flat = np.flatnonzero(lungs > 0.9)
    x, y, z = (np.broadcast_to(axis, grid.shape).reshape(-1)[flat] for axis in grid.axes)
    pleura = chest.cage.reshape(-1)[flat]
    weight = np.exp(-np.maximum(pleura - 8, 0) / 14) + 0.02
    weight *= np.exp(-y / 70) * np.exp(-(z - z.min()) / 110)
    chosen = rng.choice(flat, MOST_LESIONS, p=weight / weight.sum())
    return np.stack(np.unravel_index(chosen, grid.shape), axis=1)


def _add_lesion(
    disease: np.ndarray,
    density: np.ndarray,
    rng: np.random.Generator,
    grid: Grid,
    warp: np.ndarray,
    centre: np.ndarray,
    kind: str,
    goal: float,
    shift: float,
) -> None:
    """Add one lesion to ``disease`` (share) and ``density`` (HU), within its own box."""
    radii, softness, level = _shape(rng, grid, kind, goal)
    level += shift
    half = np.ceil(1.7 * radii.max() / np.asarray(grid.spacing)).astype(int)
    box = tuple(slice(max(c - h, 0), c + h + 1) for c, h in zip(centre, half, strict=True))
    away = [
        axis[tuple(b if n > 1 else slice(None) for b, n in zip(box, axis.shape, strict=True))] for axis in grid.axes
    ]
    here = [float(axis.reshape(-1)[c]) for axis, c in zip(grid.axes, centre, strict=True)]
    dx, dy, dz = (a - h for a, h in zip(away, here, strict=True))
    # Flattened against the nearest wall: the first axis points outwards.
    turn = np.arctan2(here[1], here[0]) + rng.normal(0, 0.35)
    u, v = dx * np.cos(turn) + dy * np.sin(turn), dy * np.cos(turn) - dx * np.sin(turn)
    rho = np.sqrt((u / radii[0]) ** 2 + (v / radii[1]) ** 2 + (dz / radii[2]) ** 2)
    rough = 0.35 if kind == "nodule" else 1.0
    depth = (1 - rho + rough * warp[box]) / softness
    share = 1 / (1 + np.exp(-4 * np.clip(depth, -4, 4)))
    share = np.where(share < 0.04, 0, share).astype(np.float32)
    value = np.full_like(share, level)
    if kind == "consolidation":
        core = 1 / (1 + np.exp(-np.clip((0.8 - rho + 0.7 * warp[box]) / 0.05, -30, 30)))
        value = -560 + shift + (level + 560) * core
    weight = share / np.maximum(share + disease[box], 1e-6)
    density[box] = np.where(share > 0, density[box] * (1 - weight) + value * weight, density[box])
    disease[box] = np.maximum(share, disease[box])


def _shape(rng: np.random.Generator, grid: Grid, kind: str, goal: float) -> tuple[np.ndarray, float, float]:
    """Radii (mm) outwards, along the wall and upwards; softness of the border; HU."""
    volume = goal * float(np.prod(grid.spacing))
    # A patient with little disease has small lesions.
    typical = np.clip((volume / rng.uniform(2.0, 7.0) * 0.24) ** (1 / 3), 7, 42)
    if kind == "nodule":
        return np.full(3, rng.uniform(5, 10)), 0.16, float(rng.uniform(-60, 50))
    size = typical * rng.uniform(0.75, 1.3)
    radii = size * np.array([rng.uniform(0.6, 0.9), rng.uniform(1.0, 1.5), rng.uniform(0.8, 1.3)])
    if kind == "consolidation":
        return 0.85 * radii, 0.22, float(rng.uniform(-80, 40))
    return radii, float(rng.uniform(0.25, 0.5)), float(rng.uniform(-660, -430))
