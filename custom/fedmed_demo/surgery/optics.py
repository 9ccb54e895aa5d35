"""From a lit scene to what a recorder writes: smoke, lens, exposure, colour, noise, black border, burnt-in text."""

import cv2
import numpy as np

from fedmed_demo.surgery.motion import Drift
from fedmed_demo.surgery.profile import Optics
from fedmed_demo.surgery.texture import Plane, noise, rgb, smooth_step

TILES = 6  # of sensor noise; each frame takes one of them, turned or mirrored
NAMES = ("OR 1", "OR 2", "LAP CAM", "HD ENDO", "CHANNEL A")


class Lens:
    """The optics of one recording: everything about its pictures that does not come from the patient."""

    def __init__(self, rng: np.random.Generator, optics: Optics, grid: Plane) -> None:
        self.grid, self.rng_text = grid, rng.integers(0, 10_000)
        rows, columns = grid.shape
        x, y = grid.axes
        corner = 0.5 * np.hypot(1, columns / rows)
        off = rng.normal(0, 0.012, 2)
        radius = np.sqrt((x - np.float32(off[0])) ** 2 + (y - np.float32(off[1])) ** 2) / np.float32(corner)
        self.radius = float(rng.uniform(*optics.border))
        self.inside = radius < self.radius
        soft = smooth_step(-radius, -self.radius - 0.008, -self.radius + 0.008)
        centre = rng.normal(0, 0.06, 2)
        rim = ((x - np.float32(centre[0])) ** 2 + (y - np.float32(centre[1])) ** 2) / np.float32(corner**2)
        fall = 1 - np.float32(min(optics.vignette * rng.uniform(0.85, 1.15), 0.9)) * np.minimum(rim, 1.2)
        self.light = rgb(soft * fall * np.float32(optics.exposure))
        gain = np.array(optics.gain) * rng.normal(1, 0.03, 3)
        self.colour = _colours(gain, optics.saturation * float(rng.uniform(0.9, 1.1)))
        ramp = np.linspace(0, 1, 256) ** (optics.gamma * float(rng.uniform(0.94, 1.06)))
        self.curve = (
            np.rint(255 * (ramp + 0.06 * ramp * (1 - ramp) * np.sin(6.28 * ramp))).clip(0, 255).astype(np.uint8)
        )
        self.blur, self.breath = optics.blur * rows / 192, Drift(rng, 1, 11.0, 0.5)
        self.gain = Drift(rng, 1, 7.0, 0.08)
        grains = rng.standard_normal((TILES, rows, columns, 3), dtype=np.float32) * np.float32(optics.noise)
        self.grains = np.rint(grains * soft[..., None]).clip(-60, 60).astype(np.int16)
        self.name = NAMES[int(rng.integers(len(NAMES)))] if optics.text else ""

    def expose(self, image: np.ndarray, time: float, number: int, moved: float, glare: float) -> np.ndarray:
        """The recorded frame (H, W, 3) uint8 of a lit scene (H, W, 3) float32, 0 … 255; works in place.

        ``moved`` is how fast the camera moves, heights a second; ``glare`` the share of the picture that is metal.
        """
        level = np.float32(1 + self.gain.at(time)[0] - 0.5 * min(glare, 0.5))
        image *= self.light * level
        cv2.transform(image, self.colour, dst=image)
        cv2.add(image, self.grains[number % TILES], dst=image, dtype=cv2.CV_32F)
        frame = cv2.LUT(image.clip(0, 255, out=image).astype(np.uint8), self.curve)
        width = float(np.hypot(self.blur * (1 + self.breath.at(time)[0]), 6 * moved * self.blur))
        if width > 0.25:
            frame = cv2.GaussianBlur(frame, (0, 0), min(width, 3.0))
        if self.name:
            self._print(frame, time)
        return frame

    def _print(self, frame: np.ndarray, time: float) -> None:
        """A name above and a running clock below, as recorders burn them in."""
        rows, columns = self.grid.shape
        size, clock = rows / 520, int(time) + int(self.rng_text)
        text = f"{clock // 3600:02d}:{clock // 60 % 60:02d}:{clock % 60:02d}"
        for words, spot in ((self.name, (4, int(0.065 * rows))), (text, (int(0.80 * columns), int(0.975 * rows)))):
            cv2.putText(frame, words, spot, cv2.FONT_HERSHEY_SIMPLEX, size, (215, 225, 215), 1, cv2.LINE_AA)


