"""Tubes of the chest: great vessels, airways and the branching pulmonary vessels.

Lung trees follow the rule of Cuntz et al. (PLoS Comput. Biol. 2010): each new end point joins the tree where wire
length plus a share of the path to the root is least. Radii follow Murray's law.
"""

from collections.abc import Iterator

import numpy as np

from fedmed_demo.build import Patient
from fedmed_demo.grid import Grid, Position
from fedmed_demo.tubes import polyline, polylines

Tubes = list[tuple[list[Position], list[float]]]  # corners and radii, mm


def great_vessels(patient: Patient) -> tuple[np.ndarray, np.ndarray]:
    """Aorta, pulmonary trunk and arteries, caval veins, branches of the arch: points (N, 3), radii (N,) in mm."""
    s, h, d = patient.scale, patient.height, patient.dome
    arch, hilum = 0.76 * h, 0.61 * h
    spine = -40 * s
    lines: Tubes = [
        ([(6, 18, d + 50), (16, 22, hilum), (15, 16, arch - 6), (4, 6, arch + 3), (-13, -16, arch + 1),
          (-23, spine + 10, arch - 14), (-25, spine + 2, hilum), (-18, spine + 5, d + 30), (-9, spine + 8, -20)],
         [14, 15, 14, 13, 12.5, 12, 11.5, 11, 10.5]),
        ([(-14, 34, d + 52), (-20, 26, hilum + 2), (-18, 10, hilum + 6)], [13, 13, 12]),
        ([(-18, 12, hilum + 5), (0, 0, hilum + 1), (24, -6, hilum), (42, -12, hilum - 4)], [11, 10, 9.5, 8]),
        ([(-18, 10, hilum + 6), (-34, -6, hilum + 8), (-47, -16, hilum + 2)], [11, 10, 8]),
        ([(22, 8, d + 48), (25, 9, hilum), (24, 12, arch), (20, 16, arch + 18)], [9.5, 9, 8, 7.5]),
        ([(20, 12, -20), (18, 8, d + 18)], [11, 11]),
        ([(20, 16, arch + 18), (26, 12, h + 20)], [7, 6]),
        ([(20, 17, arch + 17), (-4, 24, arch + 20), (-24, 18, arch + 26), (-30, 8, h + 20)], [7, 6.5, 6, 6]),
        ([(3, 4, arch + 3), (12, 2, arch + 28), (20, -2, h + 20)], [6, 5.5, 5]),
        ([(-7, -6, arch + 3), (-14, -6, arch + 28), (-20, -6, h + 20)], [4.5, 4, 4]),
        ([(-14, -14, arch + 2), (-22, -18, arch + 25), (-30, -22, h + 20)], [5.5, 5, 4.5]),
        ([(9, spine + 2, 0), (10, spine + 1, hilum + 6), (20, -14, hilum + 12), (24, 4, hilum + 10)], [3.5, 4, 4, 4]),
    ]  # fmt: skip
    return polylines([([(x * s, y * s, z) for x, y, z in points], radii) for points, radii in lines], 4.0)


def oesophagus(patient: Patient) -> tuple[np.ndarray, np.ndarray]:
    """Centre line and radii of the oesophagus in mm."""
    s, h = patient.scale, patient.height
    points = [(-2, -30, h + 20), (-4, -34, 0.7 * h), (-1, -28, 0.45 * h), (-10, -16, 0.15 * h), (-18, -6, 0)]
    return polyline([(x * s, y * s, z) for x, y, z in points], [7, 6.5, 7, 7.5, 8])


def airways(patient: Patient) -> tuple[np.ndarray, np.ndarray]:
    """Lumen of trachea, main and lobar bronchi: points (N, 3), radii (N,) in mm."""
    s, h = patient.scale, patient.height
    fork = 0.665 * h
    lines = [
        ([(0, -9, h + 20), (1, -14, 0.85 * h), (2, -19, fork + 8), (2, -21, fork)], [8.5, 8.8, 8.8, 8.5]),
        ([(2, -21, fork), (17, -23, fork - 13), (29, -24, fork - 22)], [7.5, 7, 6.5]),
        ([(22, -24, fork - 15), (42, -22, fork - 9), (54, -18, fork - 2)], [5, 4.2, 3.2]),
        ([(29, -24, fork - 22), (36, -25, fork - 45), (42, -36, fork - 64), (50, -48, fork - 88)], [6, 5.2, 4.2, 2.5]),
        ([(36, -25, fork - 45), (52, -12, fork - 55), (66, 6, fork - 62)], [3.6, 3, 2]),
        ([(2, -21, fork), (-18, -24, fork - 17), (-37, -27, fork - 28)], [7, 6.2, 5.8]),
        ([(-34, -27, fork - 26), (-50, -14, fork - 20), (-58, 2, fork - 12)], [4.8, 4, 2.8]),
        ([(-37, -27, fork - 28), (-43, -36, fork - 50), (-50, -50, fork - 86)], [5, 4, 2.5]),
    ]
    return polylines([([(x * s, y * s, z) for x, y, z in points], radii) for points, radii in lines])


