"""Ribs, clavicles, shoulder blades, upper arms and spine of a frontal radiograph, as mm of water beyond soft tissue."""

import math

import numpy as np

from fedmed_demo.build import profile, spine_line
from fedmed_demo.tubes import polylines
from fedmed_demo.xray.sitter import Sitter
from fedmed_demo.xray.view import View

RIBS = 12
STEP = 1.5  # mm between two specks of a bone


def bones(rng: np.random.Generator, sitter: Sitter, view: View, raised: float) -> np.ndarray:
    """Every bone of the view as mm of water beyond soft tissue, the image's shape, float32.

    ``raised`` is how far the shoulders are up and turned outwards (0 … 1), as a technologist asks for.
    """
    thin = (
        _specks(*_ribs(rng, sitter), radius=5.2, full=3.0),
        _specks(*_clavicles(sitter, raised), radius=5.6, full=4.4),
    )
    points, volume = (np.concatenate(part) for part in zip(*thin, strict=True))
    total = _hollow(view, view.splat(points, volume), 5.3)
    total += view.blur(view.splat(*_specks(*_arms(sitter, raised), radius=13.0, full=1.8)), 5.5)
    return (total + view.blur(_blades(sitter, view, raised) + _spine(sitter, view), 1.2)) * np.float32(sitter.bone)


def _specks(points: np.ndarray, weight: np.ndarray, radius: float, full: float) -> tuple[np.ndarray, np.ndarray]:
    """Points (N, 3) and volumes (N,) in mm3 of a bone of ``radius`` mm; ``full`` is mm of water a mm of bone."""
    return points, weight * (0.5 * full * STEP * np.pi * radius**2)


def _hollow(view: View, thin: np.ndarray, radius: float) -> np.ndarray:
    """Give lines of specks the profile of tubes with a bright cortex: wide, less a share of a narrower one."""
    wide = view.blur(thin, 0.44 * radius)
    return 1.35 * wide - 0.55 * view.blur(thin, 0.25 * radius) + 0.12 * view.blur(thin, 0.9 * radius)


def _ribs(rng: np.random.Generator, sitter: Sitter) -> tuple[np.ndarray, np.ndarray]:
    """Each rib leaves the spine behind, runs round the cage and ends, lower, in front: points and relative density."""
    patient = sitter.patient
    number = np.repeat(np.arange(RIBS), 2)[:, None]
    side = np.tile([-1.0, 1.0], RIBS)[:, None]
    last = np.where(number > 9, 1.75, 2.25 + 0.06 * np.minimum(number, 6))
    theta = np.linspace(0.18, 1, 170) * last
    fall = patient.height * sitter.slope * (0.17 + 0.04 * np.minimum(number, 5))
    drop = 0.5 * (1 - np.cos(theta)) * fall - 5 * np.sin(2 * theta)
    shift = rng.normal(0, 1.2, side.shape) + 1.2 * np.sin(3 * theta + rng.uniform(0, 6, side.shape))
    z = patient.height * (1.045 - 0.104 * number) - drop + shift
    width = profile(z, patient.height, [0.95, 0.99, 1.0, 0.98, 0.92, 0.80, 0.60]) * patient.cage[0] + 5
    depth = profile(z, patient.height, [0.96, 1.0, 1.0, 0.96, 0.87, 0.73, 0.54]) * patient.cage[1] + 5
    line = np.stack([side * width * np.sin(theta) ** 0.85, -depth * np.cos(theta) - 4, z], axis=2)
    length = np.linalg.norm(np.diff(line, axis=1, append=line[:, -1:]), axis=2) / STEP
    # Cartilage takes over in front; the end is fainter than the back.
    weight = length * (1 - 0.35 * theta / last) * np.clip((last - theta) / 0.12, 0, 1)
    return line.reshape(-1, 3), weight.reshape(-1)


def _clavicles(sitter: Sitter, raised: float) -> tuple[np.ndarray, np.ndarray]:
    s, h = sitter.patient.scale, sitter.patient.height
    rise = h * (0.05 + 0.13 * raised)
    corners = [(15, 52, 0.88 * h), (48, 58, 0.885 * h + 0.45 * rise), (92, 40, 0.90 * h + 0.9 * rise),
               (138, 16, 0.90 * h + rise)]  # fmt: skip
    lines = ([(side * x * s, y * s, z) for x, y, z in corners] for side in (-1, 1))
    points, radii = polylines([(line, [8, 6, 5.5, 7]) for line in lines], STEP)
    return points, (radii / 6.5) ** 2


