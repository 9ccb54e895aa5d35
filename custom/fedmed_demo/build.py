"""One patient's build: measures of the body, and the line of the spine."""

from dataclasses import dataclass

import numpy as np


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


def profile(z: np.ndarray, height: float, values: list[float]) -> np.ndarray:
    """A smooth function of height through ``values`` at equal steps from base (0) to apex (``height``)."""
    from scipy.interpolate import PchipInterpolator  # loaded where it is used: a third of a second

    curve = PchipInterpolator(np.linspace(0, 1, len(values)), values)
    return curve(np.clip(z / height, 0, 1)).astype(np.float32)


def spine_line(patient: Patient, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x and y in mm of the middle of the vertebral bodies at every height: kyphosis and a little sway."""
    t = z / patient.height
    x = patient.spine_sway * np.sin(2.2 * t)
    y = (-46 - 13 * np.sin(np.pi * np.clip(t * 0.85 + 0.1, 0, 1)) + 6) * patient.scale
    return x.astype(np.float32), y.astype(np.float32)