def lung_trees(
    rng: np.random.Generator, grid: Grid, patient: Patient, inside: np.ndarray, ends: int, thin: float, step: float
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield an artery and a vein a side as :func:`lung_tree` grows them.

    They end in voxels of ``grid`` that are ``inside``; an artery has ``ends`` branches, a vein two thirds of them.
    """
    s, h, d = patient.scale, patient.height, patient.dome
    hilum = 0.60 * h
    # Arteries follow the bronchi from the hilum, veins run lower to the left atrium.
    roots = [(42, -14, hilum - 6), (-46, -18, hilum), (34, -8, d + 56), (-36, -12, d + 58)]
    for number, (x, y, z) in enumerate(roots):
        same_side = inside & ((grid.axes[0] > 0) == (x > 0))
        goals = _end_points(rng, grid, same_side, ends if number < 2 else ends * 2 // 3)
        yield lung_tree(rng, np.array([x * s, y * s, z]), goals, thin, step)


def lung_tree(
    rng: np.random.Generator, root: np.ndarray, ends: np.ndarray, thin: float, step: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Grow a tree from ``root`` (3,) to every end point, ``ends`` (N, 3), with last branches of radius ``thin``, in mm.

    Returns:
        Points (M, 3) every ``step`` mm, radii (M,) and the share of the branch's direction along z (M,), for drawing
        as a tube.
    """
    order = np.argsort(np.linalg.norm(ends - root, axis=1))
    nodes = np.concatenate([root[None], ends[order]]).astype(np.float64)
    parent, path = np.zeros(len(nodes), dtype=int), np.zeros(len(nodes))
    for i in range(1, len(nodes)):
        wire = np.linalg.norm(nodes[:i] - nodes[i], axis=1)
        best = int(np.argmin(wire + 0.45 * path[:i]))
        parent[i], path[i] = best, path[best] + wire[best]
    count = np.ones(len(nodes))
    for i in range(len(nodes) - 1, 0, -1):
        count[parent[i]] += count[i]
    radius = np.minimum(thin * count ** (1 / 2.7), 7.5)
    return _sample_branches(rng, nodes, parent, radius, step)


def _sample_branches(
    rng: np.random.Generator, nodes: np.ndarray, parent: np.ndarray, radius: np.ndarray, step: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points along gently bent branches, so that none is a ruler line, with the radius of the child end."""
    child = np.arange(1, len(nodes))
    start, stop = nodes[parent[child]], nodes[child]
    length = np.linalg.norm(stop - start, axis=1)
    bend = rng.normal(0, 0.10, size=start.shape) * length[:, None]
    number = np.maximum(np.ceil(length / step).astype(int), 1) + 1
    branch = np.repeat(np.arange(len(child)), number)
    first = np.repeat(np.cumsum(number) - number, number)
    t = ((np.arange(len(branch)) - first) / (number[branch] - 1))[:, None]
    points = start[branch] * (1 - t) + stop[branch] * t + bend[branch] * (4 * t * (1 - t))
    upright = np.abs(stop - start)[:, 2] / np.maximum(length, 1e-6)
    return points, radius[child][branch], upright[branch]


def _end_points(rng: np.random.Generator, grid: Grid, inside: np.ndarray, number: int) -> np.ndarray:
    """``number`` random positions (mm) in the voxels where ``inside`` is true; none when there is no such voxel."""
    flat = np.flatnonzero(inside)
    if not len(flat):
        return np.zeros((0, 3))
    voxels = np.stack(np.unravel_index(rng.choice(flat, number), grid.shape), axis=1)
    return (voxels + rng.uniform(-0.5, 0.5, voxels.shape)) * grid.steps + np.asarray(grid.first)
