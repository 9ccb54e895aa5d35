"""Place the pieces of an instrument, shaft, wrist and working end, where a pose says."""

from dataclasses import dataclass

import numpy as np

from fedmed_demo.surgery import working_ends
from fedmed_demo.surgery.motion import Pose
from fedmed_demo.surgery.working_ends import HINGES, SHAFT, WRIST, Shape, Style, oval

LONG = 90.0  # of a shaft, in half widths: farther than the frame's edge
NEARER = 0.012  # by which a shaft widens per half width of length, towards the camera


@dataclass(frozen=True)
class Piece:
    """One piece to draw, in view units."""

    shape: Shape
    outline: np.ndarray  # (N, 2)
    holes: tuple[np.ndarray, ...]  # each (N, 2)
    origin: np.ndarray  # (2,) on the axis
    angle: float  # of the axis
    half: float  # width from the axis to the side, for shading


def parts(pose: Pose, style: Style) -> list[Piece]:
    """The pieces of an instrument from back to front."""
    half = 0.5 * pose.width * style.stout * (1 + 0.35 * pose.near)
    shapes = {
        "grasper": working_ends.grasper,
        "clipper": working_ends.clipper,
        "coagulation": working_ends.hook if style.hook else working_ends.bipolar,
        "scissors": working_ends.scissors,
        "suction_irrigation": working_ends.sucker,
        "specimen_bag": working_ends.bag,
    }[pose.tool](pose, style)
    bend = 0.0 if pose.tool == "suction_irrigation" else pose.bend  # a rigid tube
    angle = pose.angle + bend
    ahead = half * np.array((np.cos(angle), np.sin(angle)))
    joint = pose.tip - ahead * max(float(np.max(np.asarray(shape.points)[:, 0])) for shape in shapes)
    back = HINGES[style.robotic and pose.tool != "suction_irrigation"]
    hinge = joint - ahead * back
    wide = 1 + LONG * NEARER
    rod = Shape(SHAFT, [(0.3, -1), (0.3, 1), (-LONG, wide), (-LONG, -wide)], style.shaft, bands=style.bands)
    ball = [Shape(WRIST, oval(-back, 0, 0.97, 0.97), style.wrist)] if abs(bend) > 0.3 else []
    return [_place(rod, hinge, pose.angle, half), *(_place(shape, joint, angle, half) for shape in (*ball, *shapes))]


def _place(shape: Shape, joint: np.ndarray, angle: float, half: float) -> Piece:
    angle += shape.turn
    matrix = half * np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    points = np.asarray(shape.points, dtype=float)
    near = points[points[:, 0] > -12, 1]  # not the far end of the shaft
    origin = joint + np.array((0, near.min() + near.max())) / 2 @ matrix
    holes = tuple(hole @ matrix + joint for hole in shape.holes)
    return Piece(shape, points @ matrix + joint, holes, origin, angle, half * max(float(np.ptp(near)) / 2, 0.2))
