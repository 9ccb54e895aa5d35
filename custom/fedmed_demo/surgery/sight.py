"""Light a patient's tissue as the camera sees it at a moment, moved by breath and by the hands."""

import cv2
import numpy as np

from fedmed_demo.surgery.layers import Surface
from fedmed_demo.surgery.motion import CameraView, Drift, Pose
from fedmed_demo.surgery.operation import Operation
from fedmed_demo.surgery.state import State, state_at
from fedmed_demo.surgery.texture import Plane, rgb
from fedmed_demo.surgery.tissue import Body

BREATH = 3.6  # seconds
SLANT = 0.9  # how much nearer the light is to the tissue than it would have to be to come straight from everywhere


class Sight:
    """The tissue of one recording before the camera, whose light comes from beside its lens."""

    def __init__(self, rng: np.random.Generator, body: Body, grid: Plane, operation: Operation, blood: float) -> None:
        self.body, self.grid, self.operation = body, grid, operation
        self.quarter = Plane((grid.shape[0] // 4, grid.shape[1] // 4), grid.scale / 4)
        self.blood = blood * float(rng.uniform(0.1, 1.5))
        self.pace, self.beat = BREATH * float(rng.uniform(0.8, 1.25)), Drift(rng, 2, 0.9, 0.002)
        self.state: State | None = None
        self.surface: Surface | None = None
        x, y = grid.axes
        ray = [np.float32(-SLANT) * x + 0 * y, np.float32(-SLANT) * y + 0 * x, np.ones(grid.shape, np.float32)]
        self.ray = np.stack(ray) / np.sqrt(1 + np.float32(SLANT**2) * (x * x + y * y))

    def lit(self, time: float, view: CameraView, poses: list[Pose]) -> tuple[np.ndarray, np.ndarray]:
        """The lit tissue (H, W, 3) float32, 0 … 255, and its height (H, W)."""
        state = state_at(self.operation, time, self.blood)
        if self.surface is None or state != self.state:
            self.state, self.surface = state, self.body.surface(state)
        columns, rows = self._lookup(time, view, poses)
        colour = cv2.remap(self.surface.colour, columns, rows, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
        form = cv2.remap(self.surface.form, columns, rows, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
        normal_x, normal_y, normal_z, height = cv2.split(form)
        facing = self.ray[0] * normal_x
        facing += self.ray[1] * normal_y
        facing += self.ray[2] * normal_z
        facing.clip(0, 1, out=facing)
        shine = facing.copy()
        for _ in range(5):
            shine *= shine
        wet = cv2.extractChannel(colour, 3).astype(np.float32)
        shine *= wet * wet * np.float32(210 / 255**2 * self.body.anatomy.texture)
        facing *= np.float32(0.85) + np.float32(0.7) * height
        image = cv2.multiply(cv2.cvtColor(colour, cv2.COLOR_RGBA2RGB), rgb(facing), dtype=cv2.CV_32F)
        image += rgb(shine)
        return image, height

    def _lookup(self, time: float, view: CameraView, poses: list[Pose]) -> tuple[np.ndarray, np.ndarray]:
        """Columns and rows (H, W) float32 of the tissue that each pixel shows: camera, breath and pulls."""
        back = np.linalg.inv(view.matrix) * self.grid.scale
        drift = self._drift(time, poses)
        x, y = self.grid.axes
        middle = view.centre * self.body.grid.scale + (np.array(self.body.grid.shape[::-1]) - 1) / 2
        maps = []
        for row, start in zip(back, middle, strict=True):
            coarse = cv2.transform(drift, row[None]).astype(np.float32)
            along = cv2.resize(coarse, self.grid.shape[::-1], interpolation=cv2.INTER_LINEAR)
            maps.append(along + (np.float32(row[0]) * x + (np.float32(row[1]) * y + np.float32(start))))
        return maps[0], maps[1]

    def _drift(self, time: float, poses: list[Pose]) -> np.ndarray:
        """(h, w, 2) float32 in view units at a quarter of the size: where tissue has come from."""
        x, y = self.quarter.axes
        breath, beat = 0.016 * np.sin(2 * np.pi * time / self.pace) ** 3, self.beat.at(time)
        drift = np.empty((*self.quarter.shape, 2), np.float32)
        drift[..., 0] = 0.3 * breath * x + beat[0]
        drift[..., 1] = breath * (0.6 - y) + beat[1]
        for pose in poses:
            if pose.pull.any():
                far = (x - np.float32(pose.tip[0])) ** 2 + (y - np.float32(pose.tip[1])) ** 2
                drift -= np.exp(-28 * far)[..., None] * pose.pull.astype(np.float32)
        return drift
