"""The soft parts of a frontal radiograph: the CT phantom on a coarse grid, summed along the beam."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from fedmed_demo.anatomy import Chest, build_chest
from fedmed_demo.grid import Grid, ellipsoid, occupancy, smooth_max, smooth_min
from fedmed_demo.xray.sitter import Sitter
from fedmed_demo.xray.view import View

VOXEL = 5.8  # mm
ALONG_BEAM = 1.1  # silhouettes are tangents of the beam: along it surfaces are smooth and voxels may be longer
FAT_SHARE, ABDOMEN_SHARE, BLOOD_SHARE = -0.10, 0.03, 0.04  # attenuation beyond that of water


@dataclass(frozen=True)
class Thorax:
    """A person's depth fields on the coarse grid, and the share of each voxel that is lung (0 … 1)."""

    sitter: Sitter
    grid: Grid
    chest: Chest
    lungs: np.ndarray


def build_thorax(rng: np.random.Generator, sitter: Sitter, voxel: float) -> Thorax:
    """Compute the large surfaces of one person on voxels of ``voxel`` mm."""
    patient = sitter.patient
    low, high = (-195.0, -136.0, -66.0), (195.0, 128.0, patient.height + 72)
    spacing = (voxel, ALONG_BEAM * voxel, voxel)
    i, j, k = (int((b - a) / step) + 1 for a, b, step in zip(low, high, spacing, strict=True))
    grid = Grid((i, j, k), spacing, (high[0], low[1], high[2]), (-1, 1, -1))
    chest = build_chest(rng, grid, patient)
    s, size, top = patient.scale, patient.heart, patient.dome
    # Upright, the heart's apex rests on the left dome.
    apex = ellipsoid(grid, (-46 * s * size, 30, top + 2), (44 * s * size, 36, 34), patient.heart_turn)
    chest.lungs = smooth_min(chest.lungs, -apex, 6.0)
    if sitter.thymus:
        z = grid.axes[2] / patient.height
        sail = sitter.thymus * np.exp(-(((z - 0.68) / 0.16) ** 2)) * np.clip(grid.axes[1] / 30, 0, 1)
        chest.lungs = np.minimum(chest.lungs, -(chest.mediastinum + sail.astype(np.float32)))
    return Thorax(sitter, grid, chest, occupancy(chest.lungs, voxel))


def project(thorax: Thorax, view: View, extra: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Sum the phantom, with ``extra`` attenuation in each voxel as a share of water's, along the beam.

    Returns:
        Soft tissue as mm of water, and thickness of the lungs in mm; each of the image's shape, float32.
    """
    mu = _attenuation(thorax)
    if extra is not None:
        mu += extra
    coarse = _turned(thorax, mu, view.turn)
    x, z = view.axes
    places = [(thorax.grid.first[0] - x) / thorax.grid.spacing[0], (thorax.grid.first[2] - z) / thorax.grid.spacing[2]]
    # Straight lines stay straight: the position of one pixel and the steps down and along define all others.
    start = np.array([place[0, 0] for place in places])
    steps = np.array([[place[1, 0] - place[0, 0], place[0, 1] - place[0, 0]] for place in places])
    soft = ndimage.affine_transform(coarse[0], steps, start, view.shape, order=3, mode="nearest")
    lung = ndimage.affine_transform(coarse[1], steps, start, view.shape, order=1, mode="nearest")
    return np.maximum(soft, 0), np.maximum(lung, 0)


def _turned(thorax: Thorax, mu: np.ndarray, turn: float, layers: int = 4) -> np.ndarray:
    """Sums of attenuation and lung along the beam, the chest turned about its long axis by a few degrees.

    Layers from back to front move sideways; a few of them are enough.
    """
    total = np.zeros((2, mu.shape[0], mu.shape[2]), dtype=np.float32)
    y = thorax.grid.axes[1].reshape(-1)
    for part in np.array_split(np.arange(len(y)), layers):
        away = -math.sin(turn) * (float(y[part].mean()) + 20) / thorax.grid.spacing[0]
        cut = slice(part[0], part[-1] + 1)
        for i, field in enumerate((mu, thorax.lungs)):
            total[i] += _moved(field[:, cut].sum(axis=1), away)
    return total * np.float32(thorax.grid.spacing[1])


def _moved(field: np.ndarray, away: float) -> np.ndarray:
    """``field`` moved by a few rows, or a part of one; what leaves at one side, air or an arm, enters at the other."""
    rows = math.floor(away)
    part = np.float32(away - rows)
    return (1 - part) * np.roll(field, rows, axis=0) + part * np.roll(field, rows + 1, axis=0)


def _attenuation(thorax: Thorax) -> np.ndarray:
    """Share of water's attenuation in each voxel, without bones, airways and vessels of the lungs."""
    grid, chest, patient = thorax.grid, thorax.chest, thorax.sitter.patient
    outline, voxel = _outline(thorax), grid.spacing[0]
    body = occupancy(outline, voxel)
    mu = body * np.float32(1 + FAT_SHARE)
    inside = np.clip((outline - patient.fat) / 6, 0, 1)
    mu += np.float32(-FAT_SHARE + 0.04) * inside  # muscle
    below = occupancy(np.minimum(-chest.over_diaphragm, chest.cage), voxel)
    mu += np.float32(ABDOMEN_SHARE - 0.02) * below
    mu += np.float32(BLOOD_SHARE) * occupancy(chest.heart, voxel)
    mu += (np.float32(thorax.sitter.lung) - mu) * thorax.lungs
    d, s = patient.dome, patient.scale
    bubble = ellipsoid(grid, (-66 * s, 28, d - 38), (24, 18, 0.3 * thorax.sitter.gas + 3), turn=0.35)
    bubble = np.minimum(bubble, -chest.over_diaphragm - 6)
    mu *= 1 - 0.9 * occupancy(bubble, voxel)
    return mu


def _outline(thorax: Thorax) -> np.ndarray:
    """Skin: the phantom's trunk, which a CT cuts off, with shoulders, neck and upper arms."""
    grid, patient = thorax.grid, thorax.sitter.patient
    x, y, z = grid.axes
    s, h = patient.scale, patient.height
    side = np.abs(x) / s
    fall = 1.02 * h + 44 - 0.42 * np.maximum(side - 40, 0) - 0.0010 * np.maximum(side - 40, 0) ** 2
    trunk = smooth_min(thorax.chest.body, (fall - z) * np.float32(0.9), 40.0)
    neck = (1 - np.sqrt((x / 60) ** 2 + ((y + 6) / 78) ** 2)) * np.float32(60 * s)
    neck = np.minimum(np.broadcast_to(neck, grid.shape), z - 0.7 * h)
    lean = 160 * s + patient.fat * 0.6 + 0.20 * np.maximum(0.93 * h - z, 0)
    arm = np.float32(40 * s + 0.4 * patient.fat) - np.sqrt((side * s - lean) ** 2 + (y + 20) ** 2)
    arm = smooth_min(np.broadcast_to(arm, grid.shape), (1.04 * h - z) * np.float32(1.0), 30.0)
    return smooth_max(smooth_max(trunk, neck, 30.0), arm, 14.0)
