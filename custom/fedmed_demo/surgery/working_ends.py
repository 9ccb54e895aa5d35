"""Shapes of the six kinds of instrument beyond the shaft, as polygons: wrist, jaws or another working end.

Lengths are in half widths of the shaft; x points from the wrist's joint to the tip, y to one side.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedmed_demo.surgery.motion import Pose
from fedmed_demo.surgery.profile import Instruments

SHAFT, WRIST, JAW = 1, 2, 3  # places in PARTS
HINGES = 2.6, 4.2  # half widths from the joint of the jaws to that of the wrist: by hand, and of a robot


class Style:
    """Constants of one instrument of a recording: its materials, its proportions, and which device it is."""

    def __init__(self, seed: int, instruments: Instruments, tool: str) -> None:
        rng = np.random.default_rng(seed)
        self.shaft = instruments.shafts[int(rng.integers(len(instruments.shafts)))]
        self.wrist = ("steel", "steel", "grey", "black", "white")[int(rng.integers(5))]
        self.jaw = ("steel", "grey")[int(rng.integers(2))]
        self.long, self.stout = float(rng.uniform(0.85, 1.2)), float(rng.uniform(0.85, 1.15))
        self.hook = tool == "coagulation" and bool(rng.random() < instruments.hook)
        self.window, self.curved = bool(rng.random() < 0.7), float(rng.choice([-1, 1]))
        self.bands = tuple(rng.uniform(-7, -1, int(rng.integers(0, 3))))
        self.sheet = ("white", "grey", "film")[int(rng.integers(3))]
        self.robotic = instruments.robotic
        self.long *= 0.7 if self.robotic else 1.0
        if instruments.ends:
            self.wrist, self.jaw = (instruments.ends[int(rng.integers(len(instruments.ends)))] for _ in range(2))


@dataclass(frozen=True)
class Shape:
    """A polygon in the instrument's own frame."""

    value: int  # in the mask
    points: ArrayLike  # (N, 2)
    material: str
    turn: float = 0.0  # about the joint, radians
    holes: tuple[np.ndarray, ...] = ()  # each (N, 2)
    clear: float = 0.0  # how much shines through
    bands: tuple[float, ...] = ()  # places of rings along the axis


def oval(x: float, y: float, long: float, wide: float, count: int = 14) -> np.ndarray:
    angle = np.linspace(0, 2 * np.pi, count, endpoint=False)
    return np.stack([x + long * np.cos(angle), y + wide * np.sin(angle)], 1)


def _sleeve(style: Style, narrow: float, long: float = 2.8) -> Shape:
    if style.robotic:  # a slender fork that holds the jaws' axle
        points = [(-HINGES[1], -0.7), (-HINGES[1], 0.7), (-2.6, 0.9), (0.5, 0.72), (0.5, -0.72), (-2.6, -0.9)]
        return Shape(WRIST, points, style.wrist, bands=(-2.9,))
    points = [(-long, -0.96), (-long, 0.96), (-0.6, 0.9), (0.35, narrow), (0.35, -narrow), (-0.6, -0.9)]
    return Shape(WRIST, points, style.wrist)


def _pair(
    outline: np.ndarray, style: Style, opening: float, holes: tuple[np.ndarray, ...] = (), turn: float = 0.0
) -> list[Shape]:
    """Two jaws, mirrored, each turned by half of the opening, and both by ``turn``."""
    flip = np.array((1, -1))
    second = tuple(hole * flip for hole in holes)
    return [
        Shape(JAW, outline * flip, style.jaw, turn - opening / 2, holes=second),
        Shape(JAW, outline, style.jaw, turn + opening / 2, holes=holes),
    ]


def grasper(pose: Pose, style: Style) -> list[Shape]:
    """Long, broad, toothed jaws, most of them with a window."""
    long = 6.2 * style.long
    teeth = np.stack([np.linspace(0.94, 0.1, 12) * long, np.where(np.arange(12) % 2, 0.26, 0.04)], 1)
    back = [(0, 0.05), (0, 0.72), (0.25 * long, 0.98), (0.8 * long, 0.9), (0.96 * long, 0.6), (long, 0.12)]
    window = (oval(0.55 * long, 0.55, 0.26 * long, 0.2),) if style.window else ()
    return [_sleeve(style, 0.75), *_pair(np.vstack([back, teeth]), style, pose.opening, window, pose.yaw)]


