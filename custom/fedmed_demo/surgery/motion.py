"""Motion of camera, breath and hands: smooth functions of time, drawn once a recording."""

from dataclasses import dataclass

import numpy as np

from fedmed_demo.surgery.operation import ASSISTANT, LEFT, InstrumentUse, Operation
from fedmed_demo.surgery.profile import Instruments

TRAVEL = 0.7  # seconds from the port to the site
HIDDEN = 0.25  # share of the way from port to site of which nothing is seen yet


class Drift:
    """A smooth random path of several dimensions: three sines each, of about ``period`` seconds."""

    def __init__(self, rng: np.random.Generator, size: int, period: float, spread: float) -> None:
        self.rates = 2 * np.pi / (period * rng.uniform(0.5, 1.6, (3, size)))
        self.starts = rng.uniform(0, 2 * np.pi, (3, size))
        self.spread = spread * 0.8

    def at(self, time: float) -> np.ndarray:
        """(size,) of about ``spread`` in size."""
        return self.spread * np.sin(self.rates * time + self.starts).sum(axis=0)


def ease(share: float) -> float:
    """0 … 1 with a gentle start and end."""
    share = min(max(share, 0.0), 1.0)
    return share * share * (3 - 2 * share)


@dataclass(frozen=True)
class CameraView:
    """View of the camera: from scene units to view units, in which the frame is 1 high and its middle 0."""

    centre: np.ndarray
    zoom: float
    roll: float

    @property
    def matrix(self) -> np.ndarray:
        cos, sin = np.cos(self.roll), np.sin(self.roll)
        return self.zoom * np.array([[cos, -sin], [sin, cos]])

    def to_view(self, point: np.ndarray) -> np.ndarray:
        return self.matrix @ (point - self.centre)


class Camera:
    """A camera in an assistant's hand: it follows the work, drifts, trembles, and comes nearer and goes."""

    def __init__(self, rng: np.random.Generator, zoom: float) -> None:
        self.sway, self.tremor = Drift(rng, 2, 9.0, 0.06), Drift(rng, 2, 0.7, 0.0025)
        self.depth, self.roll, self.zoom = Drift(rng, 1, 14.0, 0.06), Drift(rng, 1, 20.0, 0.05), zoom
        self.tilt, self.middle = float(rng.normal(0, 0.25)), rng.normal(0, 0.06, 2)

    def at(self, time: float, site: np.ndarray) -> CameraView:
        centre = np.clip(0.45 * site + self.middle + self.sway.at(time), -0.18, 0.18) + self.tremor.at(time)
        return CameraView(
            centre, float(1.05 * self.zoom * (1 + self.depth.at(time)[0])), self.tilt + float(self.roll.at(time)[0])
        )


@dataclass(frozen=True)
class Pose:
    """One instrument at one moment, in view units and radians."""

    tool: str
    tip: np.ndarray  # (2,) where the working end points to
    angle: float  # of the shaft, towards the tip
    bend: float  # of the working end against the shaft
    opening: float  # between the jaws
    width: float  # of the shaft at the wrist
    near: float  # how much nearer to the camera than tissue its tip is
    pull: np.ndarray  # (2,) by how much it drags the tissue at its tip
    burns: bool = False
    yaw: float = 0.0  # of the jaws against the wrist


