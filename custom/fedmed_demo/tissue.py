"""Paint what surrounds the lungs, in HU: wall, abdomen, heart and great vessels, and the couch."""

import numpy as np

from fedmed_demo import vessels
from fedmed_demo.anatomy import Chest
from fedmed_demo.build import Patient, spine_line
from fedmed_demo.grid import Grid, ellipsoid, occupancy, paint, smooth_noise
from fedmed_demo.tubes import tubes

AIR, FAT, MUSCLE, LIVER = -1000.0, -105.0, 52.0, 60.0


def paint_wall(rng: np.random.Generator, grid: Grid, patient: Patient, chest: Chest) -> np.ndarray:
    """Air, skin, fat, muscle and mediastinal fat; returns a new float32 image in HU."""
    pixel = grid.spacing[0]
    y = grid.axes[1]
    image = np.full(grid.shape, AIR, dtype=np.float32)
    paint(image, MUSCLE - 30, occupancy(chest.body, pixel))
    texture = smooth_noise(rng, grid, 14.0)
    paint(image, FAT + 6 * texture, occupancy(chest.body - 2.0, pixel))
    # More fat at the flanks and in front than over the back; muscle below it with seams of fat.
    layer = patient.fat * (0.85 + 0.25 * np.clip(y / 90, -1, 1)) + 2.5 * texture
    muscle = np.minimum(chest.body - layer, -chest.cage)
    seams = np.abs(smooth_noise(rng, grid, 26.0)) * 14 - 1.0
    paint(image, MUSCLE + 5 * texture, occupancy(np.minimum(muscle, seams), pixel))
    # Between the ribs there is no visible fat.
    paint(image, MUSCLE, occupancy(np.minimum(-chest.cage, chest.cage + 9), pixel) * 0.9)
    return image


def paint_abdomen(image: np.ndarray, rng: np.random.Generator, grid: Grid, patient: Patient, chest: Chest) -> None:
    """Liver, spleen, stomach and the diaphragm itself, below the domes and within the rib cage."""
    pixel, s, d = grid.spacing[0], patient.scale, patient.dome
    x, y, z = grid.axes
    below = np.minimum(-chest.over_diaphragm, chest.cage)
    texture = smooth_noise(rng, grid, 9.0)
    paint(image, MUSCLE, occupancy(np.minimum(below, 4 - below), pixel))
    paint(image, FAT + 8 * texture, occupancy(below - 3, pixel))
    # Liver: all of the right side, a wedge of it in front reaching to the left; its back meets the spine.
    edge = (x + 48 * s) * 0.55 + (y - 40 * s) * 0.55 * (x < 20) + 6 * texture
    liver = np.minimum(below - 2, edge + np.maximum(x, 0) * 0.5)
    paint(image, LIVER + 3 * texture, occupancy(liver, pixel))
    spleen = ellipsoid(grid, (-92 * s, -44 * s, d - 50), (27, 48, 58), turn=-0.5) + 2 * texture
    paint(image, 50 + 3 * texture, occupancy(np.minimum(spleen, below - 3), pixel))
    stomach = ellipsoid(grid, (-62 * s, 16, d - 46), (42, 50, 44), turn=0.35) + 1.5 * texture
    stomach = np.minimum(np.minimum(stomach, below - 4), -liver - 3)
    paint(image, 44.0, occupancy(stomach, pixel))
    food = 22 + 26 * texture + 14 * np.abs(smooth_noise(rng, grid, 18.0))
    paint(image, food, occupancy(stomach - 5, pixel))
    paint(image, -960.0, occupancy(np.minimum(stomach - 5, y - 34), pixel))


def paint_heart(image: np.ndarray, rng: np.random.Generator, grid: Grid, patient: Patient, chest: Chest) -> None:
    """Mediastinal fat, muscle of the neck and round the spine, heart, great vessels and oesophagus."""
    pixel = grid.spacing[0]
    texture = smooth_noise(rng, grid, 12.0)
    above = np.minimum(np.minimum(chest.cage, chest.mediastinum), chest.over_diaphragm)
    paint(image, FAT + 18 + 12 * texture, occupancy(above, pixel))
    # Over the lungs' apices the neck begins: muscle round the vessels.
    neck = np.minimum(np.minimum(chest.cage, -chest.lungs - 1), grid.axes[2] - 0.8 * patient.height)
    neck = np.minimum(neck, -chest.great_vessels - 2.5)  # which keep a sheath of fat
    seams = np.minimum(neck, 7 + 7 * texture + np.abs(grid.axes[0]) - 24)
    paint(image, MUSCLE - 6, occupancy(seams, pixel) * 0.9)
    spine_x, spine_y = spine_line(patient, grid.axes[2])
    crus = np.minimum(chest.cage, spine_y + 8 - grid.axes[1])
    crus = np.minimum(crus, 40 + 6 * texture - np.abs(grid.axes[0] - spine_x))
    paint(image, MUSCLE - 4, occupancy(crus, pixel) * 0.95)
    paint(image, patient.blood_hu + 2 * texture, occupancy(chest.heart, pixel))
    paint(image, patient.blood_hu, occupancy(chest.great_vessels, pixel))
    points, radii = vessels.oesophagus(patient)
    gullet = tubes(grid, points, radii, reach=4.0)
    paint(image, 34.0, occupancy(np.minimum(gullet, chest.cage), pixel))


def paint_table(image: np.ndarray, grid: Grid, patient: Patient, chest: Chest) -> None:
    """The curved couch under the patient."""
    x, y, _ = grid.axes
    surface = y + 126 * patient.scale + patient.fat - (x / 62) ** 2
    shell = np.exp(-((surface / 2.2) ** 2)) + 0.8 * np.exp(-(((surface + 12) / 2.0) ** 2))
    paint(image, -620.0, np.clip(shell * occupancy(-chest.body, 2.0), 0, 1))
