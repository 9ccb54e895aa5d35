"""Organs of other operations than that of a gallbladder: kidney, prostate, uterus, lung."""

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from fedmed_demo.surgery.layers import Layers
from fedmed_demo.surgery.texture import Plane, mound, rgb, smooth_step, tubes

VESSELS = (0.45, 0.10, 0.12)


class Tissue(Protocol):
    """Material of an organ: a patient's random fields and colours; see ``tissue.Body``."""

    grid: Plane
    coarse: np.ndarray
    middle: np.ndarray
    fine: np.ndarray
    lobules: np.ndarray
    grain: np.ndarray
    trees: dict[str, np.ndarray]
    colours: dict[str, np.ndarray]
    axis: float
    fundus: np.ndarray
    neck: np.ndarray

    def fat(self, layers: Layers, depth: np.ndarray, swell: float) -> None: ...


def draw_organ(rng: np.random.Generator, name: str, body: Tissue, layers: Layers) -> None:
    """Lay one of ``ORGANS`` and what is around it upon the wall; colours follow those of liver and fat."""
    ORGANS[name](rng, body, layers)


def _kidney(rng: np.random.Generator, body: Tissue, layers: Layers) -> None:
    """A smooth brown bean in its fat, with artery and vein."""
    fat = mound(body.grid, (0.05, 0.1), (0.95, 0.62), body.axis, 0.14 * body.coarse + 0.05 * body.middle)
    body.fat(layers, fat, 0.22)
    middle = body.fundus + rng.normal((0.12, 0.10), 0.06)
    _lines(rng, body, layers, middle + (0.22, 0.1), 0.3, ((0.045, (0.36, 0.24, 0.36)), (0.028, (0.68, 0.30, 0.26))))
    shape = 0.03 * body.coarse + 0.01 * body.middle
    ends = (middle + step * _ahead(body.axis - 4 * step) for step in (0.12, -0.12))
    bean = np.maximum(*(mound(body.grid, tuple(end), (0.30, 0.22), body.axis, shape) for end in ends))
    tone = body.colours["liver"] * rgb(1 + 0.05 * body.middle + 0.05 * body.fine)
    layers.put(bean, tone, 0.45, 0.95, 0.006 * body.fine)
    layers.stain(body.trees["gallbladder"] * (bean > 0.03), VESSELS, 0.4)


def _prostate(rng: np.random.Generator, body: Tissue, layers: Layers) -> None:
    """A bladder above, the gland below its neck, fat on both sides and fibres across."""
    for side in (-1, 1):
        at = (0.72 * side + float(rng.normal(0, 0.06)), 0.25)
        body.fat(layers, mound(body.grid, at, (0.42, 0.55), 0.2 * side, 0.12 * body.middle + 0.1 * body.coarse), 0.25)
    warp = 0.04 * body.coarse + 0.015 * body.middle
    bladder = mound(body.grid, (float(rng.normal(0, 0.06)), -0.5), (0.62, 0.36), float(rng.normal(0, 0.1)), warp)
    tone = np.clip(body.colours["wall"] + (0.10, 0.12, 0.10), 0, 1) * rgb(1 + 0.06 * body.middle + 0.03 * body.grain)
    layers.put(bladder, tone, 0.36, 0.8, 0.008 * body.fine)
    layers.stain(body.trees["wall"] * (bladder > 0.02), VESSELS, 0.6)
    gland = mound(body.grid, tuple(rng.normal((0.02, 0.16), 0.05)), (0.34, 0.26), 0.0, 1.4 * warp)
    tone = body.colours["liver"] * rgb(1 + 0.10 * body.middle + 0.06 * body.fine)
    layers.put(gland, tone, 0.3, 0.85, 0.01 * body.fine)
    fibre = tuple((body.colours["wall"] + 0.05).tolist())
    for _ in range(7):
        start = rng.normal((0, 0.05), (0.5, 0.3))
        _lines(rng, body, layers, start, float(rng.uniform(0.2, 0.5)), ((0.011, fibre),))