def _colours(gain: np.ndarray, saturation: float) -> np.ndarray:
    """(3, 3) from red, green, blue of the scene to those of the recorder."""
    grey = np.full((3, 3), 1 / 3) * (1 - saturation)
    return (gain[:, None] * (grey + saturation * np.eye(3))).astype(np.float32)


class Smoke:
    """Smoke of coagulation and mist on the lens: it comes, drifts and clears, also while nothing is coagulated."""

    def __init__(self, rng: np.random.Generator, grid: Plane, amount: float, seconds: float) -> None:
        small = Plane((grid.shape[0] // 2, grid.shape[1] // 2), grid.scale / 4)
        self.shape, self.field = grid.shape, noise(rng, small, 0.6, 3, 0.55)
        self.way = rng.uniform(0.03, 0.12, 2)
        self.tone = (np.array((196, 190, 188)) * rng.normal(1, 0.02, 3)).astype(np.float32)
        events = max(int(rng.poisson(seconds / 14)), 1)
        self.events = np.stack([rng.uniform(0, seconds, events), rng.uniform(2, 6, events), rng.random(events)], 1)
        self.amount, self.level, self.last = amount, 0.0, 0.0

    def into(self, image: np.ndarray, time: float, burning: bool) -> None:
        """Mix smoke into ``image``, in place; call in the order of time."""
        step, self.last = time - self.last, time
        goal = self.amount if burning else 0.0
        starts, long, strength = self.events.T
        puffs = strength * np.exp(-(((time - starts) / long) ** 2))
        self.level += (goal - self.level) * (1 - np.exp(-step / (1.5 if burning else 3.0)))
        thick = 0.8 * min(max(self.level, self.amount * float(puffs.max())), 1.0)
        if thick < 0.03:
            return
        rows, columns = (n // 8 for n in self.shape)
        far = np.array(self.field.shape) - (rows, columns)
        row, column = (int(abs((time * way * 24 + 7) % (2 * n) - n)) for way, n in zip(self.way, far, strict=True))
        cloud = self.field[row : row + rows, column : column + columns]
        share = cv2.resize(np.clip(0.55 + 0.3 * cloud, 0.1, 1) * np.float32(thick), self.shape[::-1])
        share = rgb(share)
        image *= 1 - share
        image += share * self.tone


class Outside:
    """View of the camera before it enters the body: drapes, lamps and gloves out of focus, then the trocar."""

    def __init__(self, rng: np.random.Generator, grid: Plane) -> None:
        self.grid, self.path = grid, Drift(rng, 2, 3.0, 0.12)
        tones = np.array([(60, 105, 110), (70, 120, 95), (150, 150, 155), (190, 165, 150), (110, 95, 95)], np.float32)
        tone = tones[rng.permutation(5)]
        wide = Plane((grid.shape[0] * 3 // 2, grid.shape[1] * 3 // 2), grid.scale)
        a, b, c = (noise(rng, wide, 0.6, 3, 0.6) for _ in range(3))
        room = tone[0] + smooth_step(a, -0.9, 0.9)[..., None] * (tone[1] - tone[0])
        room = (room + smooth_step(b, 0.0, 1.2)[..., None] * (tone[2] - room)) * (0.75 + 0.1 * a)[..., None]
        self.room = room + smooth_step(c, 0.9, 2.0)[..., None] * (250 - room)
        self.plastic = tones[2] * float(rng.uniform(0.9, 1.25))

    def at(self, time: float, inside: float, body: np.ndarray) -> np.ndarray:
        """The scene at ``time`` before ``inside``; ``body`` is what shows at the end of the trocar."""
        rows, columns = self.grid.shape
        dx, dy = self.path.at(time)
        if time < 0.55 * inside:
            row, column = (int(np.clip(n / 4 * (1 + 2 * d), 0, n / 2 - 1)) for n, d in ((rows, dy), (columns, dx)))
            return self.room[row : row + rows, column : column + columns].copy()
        depth = (time - 0.55 * inside) / (0.45 * inside)
        x, y = self.grid.axes
        far = np.sqrt((x - np.float32(dx)) ** 2 + (y - np.float32(dy)) ** 2)
        wall = self.plastic * (0.35 + 0.8 * np.clip(far, 0, 1) + 0.03 * np.sin(25 * far * far + 3 * x))[..., None]
        return wall + smooth_step(-far, -0.12 - 0.7 * depth**2, -0.06 - 0.7 * depth**2)[..., None] * (0.7 * body - wall)
