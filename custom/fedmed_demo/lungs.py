"""Paint healthy lungs in HU: tissue with its gravity gradient, fissures, blood vessels and airways."""

import numpy as np

from fedmed_demo import vessels
from fedmed_demo.anatomy import Chest
from fedmed_demo.build import Patient
from fedmed_demo.grid import Grid, occupancy, paint, smooth_noise
from fedmed_demo.tubes import tubes


def paint_lungs(
    image: np.ndarray, rng: np.random.Generator, grid: Grid, patient: Patient, chest: Chest, ends: int
) -> tuple[np.ndarray, np.ndarray]:
    """Lung tissue, denser where gravity pulls the blood; returns lung cover and vessel cover (0 … 1).

    The vessels are painted later, over any lesion: :func:`paint_vessels`.
    """
    lungs = occupancy(chest.lungs, grid.spacing[0])
    y = grid.axes[1]
    tissue = patient.lung_hu + 22 * smooth_noise(rng, grid, 45.0) + 16 * smooth_noise(rng, grid, 9.0)
    # Lying on the back: denser behind, with a band of poorly aired lung along the wall in some patients.
    band = np.exp(-(np.maximum(chest.cage, 0) / 7.0)) * np.clip((-y - 50) / 35, 0, 1)
    tissue += rng.uniform(40, 170) * band - 0.30 * y + 130 * _fissures(rng, grid, patient)
    paint(image, tissue, lungs)
    return lungs, _lung_vessels(rng, grid, patient, chest, ends)


def _fissures(rng: np.random.Generator, grid: Grid, patient: Patient) -> np.ndarray:
    """The oblique fissures: a faint sheet from high behind to low in front, 0 … 1."""
    _, y, z = grid.axes
    sheet = 0.62 * (y + 42 * patient.scale) + 0.70 * (z - 0.55 * patient.height)
    sheet = sheet + 4 * smooth_noise(rng, grid, 50.0)
    return np.exp(-((sheet / 1.6) ** 2))


def _lung_vessels(rng: np.random.Generator, grid: Grid, patient: Patient, chest: Chest, ends: int) -> np.ndarray:
    """Share of blood (0 … 1) from four trees, an artery and a vein a side; ``ends`` branches an artery."""
    cover = np.zeros(grid.shape, dtype=np.float32)
    trees = vessels.lung_trees(rng, grid, patient, chest.lungs > 3, ends, 0.68, 0.7 * grid.spacing[0])
    for points, radii, upright in trees:
        thickness = np.minimum(1, 2 * radii / grid.spacing[2])
        gain = np.sqrt(upright**2 + (1 - upright**2) * thickness)
        np.maximum(cover, tubes(grid, points, radii, grid.spacing[0], gain), out=cover)
    return cover


def paint_vessels(image: np.ndarray, patient: Patient, lungs: np.ndarray, cover: np.ndarray) -> None:
    """Blood vessels of the lungs, where they are denser than what is there already."""
    paint(image, np.maximum(image, patient.blood_hu - 5), cover * lungs)


def paint_airways(image: np.ndarray, grid: Grid, patient: Patient) -> None:
    """Trachea and bronchi: a thin wall and air."""
    points, radii = vessels.airways(patient)
    lumen = tubes(grid, points, radii, reach=4.0)
    pixel = grid.spacing[0]
    paint(image, np.maximum(image, 10.0), occupancy(lumen + 1.6, pixel) * 0.75)
    paint(image, -985.0, occupancy(lumen, pixel))