def _arms(sitter: Sitter, raised: float) -> tuple[np.ndarray, np.ndarray]:
    """Heads of the upper arms and the shafts below them."""
    s, h = sitter.patient.scale, sitter.patient.height
    out = 30 + 50 * raised
    corners = [(150, -12, 0.90 * h + 14 * raised), (158, -12, 0.88 * h + 14 * raised),
               (165 + 0.4 * out, -14, 0.66 * h), (175 + out, -18, 0.05 * h)]  # fmt: skip
    lines = ([(side * x * s, y * s, z) for x, y, z in corners] for side in (-1, 1))
    points, radii = polylines([(line, [20, 22, 12, 11]) for line in lines], STEP)
    return points, (radii / 20) ** 2


def _blades(sitter: Sitter, view: View, raised: float) -> np.ndarray:
    """Shoulder blades: a thin plate with a denser rim, turned out of the lung fields by raised arms."""
    s, h = sitter.patient.scale, sitter.patient.height
    x, z = view.axes
    side = np.abs(x + math.sin(view.turn) * 50) / s - 34 * raised * np.clip((0.95 * h - z) / (0.45 * h), 0, 1)
    inner = (side - 78 - 0.10 * (z - 0.7 * h)) * 0.9
    outer = (142 - side + 0.42 * (z - 0.80 * h)) * 0.8
    top, bottom = (0.985 * h - 0.05 * (side - 100) - z) * 0.9, z - 0.50 * h
    depth = np.minimum(np.minimum(inner, outer), np.minimum(top, bottom))
    plate = np.clip(depth / 3, 0, 1)
    rim = np.exp(-((np.maximum(depth, 0) / 4.0) ** 2)) * plate
    spine = np.exp(-(((z - 0.90 * h - 0.12 * (side - 120)) / 6) ** 2)) * plate
    return (3 * plate + 8 * rim + 7 * spine).astype(np.float32)


def _spine(sitter: Sitter, view: View) -> np.ndarray:
    """Vertebral bodies parted by discs, pedicles and spinous processes."""
    patient = sitter.patient
    s, pitch = patient.scale, 0.104 * patient.height
    columns = np.flatnonzero((np.abs(view.axes[0]) < 60).any(axis=0))  # the rest of the image shows no spine
    x, z = (axis[:, columns] for axis in view.axes)
    middle, _ = spine_line(patient, z)
    u = (x - middle - math.sin(view.turn) * 30) / s
    level = (z - 1.045 * patient.height) / pitch
    away = np.abs(level - np.round(level))  # 0 in the middle of a body, 0.5 in a disc
    narrow = np.clip((z / patient.height - 0.2) / 1.0, 0, 1)
    half = 19 - 4.5 * narrow - 2.0 * np.cos(2 * np.pi * away)
    body = np.clip((half - np.abs(u)) / 3, 0, 1)
    disc = np.clip((away - 0.36) / 0.06, 0, 1)
    plate = np.exp(-(((away - 0.36) / 0.05) ** 2))
    cortex = np.exp(-(((half - np.abs(u) - 1.5) / 2.0) ** 2))
    height = away * pitch
    pedicle = np.exp(-((np.hypot(np.abs(u) - 10.5, 0.8 * (height - 2)) - 3.5) ** 2) / 2.5)
    process = np.exp(-((u / 2.4) ** 2 + ((np.abs(level - np.round(level) + 0.22)) / 0.2) ** 2))
    wing = np.exp(-((height / 5.0) ** 2)) * np.clip((30 - np.abs(u)) / 5, 0, 1) * np.clip((np.abs(u) - 12) / 5, 0, 1)
    total = body * (13 - 7 * disc + 6 * plate) + 8 * cortex * (1 - disc) + 9 * pedicle + 11 * process + 7 * wing
    placed = np.zeros(view.shape, dtype=np.float32)
    placed[:, columns] = total
    return placed
