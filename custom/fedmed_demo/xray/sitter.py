"""The people before the X-ray tube: adults and children."""

from dataclasses import dataclass, replace

import numpy as np

from fedmed_demo.build import Patient, draw_patient


@dataclass(frozen=True)
class Sitter:
    """One person before the X-ray tube."""

    patient: Patient  # measures in the phantom's mm, which are those of an adult
    size: float  # mm of this person in one mm of the phantom; below 1 for a child
    bone: float  # relative density of the bones
    lung: float  # attenuation of aerated lung, share of water's
    gas: float  # mm of gas in stomach and bowel
    thymus: float  # width in mm added to the upper mediastinum
    slope: float  # fall of the ribs, 1 for an adult's


def draw_sitter(rng: np.random.Generator, child: bool, shallow: float) -> Sitter:
    """Draw an adult or a child; ``shallow`` (0 … 1) is how often, and by how much, a breath is less than a deep one."""
    patient = draw_patient(rng)
    missing = shallow * float(rng.beta(1.3, 2.2))  # of a deep breath
    if child:
        size = float(rng.uniform(0.42, 0.72))
        patient = replace(
            patient,
            height=float(rng.uniform(188, 214)),
            cage=(patient.cage[0] * float(rng.uniform(0.90, 1.0)), patient.cage[1] * float(rng.uniform(1.0, 1.14))),
            fat=float(rng.uniform(5, 13)),
            breast=0.0,
            heart=float(rng.uniform(0.92, 1.12)),
            spine_sway=float(rng.normal(0, 2)),
        )
    else:
        size = 1.0
        patient = replace(
            patient, heart=float(np.clip(rng.normal(1.02, 0.12), 0.8, 1.4)), fat=float(rng.uniform(6, 30))
        )
    patient = replace(patient, height=patient.height * (1 - 0.15 * missing), dome=patient.dome * (1 + 0.35 * missing))
    return Sitter(
        patient=patient,
        size=size,
        bone=float(rng.uniform(0.55, 0.85) if child else rng.uniform(0.6, 1.15)),
        lung=float(rng.uniform(0.12, 0.17)) + 0.09 * missing,
        gas=float(rng.uniform(10, 60)),
        thymus=float(rng.uniform(0, 12)) if child and size < 0.55 else 0.0,
        slope=float(rng.uniform(0.55, 0.8) if child else rng.uniform(0.85, 1.15)),
    )
