"""Paint one healthy chest in HU: soft tissue, bones, abdomen, heart and vessels, lungs with vessels and airways."""

import numpy as np

from fedmed.data.synthetic import vessels
from fedmed.data.synthetic.anatomy import Chest, Patient, spine_line
from fedmed.data.synthetic.grid import Grid, ellipsoid, occupancy, paint, polyline, smooth_noise, tubes

AIR, FAT, MUSCLE, WATER, LIVER = -1000.0, -105.0, 52.0, 0.0, 60.0


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
    # Between the ribs there is no fat worth seeing.
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
    """Mediastinal fat, muscle round the spine, heart with its fat, great vessels with bright calcium, oesophagus."""
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
    gullet = tubes(grid, *vessels.oesophagus(patient), reach=4.0)
    paint(image, 34.0, occupancy(np.minimum(gullet, chest.cage), pixel))


def paint_bones(image: np.ndarray, rng: np.random.Generator, grid: Grid, patient: Patient, chest: Chest) -> None:
    """Ribs with cartilage, sternum, clavicles, shoulder blades and the spine."""
    texture = smooth_noise(rng, grid, 7.0)
    for core, depth, cover in (
        _ribs(grid, patient, chest),
        _sternum(grid, patient, chest),
        _shoulder(grid, patient, chest),
        *_spine(grid, patient),
    ):
        marrow = core + 35 * texture
        cortex = 620 * np.exp(-((np.maximum(depth, 0) / 2.0) ** 2))
        paint(image, marrow + cortex, occupancy(depth, grid.spacing[0]) * cover)


def _ribs(grid: Grid, patient: Patient, chest: Chest) -> tuple:
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


def _sternum(grid: Grid, patient: Patient, chest: Chest) -> tuple:
    x, _, z = grid.axes
    t = z / patient.height
    half_width = np.interp(t, [0.2, 0.3, 0.62, 0.72, 0.86], [6, 16, 15, 26, 22]).astype(np.float32)
    across, outward = x / half_width, (-chest.cage - 7.0) / 6.0
    depth = (1 - np.sqrt(across * across + outward * outward)) * 6.0
    extent = occupancy(np.minimum(z - 0.22 * patient.height, 0.86 * patient.height - z), 6.0)
    front = grid.axes[1] > 0
    return patient.marrow_hu - 60, depth, extent * front


def _shoulder(grid: Grid, patient: Patient, chest: Chest) -> tuple:
    """Clavicles in front of the apex and shoulder blades behind the ribs."""
    s, h = patient.scale, patient.height
    lines = []
    for side in (-1, 1):
        lines.append(polyline([(side * 18 * s, 50 * s, 0.85 * h), (side * 60 * s, 54 * s, 0.93 * h),
                               (side * 120 * s, 18 * s, 1.05 * h)], [8, 6, 6.5]))  # fmt: skip
    points, radii = (np.concatenate(part) for part in zip(*lines, strict=True))
    clavicles = tubes(grid, points, radii, reach=4.0)
    x, y, z = grid.axes
    out = -chest.cage - 24
    blade = 2.6 - np.abs(out + 4 * np.cos((np.abs(x) - 92) / 16) - 0.04 * (z - 0.7 * h))
    window = np.minimum(np.abs(x) - 66 * s + 0.25 * (z - 0.75 * h), 118 * s - np.abs(x))
    window = np.minimum(window, -30 * s - y)
    window = np.minimum(window, np.minimum(z - 0.52 * h, chest.body - 10))
    return patient.marrow_hu, np.maximum(clavicles, np.minimum(blade, window)), 1.0


def _spine(grid: Grid, patient: Patient) -> list[tuple]:
    s = patient.scale
    x, y, z = grid.axes
    spine_x, spine_y = spine_line(patient, z)
    u, v = x - spine_x, y - spine_y
    pitch = 0.108 * patient.height
    level = np.abs(z / pitch - np.round(z / pitch))
    disc = np.clip((level - 0.37) / 0.05, 0, 1)
    waist = 1 - 0.08 * np.cos(2 * np.pi * level) * (1 - disc)
    rho = np.sqrt((u / (17.5 * s)) ** 2 + ((v + 0.0) / (14.5 * s)) ** 2) / waist
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


