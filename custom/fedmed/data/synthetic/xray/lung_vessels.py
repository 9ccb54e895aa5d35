"""Vessels and airways of a frontal radiograph, drawn at the image's own grid."""

import numpy as np

from fedmed.data.synthetic import vessels
from fedmed.data.synthetic.xray.body import Thorax
from fedmed.data.synthetic.xray.view import View

ENDS = 70  # branches of an artery
STEP = 2.0  # mm between two points of a tube


def markings(rng: np.random.Generator, thorax: Thorax, view: View) -> np.ndarray:
    """Blood vessels of both lungs less the air of trachea and bronchi, as mm of water, the image's shape."""
    patient = thorax.sitter.patient
    trees = vessels.lung_trees(rng, thorax.grid, patient, thorax.chest.lungs > 6, ENDS, 0.62, STEP)
    blood, thick, _ = (np.concatenate(part) for part in zip(*trees, strict=True))
    air, wide = vessels.airways(patient)
    density = np.full(len(thick), 2.2 * (1 - thorax.sitter.lung))
    hollow = -1.1 * np.clip((wide - 5.2) / 3.2, 0, 1)  # bronchi within the lung are hardly visible
    parts = ([blood, air], [thick, wide], [density, hollow])
    points, radii, densities = (np.concatenate(part) for part in parts)
    return view.tubes(points, radii, densities, STEP)
