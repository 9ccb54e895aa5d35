"""Vessels and airways of a frontal radiograph, drawn at the image's own grid."""

import numpy as np

from fedmed.data.synthetic import vessels
from fedmed.data.synthetic.xray.body import Thorax
from fedmed.data.synthetic.xray.view import View

ENDS = 70  # branches of an artery
STEP = 2.0  # mm between two points of a tube


def markings(rng: np.random.Generator, thorax: Thorax, view: View) -> np.ndarray:
    """Blood vessels of both lungs less the air of trachea and bronchi, as mm of water, the image's shape."""
    blood = _blood(rng, thorax)
    air, wide = vessels.airways(thorax.sitter.patient)
    # Bronchi within the lung are hardly visible.
    lines = [(*blood, np.full(len(blood[1]), 2.2 * (1 - thorax.sitter.lung)))]
    lines.append((air, wide, -1.1 * np.clip((wide - 5.2) / 3.2, 0, 1)))
    return view.tubes(*(np.concatenate(part) for part in zip(*lines, strict=True)), step=STEP)


def _blood(rng: np.random.Generator, thorax: Thorax) -> tuple[np.ndarray, np.ndarray]:
    """An artery and a vein a side: points (N, 3) and radii (N,) in mm."""
    patient = thorax.sitter.patient
    s, h, d = patient.scale, patient.height, patient.dome
    hilum = 0.60 * h
    roots = [(42, -14, hilum - 6), (-46, -18, hilum), (34, -8, d + 56), (-36, -12, d + 58)]
    x = thorax.grid.axes[0]
    points, radii = [], []
    for number, root in enumerate(roots):
        root = np.array([root[0] * s, root[1] * s, root[2]])
        inside = (thorax.chest.lungs > 6) & ((x > 0) == (root[0] > 0))
        goals = vessels.end_points(rng, thorax.grid, inside, ENDS if number < 2 else ENDS * 2 // 3)
        line, radius, _ = vessels.lung_tree(rng, root, goals, 0.62, STEP)
        points.append(line)
        radii.append(radius)
    return np.concatenate(points), np.concatenate(radii)