class Hands:
    """The surgeon's two hands and an assistant's: ports, habits, and the pose of each instrument in use."""

    def __init__(self, rng: np.random.Generator, instruments: Instruments, aspect: float) -> None:
        self.instruments = instruments
        half = 0.5 * aspect + 0.45
        self.ports = rng.normal([(-half, 0.35), (half, 0.25), (0.35, 1.05)], (0.08, 0.2))
        if rng.random() < 0.3:  # another way of standing at the table
            self.ports[:2] *= (1, -1)
        self.wander = [Drift(rng, 2, 2.2, 0.05) for _ in self.ports]
        self.turn = [Drift(rng, 2, 3.5, 0.6) for _ in self.ports]
        self.sway = Drift(rng, 2, 6.0, 0.04)
        self.rhythm = rng.uniform(0, 6.28, 3)
        self.width = instruments.width * float(rng.uniform(0.88, 1.12))

    def pose(self, use: InstrumentUse, number: int, time: float, site: np.ndarray) -> Pose | None:
        """The pose of ``use`` at ``time`` where the work is at ``site`` (view units); None while it is out of sight."""
        reach = min((time - use.start) / TRAVEL, (use.end - time) / TRAVEL + 0.1)
        if reach < 0 or time > use.end:
            return None
        reach = HIDDEN + (1 - HIDDEN) * ease(reach)
        port = self.ports[use.hand] + 0.5 * self.sway.at(time)
        phase = 2 * np.pi * time + self.rhythm[use.hand] + 1.7 * number
        stroke, opening, hold = habit(use, time, phase)
        goal = site + offset(use) + self.wander[use.hand].at(time) + stroke
        tip = port + (goal - port) * reach * (1 + self.instruments.reach / float(np.hypot(*(goal - port))))
        ahead = tip - port
        turn = self.turn[use.hand].at(time + 3.1 * number)
        bend = np.radians(self.instruments.bend) * float(np.tanh(turn[0]))
        near = 0.30 + 0.9 * (1 - reach) + 0.10 * float(turn[1])
        pull = hold * (stroke + 0.35 * self.wander[use.hand].at(time)) if reach > 0.97 else np.zeros(2)
        angle = float(np.arctan2(ahead[1], ahead[0]))
        burns = use.tool == "coagulation" and bool(np.sin(0.11 * phase + 2.3 * number) > 0.35)
        yaw = 0.6 * float(np.tanh(turn[0] - turn[1])) if self.instruments.robotic else 0.0
        return Pose(use.tool, tip, angle, bend, opening, self.width, near, pull, burns, yaw)


def offset(use: InstrumentUse) -> np.ndarray:
    """Place of a hand beside the common site: the left one holds, the assistant keeps away."""
    if use.tool == "specimen_bag":
        return np.array((0.02, 0.02))
    return np.array({LEFT: (-0.2, -0.13), ASSISTANT: (0.12, 0.18)}.get(use.hand, (0.03, 0.02)))


def habit(use: InstrumentUse, time: float, phase: float) -> tuple[np.ndarray, float, float]:
    """Stroke (2,), opening of the jaws and how firmly tissue is held, each as the tool is used."""
    done = (time - use.start) / max(use.end - use.start, 1e-3)
    slow = np.array((np.cos(0.25 * phase), np.sin(0.31 * phase)))
    if use.tool == "grasper":
        holding = 0.15 < done < 0.85
        return 0.035 * slow, 0.08 if holding else 0.55 + 0.2 * np.sin(0.8 * phase), float(holding)
    if use.tool == "coagulation":
        sweep = np.array((np.sin(0.9 * phase), 0.5 * np.cos(0.6 * phase)))
        return 0.05 * sweep, 0.12 + 0.14 * max(np.sin(0.7 * phase), 0), 0.5
    if use.tool == "clipper":
        closing = ease(2 * abs(2 * (done % 0.5) - 0.5) - 0.1)
        return 0.015 * slow, 0.10 + 0.38 * closing, 0.3
    if use.tool == "scissors":
        return 0.02 * slow, 0.12 + 0.55 * abs(np.sin(0.75 * phase)), 0.0
    if use.tool == "suction_irrigation":
        return 0.07 * np.array((np.cos(0.5 * phase), np.sin(0.43 * phase))), 0.0, 0.15
    return 0.03 * slow, 0.6 + 0.1 * np.sin(0.4 * phase), 0.0


def work_site(operation: Operation, time: float, neck: np.ndarray, fundus: np.ndarray) -> np.ndarray:
    """Place of the work, in scene units: a blend over a second when a phase ends."""
    last = 0.3 * neck + 0.7 * fundus + (0.15, 0.2)
    sites = (0.6 * neck + 0.4 * fundus, neck, neck + 0.15 * (neck - fundus), 0.45 * neck + 0.55 * fundus, last, last)
    shares = np.linspace(-0.5, 0.5, 5)
    return np.mean([sites[operation.phase_at(time + share)] for share in shares], axis=0)
