"""The large surfaces of the chest: skin, rib cage, mediastinum, diaphragm, lungs."""

from dataclasses import dataclass

import numpy as np

from fedmed_demo.build import Patient, profile, spine_line
from fedmed_demo.grid import Grid, ellipsoid, smooth_max, smooth_min, smooth_noise, superellipse
from fedmed_demo.tubes import tubes
from fedmed_demo.vessels import great_vessels


@dataclass
class Chest:
    """Depth fields (mm, positive inside, each of the grid's shape) of one patient on one grid."""

    body: np.ndarray
    cage: np.ndarray
    mediastinum: np.ndarray
    over_diaphragm: np.ndarray
    lungs: np.ndarray
    heart: np.ndarray
    great_vessels: np.ndarray


def build_chest(rng: np.random.Generator, grid: Grid, patient: Patient) -> Chest:
    """Compute a patient's large surfaces on a grid; ``rng`` draws the wobble of their outlines."""
    wobble = smooth_noise(rng, grid, 70.0)
    body = _body(grid, patient) + 3.0 * wobble
    cage = _cage(grid, patient) + 2.5 * wobble
    heart = _heart(grid, patient) + 2.5 * smooth_noise(rng, grid, 38.0)
    points, radii = great_vessels(patient)  # they shape the mediastinum
    great = tubes(grid, points, radii, reach=12.0)
    mediastinum = smooth_max(_core(grid, patient), smooth_max(heart, great, 8.0) + 3.0, 9.0)
    over = _over_diaphragm(grid, patient) + 3.5 * smooth_noise(rng, grid, 55.0)
    lungs = smooth_min(smooth_min(cage, -mediastinum, 5.0), smooth_min(over, _under_apex(grid, patient), 8.0), 4.0)
    return Chest(body, cage, mediastinum, over, lungs, heart, great)


def _body(grid: Grid, patient: Patient) -> np.ndarray:
    x, y, z = grid.axes
    scale, height = np.float32(patient.scale), patient.height
    extra = patient.fat - 10
    width = profile(z, height, [156, 159, 161, 161, 163, 166, 172]) * scale + extra
    depth = profile(z, height, [114, 116, 118, 118, 114, 104, 90]) * scale + extra
    # The back is flat and has a shallow midline groove; the chest is rounder.
    groove = 5 * np.exp(-((x / 16) ** 2)) * (y < 0)
    body = superellipse(x, y + 6, width, depth, 2.5) - groove
    if patient.breast:
        for side in (-1, 1):
            centre = (float(side * 72 * scale), float(88 * scale + extra), 0.42 * height)
            breast = ellipsoid(grid, centre, (52, 1.25 * patient.breast, 50), turn=-side * 0.45)
            body = smooth_max(body, breast, 10.0)
    return body


def _cage(grid: Grid, patient: Patient) -> np.ndarray:
    x, y, z = grid.axes
    half_width, half_depth = patient.cage
    width = profile(z, patient.height, [0.95, 0.99, 1.0, 0.98, 0.92, 0.80, 0.56]) * half_width
    depth = profile(z, patient.height, [0.96, 1.0, 1.0, 0.96, 0.87, 0.73, 0.54]) * half_depth
    centre = profile(z, patient.height, [-4, -2, 0, -1, -5, -11, -18])
    # Narrower in front than behind.
    front = 1 - 0.10 * np.clip((y - centre) / half_depth, 0, 1)
    return superellipse(x, y - centre, width * front, depth, 2.25)


def _core(grid: Grid, patient: Patient) -> np.ndarray:
    """Mediastinal fat and what it wraps apart from heart and great vessels: a sheet that narrows front and back."""
    from scipy.interpolate import PchipInterpolator  # loaded where it is used: a third of a second

    x, y, z = grid.axes
    scale, height = patient.scale, patient.height
    knots = np.array([-60, -38, -14, 12, 34, 58, 80, 120]) * scale
    y_clip = np.clip(y, knots[0], knots[-1])
    low = PchipInterpolator(knots, [22, 15, 22, 24, 18, 9, 10, 24])(y_clip)
    high = PchipInterpolator(knots, [22, 20, 27, 29, 24, 12, 9, 22])(y_clip)
    mix = np.clip((z / height - 0.55) / 0.25, 0, 1)
    half = (low * (1 - mix) + high * mix) * scale
    spine_x, spine_y = spine_line(patient, z)
    lean = np.interp(y, [-40, 60], [0, -3]).astype(np.float32)
    core = half - np.abs(x - lean)
    # Vertebrae and the muscle beside them push the lungs apart behind.
    behind = np.maximum(spine_y - y, 0)
    column = (19 * scale + 0.62 * behind - np.abs(x - spine_x)) * 0.85
    column = np.minimum(column, (spine_y + 17 * scale) - y)
    return smooth_max(core.astype(np.float32), column.astype(np.float32), 8.0)


def _heart(grid: Grid, patient: Patient) -> np.ndarray:
    """Ventricles (long axis to the left, front and down) joined to the atria behind and to the right."""
    size, top = patient.heart * patient.scale, patient.dome
    ventricles = ellipsoid(grid, (-24 * size, 26, top + 22), (62 * size, 41 * size, 43), patient.heart_turn)
    atria = ellipsoid(grid, (8 * size, 6, top + 40), (44 * size, 33 * size, 36), turn=-0.2)
    return smooth_max(ventricles, atria, 12.0)


def _over_diaphragm(grid: Grid, patient: Patient) -> np.ndarray:
    """Height over the two domes: low at the ribs, lowest behind, the right one higher than the left."""
    x, y, z = grid.axes
    top = patient.dome - 5.5 + 5.5 * np.tanh(x / 16)
    side = (np.abs(x) - 58 * patient.scale) / (68 * patient.scale)
    across = np.where(side > 0, 34 * side * side, 7 * side * side)
    front = (y - 12) / (88 * patient.scale)
    along = np.where(front > 0, 24 * front * front, 50 * front * front)
    return ((z - (top - across - along)) * np.float32(0.8)).astype(np.float32)


def _under_apex(grid: Grid, patient: Patient) -> np.ndarray:
    x, y, z = grid.axes
    side, front = (np.abs(x) - 44 * patient.scale), (y + 22 * patient.scale)
    fall = side * side / 72 + front * front / np.where(front > 0, 125, 60)
    return ((patient.height - z - fall) * np.float32(0.75)).astype(np.float32)