def paint_lungs(
    image: np.ndarray, rng: np.random.Generator, grid: Grid, patient: Patient, chest: Chest, ends: int
) -> tuple[np.ndarray, np.ndarray]:
    """Lung tissue, denser where gravity pulls the blood; returns lung cover and vessel cover (0 … 1).

    The vessels are painted later, over any lesion: :func:`paint_vessels`.
    """
    lungs = occupancy(chest.lungs, grid.spacing[0])
    y = grid.axes[1]
    tissue = patient.lung_hu + 22 * smooth_noise(rng, grid, 45.0) + 16 * smooth_noise(rng, grid, 9.0)
    tissue = (
        tissue
        - 0.30 * y
        + rng.uniform(40, 170) * np.exp(-(np.maximum(chest.cage, 0) / 7.0)) * np.clip((-y - 50) / 35, 0, 1)
    )
    tissue = tissue + 130 * _fissures(rng, grid, patient)
    paint(image, tissue, lungs)
    return lungs, _lung_vessels(rng, grid, patient, chest, ends)


def _fissures(rng: np.random.Generator, grid: Grid, patient: Patient) -> np.ndarray:
    """The oblique fissures: a faint sheet from high behind to low in front, 0 … 1."""
    _, y, z = grid.axes
    sheet = (
        0.62 * (y + 42 * patient.scale) + 0.78 * (z - 0.55 * patient.height) * 0.9 + 4 * smooth_noise(rng, grid, 50.0)
    )
    return np.exp(-((sheet / 1.6) ** 2))


def _lung_vessels(rng: np.random.Generator, grid: Grid, patient: Patient, chest: Chest, ends: int) -> np.ndarray:
    s, h, d = patient.scale, patient.height, patient.dome
    hilum = 0.60 * h
    # Arteries follow the bronchi from the hilum, veins run lower to the left atrium.
    roots = [(42, -14, hilum - 6), (-46, -18, hilum), (34, -8, d + 56), (-36, -12, d + 58)]
    cover = np.zeros(grid.shape, dtype=np.float32)
    x = grid.axes[0]
    for number, root in enumerate(roots):
        root = np.array([root[0] * s, root[1] * s, root[2]])
        inside = (chest.lungs > 3) & ((x > 0) == (root[0] > 0))
        goals = vessels.end_points(rng, grid, inside, ends if number < 2 else ends * 2 // 3)
        points, radii, upright = vessels.lung_tree(rng, root, goals, 0.68, 0.7 * grid.spacing[0])
        thickness = np.minimum(1, 2 * radii / grid.spacing[2])
        gain = np.sqrt(upright**2 + (1 - upright**2) * thickness)
        np.maximum(cover, tubes(grid, points, radii, grid.spacing[0], gain), out=cover)
    return cover


def paint_vessels(image: np.ndarray, patient: Patient, lungs: np.ndarray, cover: np.ndarray) -> None:
    """Blood vessels of the lungs, where they are denser than what is there already."""
    paint(image, np.maximum(image, patient.blood_hu - 5), cover * lungs)


def paint_airways(image: np.ndarray, grid: Grid, patient: Patient) -> None:
    """Trachea and bronchi: a thin wall and air."""
    lumen = tubes(grid, *vessels.airways(patient), reach=4.0)
    pixel = grid.spacing[0]
    paint(image, np.maximum(image, 10.0), occupancy(lumen + 1.6, pixel) * 0.75)
    paint(image, -985.0, occupancy(lumen, pixel))


def paint_table(image: np.ndarray, grid: Grid, patient: Patient, chest: Chest) -> None:
    """The curved couch under the patient."""
    x, y, _ = grid.axes
    surface = y + 126 * patient.scale + patient.fat - (x / 62) ** 2
    shell = np.exp(-((surface / 2.2) ** 2)) + 0.8 * np.exp(-(((surface + 12) / 2.0) ** 2))
    paint(image, -620.0, np.clip(shell * occupancy(-chest.body, 2.0), 0, 1))
