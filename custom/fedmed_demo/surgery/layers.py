"""Lay tissue upon tissue: colour, height and wetness on one grid."""

from dataclasses import dataclass

import cv2
import numpy as np

from fedmed_demo.surgery.texture import Plane, rgb, soften


@dataclass(frozen=True)
class Surface:
    """Tissue as the renderer needs it, on a grid larger than the frame."""

    colour: np.ndarray  # (H, W, 4) uint8: red, green, blue and how wet it is
    form: np.ndarray  # (H, W, 4) float32: the normal's x, y and z, and the height over the far wall (about 0 … 1)


class Layers:
    """Colour, height and wetness while tissue is laid upon tissue."""

    def __init__(self, grid: Plane, tone: np.ndarray, coarse: np.ndarray, middle: np.ndarray) -> None:
        self.scale = grid.scale
        self.colour = (tone * (1 + 0.07 * coarse + 0.04 * middle)[..., None]).astype(np.float32)
        self.height = (0.1 * coarse + 0.02 * middle).astype(np.float32)
        self.wet = np.full(grid.shape, 0.55, np.float32)

    def put(self, depth: np.ndarray, tone: np.ndarray, swell: float, wet: float, relief: np.ndarray | float) -> None:
        """Lay tissue where ``depth`` is above 0: round at its edge, with a shadow on what lies beneath."""
        cover = np.clip(depth * np.float32(0.12 * self.scale) + 0.5, 0, 1).astype(np.float32)
        around = soften(cover, 0.05 * self.scale)
        self.colour *= rgb(1 - np.float32(0.4) * around * (1 - cover))
        inside = np.clip(depth, 0, 1)
        top = np.float32(swell) * np.sqrt(inside * (2 - inside)) + np.float32(0.06) + relief
        self.colour += rgb(cover) * (tone - self.colour).astype(np.float32)
        self.height += cover * (top - self.height).astype(np.float32)
        self.wet += cover * (np.float32(wet) - self.wet)

    def stain(
        self, cover: np.ndarray, tone: tuple[float, float, float] | np.ndarray, share: float, wet: float | None = None
    ) -> None:
        """Colour the surface where ``cover`` is above 0 without changing its form."""
        cover = np.float32(share) * cover.astype(np.float32)
        self.colour += rgb(cover) * (np.array(tone, np.float32) - self.colour)
        if wet is not None:
            self.wet += cover * (np.float32(wet) - self.wet)

    def tear(self, cover: np.ndarray, tone: np.ndarray, relief: np.ndarray) -> None:
        """Make the surface raw where ``cover`` is above 0."""
        self.stain(cover, tone, 1.0, 0.8)
        self.height += (cover * (relief - 0.06)).astype(np.float32)

    def relief(self) -> np.ndarray:
        """Height of the surface above what is around it; negative in furrows."""
        return self.height - soften(self.height, 0.03 * self.scale)

    def finish(self, relief: float, grain: np.ndarray) -> Surface:
        height = cv2.GaussianBlur(self.height, (0, 0), 0.012 * self.scale) + 0.1 * self.relief()
        rough = height + np.float32(0.0025 * relief) * grain
        slopes = [cv2.Sobel(rough, cv2.CV_32F, x, y, scale=self.scale / 8 * 0.2) for x, y in ((1, 0), (0, 1))]
        slopes = [1.4 * np.tanh(slope / 1.4) for slope in slopes]
        upright = 1 / np.sqrt(1 + slopes[0] ** 2 + slopes[1] ** 2)
        form = np.stack([-slopes[0] * upright, -slopes[1] * upright, upright, height], axis=-1)
        return Surface(np.clip(255 * np.dstack([self.colour, self.wet]), 0, 255).astype(np.uint8), form)
