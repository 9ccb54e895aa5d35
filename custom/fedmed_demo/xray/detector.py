"""From mm of water to grey levels: scatter, quantum noise, the detector's curve and an institution's processing."""

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from fedmed_demo.xray.view import View


@dataclass(frozen=True)
class Detector:
    """Exposure and processing at a site."""

    mu: float  # attenuation of water in 1/mm of the phantom at the site's voltage
    scatter: float  # scattered per direct radiation behind the lungs; a grid keeps it low
    dose: float  # quanta in a pixel of free air, in thousands
    blur: float  # mm
    enhance: float = 0.0  # strength of edge enhancement
    gamma: float = 1.0  # of the curve from density to grey; above 1 keeps the lungs dark
    black: float = 0.3  # how far below the lungs black lies, share of the range from lungs to abdomen
    toe: float = 0.1  # share of the range that the darkest and brightest densities are pressed into
    spread: float = 0.1  # random part of brightness and contrast between two exposures


def expose(rng: np.random.Generator, water: np.ndarray, view: View, detector: Detector) -> np.ndarray:
    """Return the processed image, 0 (free air) … 1 (densest), float32, of ``water`` mm (the image's shape)."""
    mu = detector.mu * float(np.exp(rng.normal(0, 0.4 * detector.spread)))
    direct = np.exp(-mu * view.blur(water, detector.blur))
    veil = _wide(direct, 45.0 / view.pixel)
    scattered = detector.scatter * float(np.exp(rng.normal(0, detector.spread))) * veil
    quanta = 1000 * detector.dose * float(np.exp(rng.normal(0, 3 * detector.spread)))
    signal = direct + scattered
    signal += rng.standard_normal(signal.shape, dtype=np.float32) * np.sqrt(signal / np.float32(quanta))
    density = -np.log(np.maximum(signal, 1e-4))
    if detector.enhance:
        fine = density - view.blur(density, 5.0)
        broad = density - _wide(density, 60.0 / view.pixel)
        density = density + detector.enhance * (0.8 * fine + 0.35 * broad)
    return _grey(rng, density, detector)


def _wide(image: np.ndarray, size: float) -> np.ndarray:
    """A wide Gaussian of ``size`` pixels, computed on every fourth pixel."""
    small = ndimage.gaussian_filter(image[::4, ::4], size / 4, mode="nearest", truncate=2.5)
    factors = tuple(n / m for n, m in zip(image.shape, small.shape, strict=True))
    return ndimage.zoom(small, factors, order=1)


def _grey(rng: np.random.Generator, density: np.ndarray, detector: Detector) -> np.ndarray:
    """The site's tone curve between densities that it finds in the picture itself."""
    middle = density[tuple(slice(n // 6, -n // 5, 2) for n in density.shape)]
    lungs, high = np.percentile(middle, (12, 98))
    low = np.float32(lungs - detector.black * (high - lungs))
    high = np.float32(high + 0.06 * (high - lungs))
    scaled = (density - low) / (high - low)
    scaled = 0.5 + (scaled - 0.5) * np.float32(np.exp(rng.normal(0, detector.spread)))
    scaled += np.float32(rng.normal(0, 0.35 * detector.spread))
    # Straight in the middle, bent at both ends.
    toe = np.float32(detector.toe)
    bent = np.where(scaled < toe, toe * np.exp(np.minimum(scaled / toe - 1, 0)), scaled)
    bent = np.where(bent > 1 - toe, 1 - toe * np.exp(np.minimum((1 - bent) / toe - 1, 0)), bent)
    return np.clip(bent, 0, 1).astype(np.float32) ** np.float32(detector.gamma)
