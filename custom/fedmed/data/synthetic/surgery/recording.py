"""Render one recording frame by frame, with its truth."""

from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np

from fedmed.data.synthetic.surgery.drawing import Drawing
from fedmed.data.synthetic.surgery.instruments import Style, parts
from fedmed.data.synthetic.surgery.motion import Camera, Drift, Hands, Pose, View, work_site
from fedmed.data.synthetic.surgery.operation import draw_operation
from fedmed.data.synthetic.surgery.optics import Lens, Outside, Smoke
from fedmed.data.synthetic.surgery.profile import TOOLS, Hospital
from fedmed.data.synthetic.surgery.texture import Grid, noise, rgb
from fedmed.data.synthetic.surgery.tissue import Body, State, Surface, state_at
from fedmed.seeds import derive_seed

SEEN = 0.004  # share of the round picture that an instrument must cover to be present
MARGIN = 1.42  # of the tissue around the frame
BREATH = 3.6  # seconds


@dataclass(frozen=True)
class Frame:
    """One frame and its truth."""

    time: float  # seconds
    image: np.ndarray  # (H, W, 3) uint8, red, green, blue
    mask: np.ndarray  # (H, W) uint8, places in PARTS
    owner: np.ndarray  # (H, W) uint8, 0 or 1 + place in TOOLS of the instrument that is seen there
    phase: int  # place in PHASES
    present: tuple[bool, ...]  # of TOOLS


class Recording:
    """The recording of one operation; iterate it from its beginning, as often as wanted.

    Everything follows from hospital, patient and seed: the same three give the same frames, bit for bit.
    """

    def __init__(self, hospital: Hospital, patient: str, seed: int = 0, without: tuple[str, ...] = ()) -> None:
        self.hospital, self.patient, self.seed = hospital, patient, seed
        self.operation = draw_operation(self._chance("operation"), hospital.course, without)

    def _chance(self, what: str) -> np.random.Generator:
        return np.random.default_rng(derive_seed(self.seed, "surgery", self.hospital.name, self.patient, what))

    def __len__(self) -> int:
        return int(self.operation.seconds * self.hospital.rate)

    def __iter__(self) -> Iterator[Frame]:
        room = Room(self)
        for number in range(len(self)):
            yield room.frame(number, number / self.hospital.rate)


