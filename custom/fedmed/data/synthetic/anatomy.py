"""One patient's build, and the large surfaces of the chest: skin, rib cage, mediastinum, diaphragm, lungs."""

from dataclasses import dataclass

import numpy as np
from scipy.interpolate import PchipInterpolator

from fedmed.data.synthetic.grid import Grid, ellipsoid, smooth_max, smooth_min, smooth_noise, superellipse, tubes


@dataclass(frozen=True)
class Patient:
    """Measures of one adult, in mm and HU; drawn by :func:`draw_patient`."""

    scale: float  # size of everything across the body
    height: float  # lung base (posterior sulcus) to apex
    cage: tuple[float, float]  # half width and half depth inside the rib cage
    fat: float  # thickness under the skin
    breast: float  # depth of the breasts, 0 for none
    dome: float  # height of the right diaphragm over the posterior sulcus
    heart: float  # relative size of the heart
    heart_turn: float  # direction of its long axis, radians; more negative is steeper
    spine_sway: float  # sideways bend
    lung_hu: float  # aerated lung
    blood_hu: float
    marrow_hu: float


def draw_patient(rng: np.random.Generator, shallow: float = 0.0) -> Patient:
    """Draw a patient's build; ``shallow`` HU are added to lungs that are not filled by a deep breath."""
    scale = float(rng.uniform(0.93, 1.06))
    return Patient(
        scale=scale,
        height=float(rng.uniform(210, 245)),
        cage=(128 * scale * float(rng.uniform(0.97, 1.04)), 90 * scale * float(rng.uniform(0.92, 1.06))),
        fat=float(rng.uniform(6, 19)),
        breast=float(rng.uniform(16, 27)) if rng.random() < 0.5 else 0.0,
        dome=float(rng.uniform(52, 74)),
        heart=float(rng.uniform(0.88, 1.12)),
        heart_turn=float(np.clip(rng.normal(-0.55, 0.14), -0.9, -0.25)),
        spine_sway=float(rng.normal(0, 3)),
        lung_hu=float(rng.uniform(-885, -835)) + shallow,
        blood_hu=float(rng.uniform(34, 48)),
        marrow_hu=float(rng.uniform(130, 230)),
    )


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


def profile(z: np.ndarray, height: float, values: list[float]) -> np.ndarray:
    """A smooth function of height through ``values`` at equal steps from base (0) to apex (``height``)."""
    curve = PchipInterpolator(np.linspace(0, 1, len(values)), values)
    return curve(np.clip(z / height, 0, 1)).astype(np.float32)


def spine_line(patient: Patient, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x and y in mm of the middle of the vertebral bodies at every height: kyphosis and a little sway."""
    t = z / patient.height
    x = patient.spine_sway * np.sin(2.2 * t)
    y = (-46 - 13 * np.sin(np.pi * np.clip(t * 0.85 + 0.1, 0, 1)) + 6) * patient.scale
    return x.astype(np.float32), y.astype(np.float32)


def build_chest(rng: np.random.Generator, grid: Grid, patient: Patient, vessels: tuple) -> Chest:
    """Compute the large surfaces.

    Args:
        rng: draws the wobble of the outlines.
        grid: where to compute them.
        patient: the build.
        vessels: centre points (N, 3) and radii (N,) in mm of the great vessels, which shape the mediastinum.
    """
    wobble = smooth_noise(rng, grid, 70.0)
    body = _body(grid, patient) + 3.0 * wobble
    cage = _cage(grid, patient) + 2.5 * wobble
    heart = _heart(grid, patient) + 2.5 * smooth_noise(rng, grid, 38.0)
    great = tubes(grid, *vessels, reach=12.0)
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
            centre = (side * 72 * scale, 88 * scale + extra, 0.42 * height)
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
