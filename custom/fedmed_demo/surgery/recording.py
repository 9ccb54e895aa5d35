"""Render one recording frame by frame, with its truth."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedmed.data.operation_names import TOOLS
from fedmed.seeds import derive_seed
from fedmed_demo.surgery.drawing import Drawing
from fedmed_demo.surgery.instruments import Style, parts
from fedmed_demo.surgery.motion import Camera, CameraView, Hands, Pose, work_site
from fedmed_demo.surgery.operation import draw_operation
from fedmed_demo.surgery.optics import Lens, Outside, Smoke
from fedmed_demo.surgery.profile import HospitalProfile
from fedmed_demo.surgery.sight import Sight
from fedmed_demo.surgery.texture import Plane, noise
from fedmed_demo.surgery.tissue import Body

SEEN = 0.004  # share of the round picture that an instrument must cover to be present
MARGIN = 1.42  # of the tissue around the frame


@dataclass(frozen=True)
class Frame:
    """One frame and its truth."""

    time: float  # seconds
    image: np.ndarray  # (H, W, 3) uint8, red, green, blue
    mask: np.ndarray  # (H, W) uint8, places in PARTS
    owner: np.ndarray  # (H, W) uint8, 0 or 1 + place in TOOLS of the instrument that is seen there
    phase: int  # place in PHASES
    present: tuple[bool, ...]  # of TOOLS


class DrawnRecording:
    """The recording of one operation; iterate it from its beginning, as often as wanted.

    Everything follows from hospital, patient and seed: the same three give the same frames, bit for bit.
    """

    def __init__(self, hospital: HospitalProfile, patient: str, seed: int = 0, without: tuple[str, ...] = ()) -> None:
        self.hospital, self.patient, self.seed = hospital, patient, seed
        self.operation = draw_operation(self._chance("operation"), hospital.course, without)

    def _chance(self, what: str) -> np.random.Generator:
        return np.random.default_rng(derive_seed(self.seed, "surgery", self.hospital.name, self.patient, what))

    @cached_property
    def times(self) -> NDArray[np.float64]:
        """(N,) seconds of the frames; at a rate that swings it is back where it was after some 20 frames."""
        rate, swing = self.hospital.rate, self.hospital.rate_swing
        if not swing:
            return np.arange(int(self.operation.seconds * rate)) / rate
        steps = (1 + swing * np.sin(0.3 * np.arange(int(2 * self.operation.seconds * rate)))) / rate
        times = np.append(0, np.cumsum(steps)).round(3)
        return times[times < self.operation.seconds]

    def __len__(self) -> int:
        return len(self.times)

    def __iter__(self) -> Iterator[Frame]:
        room = Room(self)
        for number, time in enumerate(self.times.tolist()):
            yield room.frame(number, time)


class Room:
    """Everything that is drawn once a recording, and the renderer of its frames."""

    def __init__(self, recording: DrawnRecording) -> None:
        hospital, chance = recording.hospital, recording._chance
        self.operation = recording.operation
        columns, rows = hospital.size
        self.grid = Plane((rows, columns), float(rows))
        wide = Plane((int(rows * MARGIN), int(columns * MARGIN)), float(rows))
        rng = chance("patient")
        self.body = Body(rng, hospital.anatomy, wide)
        self.sight = Sight(rng, self.body, self.grid, self.operation, 0.5 * hospital.course.blood)
        rng = chance("camera")
        self.camera, self.lens = Camera(rng, hospital.optics.zoom), Lens(rng, hospital.optics, self.grid)
        self.smoke = Smoke(rng, self.grid, hospital.course.smoke * float(rng.uniform(0.2, 1.4)), self.operation.seconds)
        self.outside = Outside(rng, self.grid)
        self.grain = np.float32(hospital.anatomy.texture) * noise(rng, self.grid, 0.02, 2)
        rng = chance("hands")
        self.hands = Hands(rng, hospital.instruments, columns / rows)
        self.styles = {
            (tool, hand): Style(int(rng.integers(2**31)), hospital.instruments, tool)
            for tool in TOOLS
            for hand in range(3)
        }
        self.before: CameraView | None = None

    def frame(self, number: int, time: float) -> Frame:
        """Render the frame at ``time``; call in the order of time, for smoke and blur depend on what was before."""
        site = work_site(self.operation, time, self.body.neck, self.body.fundus)
        view = self.camera.at(time, site)
        poses = self._poses(time, view.to_view(site))
        image, height = self.sight.lit(time, view, [pose for _, _, pose in poses])
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
        visible = []
        for number, use in enumerate(self.operation.uses):
            if use.start <= time <= use.end:
                pose = self.hands.pose(use, number, time, site)
                if pose is not None:
                    visible.append((TOOLS.index(use.tool), use.hand, pose))
        return sorted(visible, key=lambda one: one[2].near)

    def _instruments(self, drawing: Drawing, poses: list[tuple[int, int, Pose]]) -> None:
        pieces = [parts(pose, self.styles[TOOLS[tool], hand]) for tool, hand, pose in poses]
        for one, (_, _, pose) in zip(pieces, poses, strict=True):
            drawing.cast(one, pose.near)
        drawing.darken()
        for one, (tool, _, pose) in zip(pieces, poses, strict=True):
            drawing.add(one, tool + 1, pose.near, 0.8 + 0.45 * pose.near)
