"""Paint ribs, sternum, shoulder girdle and spine: a bright cortex round a darker marrow, in HU."""

import numpy as np

from fedmed_demo.anatomy import Chest
from fedmed_demo.build import Patient, spine_line
from fedmed_demo.grid import Grid, occupancy, paint, smooth_noise
from fedmed_demo.tubes import polylines, tubes

Bone = tuple[np.ndarray | float, np.ndarray, np.ndarray | float]  # HU of marrow, depth field in mm, how opaque (0 … 1)


def paint_bones(image: np.ndarray, rng: np.random.Generator, grid: Grid, patient: Patient, chest: Chest) -> None:
    """Ribs with cartilage, sternum, clavicles, shoulder blades and the spine."""
    texture = smooth_noise(rng, grid, 7.0)
    for bone in (_ribs(grid, patient, chest), _sternum(grid, patient, chest), _shoulder(grid, patient, chest)):
        _lay(image, texture, grid, bone)
    part, cut = grid.crop((-60, -np.inf, -np.inf), (60, 0, np.inf))
    for bone in _spine(part, patient):
        _lay(image[cut], texture[cut], part, bone)


def _lay(image: np.ndarray, texture: np.ndarray, grid: Grid, bone: Bone) -> None:
    core, depth, cover = bone
    cortex = 620 * np.exp(-((np.maximum(depth, 0) / 2.0) ** 2))
    paint(image, core + 35 * texture + cortex, occupancy(depth, grid.spacing[0]) * cover)


def _ribs(grid: Grid, patient: Patient, chest: Chest) -> Bone:
    """Rings round the cage that fall towards the front and the sides, so that a slice cuts several of them."""
    x, y, z = grid.axes
    pitch, slope = 0.118 * patient.height, 0.55
    phase = (z + slope * (y + 60) + 0.42 * np.abs(x)) / pitch
    across = (np.abs(phase - np.round(phase)) * pitch * 0.8) / 6.4
    outward = (-chest.cage - 6.0) / 4.2
    depth = (1 - np.sqrt(across * across + outward * outward)) * 4.2
    # Near the sternum bone turns into cartilage.
    bone = np.clip((np.abs(x) - 34 - 0.9 * (y - 40)) / 14 + 1.2 * (y < 40), 0, 1)
    inside = occupancy(np.minimum(chest.body - 6, 1.06 * patient.height - z), 4.0)
    return patient.marrow_hu + 60 - 190 * (1 - bone), depth + (bone - 1) * 0.5, inside * (0.35 + 0.65 * bone)


def _sternum(grid: Grid, patient: Patient, chest: Chest) -> Bone:
    """A flat plate in front: xiphoid, body, and the wider manubrium above."""
    x, _, z = grid.axes
    t = z / patient.height
    half_width = np.interp(t, [0.2, 0.3, 0.62, 0.72, 0.86], [6, 16, 15, 26, 22]).astype(np.float32)
    across, outward = x / half_width, (-chest.cage - 7.0) / 6.0
    depth = (1 - np.sqrt(across * across + outward * outward)) * 6.0
    extent = occupancy(np.minimum(z - 0.22 * patient.height, 0.86 * patient.height - z), 6.0)
    front = grid.axes[1] > 0
    return patient.marrow_hu - 60, depth, extent * front


def _shoulder(grid: Grid, patient: Patient, chest: Chest) -> Bone:
    """Clavicles in front of the apex and shoulder blades behind the ribs."""
    s, h = patient.scale, patient.height
    points, radii = polylines(
        ([(side * 18 * s, 50 * s, 0.85 * h), (side * 60 * s, 54 * s, 0.93 * h), (side * 120 * s, 18 * s, 1.05 * h)],
         [8, 6, 6.5]) for side in (-1, 1)
    )  # fmt: skip
    clavicles = tubes(grid, points, radii, reach=4.0)
    x, y, z = grid.axes
    out = -chest.cage - 24
    blade = 2.6 - np.abs(out + 4 * np.cos((np.abs(x) - 92) / 16) - 0.04 * (z - 0.7 * h))
    window = np.minimum(np.abs(x) - 66 * s + 0.25 * (z - 0.75 * h), 118 * s - np.abs(x))
    window = np.minimum(window, -30 * s - y)
    window = np.minimum(window, np.minimum(z - 0.52 * h, chest.body - 10))
    return patient.marrow_hu, np.maximum(clavicles, np.minimum(blade, window)), 1.0


def _spine(grid: Grid, patient: Patient) -> list[Bone]:
    """Bodies parted by discs; behind them the arch round the canal, spinous and transverse processes."""
    s = patient.scale
    x, y, z = grid.axes
    spine_x, spine_y = spine_line(patient, z)
    u, v = x - spine_x, y - spine_y
    pitch = 0.108 * patient.height
    level = np.abs(z / pitch - np.round(z / pitch))
    disc = np.clip((level - 0.37) / 0.05, 0, 1)
    waist = 1 - 0.08 * np.cos(2 * np.pi * level) * (1 - disc)
    rho = np.sqrt((u / (17.5 * s)) ** 2 + (v / (14.5 * s)) ** 2) / waist
    body = (1 - rho) * 14.5 * s
    body = np.minimum(body, v + 12 * s)
    canal = 8.5 - np.sqrt(u * u + (v + 21 * s) ** 2)
    arch = np.minimum(np.minimum(5.5 - np.abs(canal + 5.0), -v - 10 * s), 6.0)
    process = np.minimum(np.minimum(4.2 - np.abs(u), -v - 28 * s), v + 56 * s - 14 * level)
    wings = np.minimum(5.0 - np.abs(v + 24 * s + 0.22 * np.abs(u)), 33 * s - np.abs(u))
    wings = np.minimum(np.minimum(wings, np.abs(u) - 9), (0.20 - level) * 30)
    rear = np.minimum(np.maximum(np.maximum(arch, process), wings), -canal)
    return [
        (patient.marrow_hu - 110 * disc, body - 1.5 * disc, 1.0 - 0.55 * disc),
        (patient.marrow_hu + 40, rear, 0.95),
    ]
