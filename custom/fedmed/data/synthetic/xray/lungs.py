"""Vessels and airways of a frontal radiograph, drawn at the image's own grid."""

import numpy as np

from fedmed.data.synthetic import vessels
from fedmed.data.synthetic.xray.body import Thorax
from fedmed.data.synthetic.xray.view import View

ENDS = 90  # branches of an artery


def markings(rng: np.random.Generator, thorax: Thorax, view: View) -> np.ndarray:
    """Blood vessels of both lungs as mm of water beyond lung, the image's shape."""
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
        line, radius, _ = vessels.lung_tree(rng, root, goals, 0.62, 2.0)
        points.append(line)
        radii.append(radius)
    share = 1 - thorax.sitter.lung
    return 2.2 * share * view.tubes(np.concatenate(points), np.concatenate(radii), 2.0)


def airways(thorax: Thorax, view: View) -> np.ndarray:
    """Air of trachea and bronchi, mm of water that is missing, the image's shape."""
    points, radii = vessels.airways(thorax.sitter.patient)
    # From the larynx down; a bronchus within the lung is hardly seen.
    shown = np.clip((radii - 3.5) / 3, 0, 1)
    return 1.3 * view.tubes(points, radii * np.sqrt(shown) + 1e-3, 2.0)
