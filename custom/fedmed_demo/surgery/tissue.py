"""Scene before the camera: wall, liver, fat, vessels and gallbladder of a patient at any moment of the operation."""

from copy import deepcopy

import numpy as np
from numpy.typing import ArrayLike

from fedmed_demo.surgery.layers import Layers, Surface
from fedmed_demo.surgery.organs import draw_organ
from fedmed_demo.surgery.profile import Anatomy
from fedmed_demo.surgery.state import State
from fedmed_demo.surgery.texture import Plane, mound, noise, rgb, smooth_step, tubes, vessels

BLOOD, BILE, CHAR = (
    np.array(tone, np.float32) for tone in ((0.34, 0.03, 0.03), (0.62, 0.52, 0.16), (0.13, 0.08, 0.06))
)


class Body:
    """One patient's tissue; everything that chance decides is drawn in the constructor."""

    def __init__(self, rng: np.random.Generator, anatomy: Anatomy, grid: Plane) -> None:
        self.grid, self.anatomy = grid, anatomy
        rough = np.float32(anatomy.texture)
        self.coarse, self.middle, self.fine = (rough * noise(rng, grid, length, 3, 0.6) for length in (0.6, 0.22, 0.07))
        self.lobules, self.grain = rough * noise(rng, grid, 0.13, 2, 0.4), rough * noise(rng, grid, 0.025, 2)
        mean = {"liver": anatomy.liver, "wall": anatomy.wall, "fat": anatomy.fat}
        self.colours = {name: _varied(rng, value, anatomy.spread) for name, value in mean.items()}
        kinds = np.array([(0.50, 0.43, 0.42), (0.62, 0.56, 0.40), (0.66, 0.48, 0.42), (0.48, 0.46, 0.34)])
        self.colours["gallbladder"] = _varied(rng, kinds[rng.integers(4)], anatomy.spread)
        self.colours["lobe"] = _varied(rng, self.colours["liver"] + (0.08, 0.04, 0.04), anatomy.spread)
        self._place(rng)
        self.trees = {
            "wall": self._trees(rng, (-0.3, -0.6), 5, 0.010),
            "gallbladder": self._trees(rng, tuple(self.neck), 5, 0.009),
            "fat": self._trees(rng, (0.3, 0.6), 4, 0.012),
        }
        self.duct = self._line(rng, self.neck, self.axis - 0.2, 0.34)
        self.artery = self._line(rng, self.neck + (0.04, -0.09), self.axis - 0.55, 0.36)
        self.behind = Layers(grid, self.colours["wall"], self.coarse, self.middle)
        self.behind.stain(self.trees["wall"], (0.42, 0.10, 0.12), 0.55)
        if anatomy.organ:
            draw_organ(rng, anatomy.organ, self, self.behind)
            return
        if not anatomy.gallbladder:
            self._ducts(self.behind, State(1, 1, 0, False, 0, True, 0))
        self._organs(self.behind)

    def _place(self, rng: np.random.Generator) -> None:
        """Place of the gallbladder and of each organ: middle, radii and angle."""
        self.axis = float(rng.normal(0.85, 0.3))  # of the gallbladder, from fundus to neck
        self.fundus = rng.normal((-0.20, -0.22), 0.09)
        self.long, self.wide = float(rng.uniform(0.25, 0.33)), float(rng.uniform(0.13, 0.19))
        self.neck = self.fundus + 1.75 * self.long * self.heading
        self.organs = rng.normal(
            [(-0.55, 0.22, 0.55, 0.4, 0.4), (0.5, -0.42, 0.62, 0.34, 0.3), (0.25, 0.55, 0.85, 0.34, 0.0)],
            (0.09, 0.07, 0.07, 0.05, 0.25),
        )

    @property
    def heading(self) -> np.ndarray:
        return np.array([np.cos(self.axis), np.sin(self.axis)])

    def _trees(self, rng: np.random.Generator, about: tuple[float, ...], count: int, width: float) -> np.ndarray:
        return self.anatomy.texture * vessels(rng, self.grid, rng.normal(about[:2], 0.25, (count, 2)), width)

    def _line(self, rng: np.random.Generator, start: np.ndarray, angle: float, length: float) -> np.ndarray:
        angles = angle + np.cumsum(rng.normal(0, 0.12, 12))
        steps = np.cumsum(np.stack([np.cos(angles), np.sin(angles)], 1), 0) * length / 12
        return np.vstack([start, start + steps])

    def surface(self, state: State) -> Surface:
        """Draw the tissue from back to front."""
        layers = deepcopy(self.behind)
        if self.anatomy.gallbladder and not self.anatomy.organ:
            self._bed(layers, state)
            self._ducts(layers, state)
            if not state.gone:
                self._gallbladder(layers, state)
            self._adhesions(layers, state)
        self._blood(layers, state)
        return layers.finish(self.anatomy.relief, self.grain)

    def _organs(self, layers: Layers) -> None:
        right, left, fat = self.organs
        for organ, name, swell in ((left, "lobe", 0.34), (right, "liver", 0.42)):
            depth = mound(self.grid, organ[:2], organ[2:4], organ[4], 0.06 * self.coarse + 0.02 * self.middle)
            tone = self.colours[name] * rgb(1 + np.float32(0.05) * (self.middle + self.grain))
            layers.put(depth, tone, swell, 0.9, 0.006 * self.fine + 0.006 * self.middle)
        depth = mound(self.grid, fat[:2], fat[2:4], fat[4], 0.10 * self.coarse + 0.06 * self.middle)
        self.fat(layers, depth, 0.3)

    def fat(self, layers: Layers, depth: np.ndarray, swell: float) -> None:
        """Lobules: round bumps between dark and reddish furrows."""
        furrow = np.exp(-2.2 * np.abs(self.lobules))
        tone = self.colours["fat"] * rgb(1 + 0.09 * self.middle - 0.16 * furrow + 0.03 * self.grain)
        red = rgb(np.clip(0.5 * self.coarse + 0.3 * self.fine, 0, 1))
        tone = tone + red * np.array((0.02, -0.16, -0.10), np.float32)
        layers.put(depth, tone, swell, 0.7, 0.028 * (1 - furrow) + 0.012 * self.fine)
        layers.stain(self.trees["fat"] * (depth > 0), (0.55, 0.12, 0.10), 0.45)

    def _bed(self, layers: Layers, state: State) -> None:
        """Raw liver where the gallbladder was, mottled with char and bile; wider the more has been peeled."""
        if state.peeled == 0:
            return
        size = 0.75 + 0.45 * state.peeled
        radii = (self.long * 1.15 * size, self.wide * 1.25 * size)
        middle = self.fundus + self.heading * self.long * (1.6 - 0.75 * state.peeled)
        depth = mound(self.grid, tuple(middle), radii, self.axis, 0.12 * self.middle + 0.08 * self.fine)
        burnt, bile = smooth_step(self.fine + 0.6 * self.grain, 0.3, 1.2), smooth_step(self.middle, 0.2, 1.4)
        tone = self.colours["liver"] * rgb(0.85 + 0.2 * self.fine)
        tone = tone + rgb(0.5 * bile) * (BILE - tone)
        layers.tear(smooth_step(depth, -0.05, 0.12), tone + rgb(0.8 * burnt) * (CHAR - tone), 0.03 * self.fine)

    def _ducts(self, layers: Layers, state: State) -> None:
        """Artery and duct, whole or cut, with clips across both."""
        if state.open == 0 and self.anatomy.gallbladder:
            return
        clips = []
        for line, wide, tone in ((self.artery, 0.022, (0.66, 0.34, 0.30)), (self.duct, 0.034, (0.72, 0.62, 0.42))):
            depth = tubes(self.grid, (line[:4], line[8:]) if state.cut else (line,), wide)
            layers.put(depth, np.array(tone, np.float32) * rgb(1 + np.float32(0.08) * self.fine), 0.10, 0.9, 0.0)
            for place in (3, 8, 9)[: state.clips]:
                along = line[place + 1] - line[place]
                side = np.array([-along[1], along[0]]) / np.hypot(*along) * wide * 1.5
                clips.append(np.stack([line[place] - side, line[place] + side]))
        if clips:
            layers.put(tubes(self.grid, clips, 0.011), np.full(3, 0.75, np.float32), 0.16, 1.0, 0.0)

    def _gallbladder(self, layers: Layers, state: State) -> None:
        """A pear that leaves its bed from the neck on and is then folded over towards the fundus."""
        lifted = self.fundus - self.heading * 0.14 * state.peeled + np.array((-0.02, -0.16)) * state.peeled
        turn = self.axis - 0.7 * state.peeled
        head = np.array([np.cos(turn), np.sin(turn)])
        warp = 0.04 * self.coarse
        pear = np.maximum(
            mound(self.grid, tuple(lifted + 0.55 * self.long * head), (self.long, self.wide), turn, warp),
            mound(self.grid, tuple(lifted + 1.25 * self.long * head), (0.6 * self.long, 0.62 * self.wide), turn, warp),
        )
        tone = self.colours["gallbladder"] * rgb(1 + 0.08 * self.middle + 0.05 * self.fine)
        layers.put(pear, tone, 0.5, 0.85, 0.006 * self.fine + 0.01 * self.middle)
        layers.stain(self.trees["gallbladder"] * (pear > 0.03), (0.45, 0.10, 0.12), 0.6)

    def _adhesions(self, layers: Layers, state: State) -> None:
        """Fat that hangs on the gallbladder and, until it is opened, covers the triangle at its neck."""
        if state.free < 1:
            at = self.fundus + self.heading * self.long * (1.1 + 0.4 * state.free)
            depth = mound(self.grid, tuple(at), (0.22, 0.16), self.axis + 1.2, 0.25 * self.middle + 0.1 * self.coarse)
            self.fat(layers, depth - 0.5 * state.free, 0.18)
        if state.open < 1:
            at = self.neck + 0.12 * self.heading
            depth = mound(self.grid, tuple(at), (0.24, 0.17), self.axis - 0.3, 0.22 * self.middle)
            self.fat(layers, depth - 0.75 * state.open - 0.25 * (state.open > 0) * np.abs(self.fine), 0.14)

    def _blood(self, layers: Layers, state: State) -> None:
        if state.blood > 0:
            low = -2.2 * layers.relief()  # it runs into what lies deeper
            spots = 0.28 * self.middle + 0.16 * self.fine + 0.12 * self.grain + low
            near = mound(self.grid, tuple(self.neck - 0.1), (0.7, 0.55), 0.0, spots)
            cover = smooth_step(near, 0.75 - state.blood, 1.35 - state.blood)
            layers.stain(cover, BLOOD * rgb(1 + 0.3 * self.fine), 0.9, 1.0)


def _varied(rng: np.random.Generator, tone: ArrayLike, spread: float) -> np.ndarray:
    """A patient's colour: mostly lighter or darker, a little of another hue."""
    tone = np.asarray(tone) * rng.normal(1, 2 * spread) + rng.normal(0, 0.35 * spread, 3)
    return np.clip(tone, 0.05, 0.95).astype(np.float32)