def clipper(pose: Pose, style: Style) -> list[Shape]:
    """Short, stout jaws with blunt hooks that stay parallel, and a clip between them."""
    jaw = np.array(
        [(0, 0.1), (0, 1.0), (1.6, 1.25), (3.0, 1.2), (3.6, 0.85), (3.7, 0.2), (3.2, 0.16), (3.1, 0.5), (1, 0.4)]
    )
    jaw = (jaw + (0, 0.9 * pose.opening)) * (style.long, 1)
    clip = [(1.6, -0.16), (3.0, -0.16 - 0.5 * pose.opening), (3.0, 0.16 + 0.5 * pose.opening), (1.6, 0.16)]
    jaws = _pair(jaw, style, 0.25 * pose.opening, turn=pose.yaw)
    return [_sleeve(style, 1.0, 2.6), Shape(JAW, clip, "steel", pose.yaw), *jaws]


def scissors(pose: Pose, style: Style) -> list[Shape]:
    """Two slender blades, both curved to the same side, that end in points."""
    x = np.linspace(0, 1, 8)
    long, curve = 5.4 * style.long, 1.3 * style.curved * x**2
    blades = []
    for side, turn in ((1, pose.yaw + pose.opening / 2), (-1, pose.yaw - pose.opening / 2)):
        thick = side * 0.62 * (1 - x**1.6)
        points = np.vstack([np.stack([x * long, curve + thick], 1), np.stack([x * long, curve - 0.1 * thick], 1)[::-1]])
        blades.append(Shape(JAW, points, style.jaw, turn))
    return [_sleeve(style, 0.6, 2.4), *blades]


def hook(pose: Pose, style: Style) -> list[Shape]:
    """A wire that comes out of an insulated sleeve and turns by a right angle."""
    side, long = style.curved, 3.2 * style.long
    wire = np.array(
        [(0, -0.25), (0, 0.25), (long - 0.55, 0.25), (long - 0.5, 1.7), (long, 1.85), (long, 0.1), (long - 0.3, -0.25)]
    )
    return [_sleeve(style, 0.4, 3.0), Shape(JAW, wire * (1, side), style.jaw, pose.yaw)]


def bipolar(pose: Pose, style: Style) -> list[Shape]:
    """Smooth, narrow, bowed jaws that meet at their blunt tips."""
    x = np.linspace(0, 1, 8)
    bow = 0.75 * np.sin(np.pi * x**0.8) + 0.1
    outer, inner = bow + 0.34 - 0.1 * x, np.maximum(bow - 0.22, 0.02)
    long = 5.8 * style.long
    jaw = np.vstack([np.stack([x * long, outer], 1), np.stack([x * long, inner], 1)[::-1]])
    return [_sleeve(style, 0.55, 3.2), *_pair(jaw, style, 0.6 * pose.opening, turn=pose.yaw)]


def sucker(pose: Pose, style: Style) -> list[Shape]:
    """A straight tube with a round, perforated end."""
    end = np.vstack([[(-2.4, -0.8), (-2.4, 0.8)], oval(3.2 * style.long, 0, 0.7, 0.8)[[3, 2, 1, 0, 13, 12, 11]]])
    dots = [Shape(JAW, oval(x * style.long, y, 0.3, 0.2), "hole") for x, y in ((0.2, 0.3), (1.3, -0.3), (2.4, 0.25))]
    return [Shape(JAW, end, style.jaw), *dots]


def bag(pose: Pose, style: Style) -> list[Shape]:
    """A sheet with folds that hangs from a ring; it is the working end."""
    wide = 3.2 + 1.6 * pose.opening
    turn = np.linspace(0, 2 * np.pi, 28, endpoint=False)
    wave = 1 + 0.07 * np.sin(3 * turn + 9 * style.long) + 0.05 * np.sin(5 * turn + 9 * style.stout)
    sheet = np.stack([(7.5 - 6.2 * np.cos(turn) * wave) * style.long, 1.1 * wide * wave * np.sin(turn)], 1)
    ring, hole = oval(3.2, 0, 3.4, wide, 28), oval(3.2, 0, 3.05, wide - 0.35, 28)
    load = oval(8.0 * style.long, 0.1 * wide, 3.2 * style.long, 0.62 * wide)
    return [
        _sleeve(style, 0.7),
        Shape(JAW, load, "load"),
        Shape(JAW, sheet, style.sheet, clear=0.42),
        Shape(WRIST, ring, style.wrist, holes=(hole,)),
    ]