class Room:
    """Everything that is drawn once a recording, and the renderer of its frames."""

    def __init__(self, recording: Recording) -> None:
        hospital, chance = recording.hospital, recording._chance
        self.operation = recording.operation
        columns, rows = hospital.size
        self.grid = Grid((rows, columns), float(rows))
        self.quarter = Grid((rows // 4, columns // 4), rows / 4)
        wide = Grid((int(rows * MARGIN), int(columns * MARGIN)), float(rows))
        rng = chance("patient")
        self.body = Body(rng, hospital.anatomy, wide)
        self.blood = 0.5 * hospital.course.blood * float(rng.uniform(0.1, 1.5))
        self.pace, self.beat = BREATH * float(rng.uniform(0.8, 1.25)), Drift(rng, 2, 0.9, 0.002)
        rng = chance("camera")
        self.camera, self.lens = Camera(rng, hospital.optics.zoom), Lens(rng, hospital.optics, self.grid)
        self.smoke = Smoke(rng, self.grid, hospital.course.smoke * float(rng.uniform(0.2, 1.4)), self.operation.seconds)
        self.outside, self.grain = Outside(rng, self.grid), noise(rng, self.grid, 0.02, 2)
        rng = chance("hands")
        self.hands = Hands(rng, hospital.instruments, columns / rows)
        self.styles = {
            (tool, hand): Style(int(rng.integers(2**31)), hospital.instruments, tool)
            for tool in TOOLS
            for hand in range(3)
        }
        self.state: State | None = None
        self.surface: Surface | None = None
        self.before: View | None = None
        x, y = self.grid.axes
        ray = [np.float32(-0.9) * x + 0 * y, np.float32(-0.9) * y + 0 * x, np.ones(self.grid.shape, np.float32)]
        self.ray = np.stack(ray) / np.sqrt(1 + 0.81 * (x * x + y * y))

    def frame(self, number: int, time: float) -> Frame:
        """Render the frame at ``time``; call in the order of time, for smoke and blur depend on what was before."""
        site = work_site(self.operation, time, self.body.neck, self.body.fundus)
        view = self.camera.at(time, site)
        poses = self._poses(time, view.to_view(site))
        image, height = self._tissue(time, view, [pose for _, _, pose in poses])
        drawing = Drawing(image, height, self.grid, self.grain)
        self._instruments(drawing, poses)
        if time < self.operation.inside:
            image = self.outside.at(time, self.operation.inside, image)
            drawing.mask[:], drawing.owner[:] = 0, 0
        self.smoke.into(image, time, any(pose.burns for _, _, pose in poses))
        moved = float(np.hypot(*(view.centre - self.before.centre))) if self.before else 0.0
        self.before = view
        drawing.mask *= self.lens.inside
        drawing.owner *= self.lens.inside
        glare = np.count_nonzero(drawing.mask) / drawing.mask.size
        picture = self.lens.expose(image, time, number, moved, glare)
        least = SEEN * np.count_nonzero(self.lens.inside)
        owned = np.bincount(drawing.owner.ravel(), minlength=len(TOOLS) + 1)[1:]
        present = tuple(bool(count >= least) for count in owned)
        return Frame(time, picture, drawing.mask, drawing.owner, self.operation.phase_at(time), present)

    def _poses(self, time: float, site: np.ndarray) -> list[tuple[int, int, Pose]]:
        """(place in TOOLS, hand, pose) of what is in the body, the farthest first."""
        if time < self.operation.inside:
            return []
        found = []
        for number, use in enumerate(self.operation.uses):
            if use.start <= time <= use.end:
                pose = self.hands.pose(use, number, time, site)
                if pose is not None:
                    found.append((TOOLS.index(use.tool), use.hand, pose))
        return sorted(found, key=lambda one: one[2].near)

    def _instruments(self, drawing: Drawing, poses: list[tuple[int, int, Pose]]) -> None:
        pieces = [parts(pose, self.styles[TOOLS[tool], hand]) for tool, hand, pose in poses]
        for one, (_, _, pose) in zip(pieces, poses, strict=True):
            drawing.cast(one, pose.near)
        drawing.darken()
        for one, (tool, _, pose) in zip(pieces, poses, strict=True):
            drawing.add(one, tool + 1, pose.near, 0.8 + 0.45 * pose.near)

    def _tissue(self, time: float, view: View, poses: list[Pose]) -> tuple[np.ndarray, np.ndarray]:
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
        shine *= wet * wet * np.float32(210 / 255**2)
        facing *= np.float32(0.85) + np.float32(0.7) * height
        image = cv2.multiply(cv2.cvtColor(colour, cv2.COLOR_RGBA2RGB), rgb(facing), dtype=cv2.CV_32F)
        image += rgb(shine)
        return image, height

    def _lookup(self, time: float, view: View, poses: list[Pose]) -> tuple[np.ndarray, np.ndarray]:
        """Columns and rows (H, W) float32 of the tissue that each pixel shows: camera, breath and pulls."""
        back = np.linalg.inv(view.matrix) * self.grid.scale
        drift = self._drift(time, poses)
        x, y = self.grid.axes
        middle = view.centre * self.body.grid.scale + (np.array(self.body.grid.shape[::-1]) - 1) / 2
        maps = []
        for row, start in zip(back, middle, strict=True):
            along = cv2.transform(drift, row[None]).astype(np.float32)
            along = cv2.resize(along, self.grid.shape[::-1], interpolation=cv2.INTER_LINEAR)
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