def _uterus(rng: np.random.Generator, body: Tissue, layers: Layers) -> None:
    """A pale pear with a tube and an ovary on each side, and loops of bowel below."""
    bowel = np.clip(body.colours["fat"] * (0.95, 0.82, 0.9), 0, 1)
    for height in (0.34, 0.5, 0.66):
        x = np.linspace(-1, 1, 24)
        wave = height + 0.07 * np.sin(4 * x + rng.uniform(0, 6)) + 0.03 * np.sin(9 * x + rng.uniform(0, 6))
        depth = tubes(body.grid, (np.stack([x, wave], 1),), 0.13) + 0.05 * body.middle
        layers.put(depth, bowel * rgb(1 + 0.06 * body.middle + 0.03 * body.fine), 0.3, 0.95, 0.004 * body.fine)
        layers.stain(body.trees["fat"] * (depth > 0.05), VESSELS, 0.5)
    middle = rng.normal((0.0, -0.12), 0.06)
    for side in (-1, 1):
        tube = ((0.032, (0.72, 0.38, 0.36)),)
        _lines(rng, body, layers, middle + (0.22 * side, -0.1), 0.6, tube, 0 if side > 0 else np.pi)
        ovary = mound(body.grid, tuple(middle + (0.52 * side, 0.12)), (0.13, 0.09), 0.5 * side, 0.08 * body.middle)
        white = np.array((0.80, 0.70, 0.66), np.float32) * rgb(1 + 0.05 * body.fine)
        layers.put(ovary, white, 0.2, 0.9, 0.012 * body.fine)
    warp = 0.03 * body.coarse + 0.01 * body.middle
    pear = np.maximum(mound(body.grid, tuple(middle), (0.33, 0.27), 0.0, warp),
                      mound(body.grid, tuple(middle + (0, 0.22)), (0.18, 0.24), 0.0, warp))  # fmt: skip
    tone = body.colours["liver"] * rgb(1 + 0.05 * body.middle + 0.04 * body.grain)
    layers.put(pear, tone, 0.42, 0.9, 0.006 * body.fine)
    layers.stain(body.trees["gallbladder"] * (pear > 0.03), VESSELS, 0.5)


def _lung(rng: np.random.Generator, body: Tissue, layers: Layers) -> None:
    """Two spongy lobes with a fissure between them and black spots, before ribs."""
    for row in (-0.7, -0.3):
        x = np.linspace(-1.2, 1.2, 16)
        rib = tubes(body.grid, (np.stack([x, row + 0.18 * x + 0.12 * x * x], 1),), 0.12)
        layers.put(rib, np.clip(body.colours["wall"] * 1.15, 0, 1) * rgb(1 + 0.05 * body.middle), 0.12, 0.8, 0.0)
    cells = np.exp(-3 * np.abs(body.lobules))
    spots = smooth_step(body.fine + 0.5 * body.middle + 0.4 * body.grain, 1.1, 1.9)
    for at, radii in (((-0.45, 0.3), (0.62, 0.55)), ((0.5, 0.12), (0.62, 0.7))):
        warp = 0.05 * body.coarse + 0.02 * body.middle
        depth = mound(body.grid, tuple(rng.normal(at, 0.04)), radii, float(rng.normal(0.3, 0.15)), warp)
        tone = body.colours["liver"] * rgb(1 + 0.10 * body.middle - 0.13 * cells + 0.05 * body.grain)
        layers.put(depth, tone, 0.4, 0.75, 0.02 * (1 - cells))
        layers.stain(spots * (depth > 0), (0.10, 0.10, 0.13), 0.75)


ORGANS: Mapping[str, Callable[[np.random.Generator, Tissue, Layers], None]] = {
    "kidney": _kidney,
    "prostate": _prostate,
    "uterus": _uterus,
    "lung": _lung,
}


def _ahead(angle: float) -> np.ndarray:
    return np.array([np.cos(angle), np.sin(angle)])


def _lines(
    rng: np.random.Generator,
    body: Tissue,
    layers: Layers,
    start: np.ndarray,
    long: float,
    kinds: tuple[tuple[float, tuple[float, ...]], ...],
    angle: float | None = None,
) -> None:
    """Vessels or fibres side by side from ``start``, each (width, colour)."""
    heading = float(rng.uniform(-np.pi, np.pi)) if angle is None else angle
    for place, (wide, tone) in enumerate(kinds):
        angles = heading + 0.25 * place + np.cumsum(rng.normal(0, 0.14, 10))
        line = start + np.cumsum(np.stack([np.cos(angles), np.sin(angles)], 1), 0) * long / 10
        colour = np.array(tone, np.float32) * rgb(1 + np.float32(0.08) * body.fine)
        depth = np.maximum(tubes(body.grid, (line,), wide), -99)  # without end where all of the line is out of sight
        layers.put(depth, colour, 0.10, 0.9, 0.0)
