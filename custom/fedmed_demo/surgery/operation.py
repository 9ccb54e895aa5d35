"""The course of one operation: phases in an order that surgeons follow, and when which instrument is in whose hand."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fedmed.data.operation_names import TOOLS
from fedmed_demo.surgery.profile import Course

# How much of a tool's work falls into a second of each phase; 0 where it does not belong.
WORK = {
    "grasper": (0.8, 1.0, 1.0, 1.0, 0.9, 0.6),
    "clipper": (0, 0, 1, 0, 0, 0),
    "coagulation": (0.5, 1.0, 0.0, 1.0, 0.05, 0.6),
    "scissors": (0.03, 0, 1, 0, 0, 0),
    "suction_irrigation": (0.1, 0.5, 0.15, 0.6, 0.3, 2.0),
    "specimen_bag": (0, 0, 0, 0, 1.0, 0.15),
}
BURST = {"grasper": 9.0, "clipper": 3.0, "coagulation": 6.0, "scissors": 2.5, "suction_irrigation": 3.0}  # seconds
LEFT, RIGHT, ASSISTANT = range(3)
SHORT, UNSEEN = 1.2, 0.45  # seconds: what is no use of its own; of a use, on the way in and out
MOST = 0.94  # of a phase in which a hand can be busy


@dataclass(frozen=True)
class InstrumentUse:
    """One instrument in one hand from ``start`` to ``end``, seconds, the way in and out included."""

    tool: str
    hand: int
    start: float
    end: float


@dataclass(frozen=True)
class Operation:
    """Phases as (place in ``PHASES``, start, end) without gaps from 0 to ``seconds``; out of the body to ``inside``."""

    seconds: float
    inside: float
    phases: tuple[tuple[int, float, float], ...]
    uses: tuple[InstrumentUse, ...]

    def phase_at(self, time: float) -> int:
        return next((phase for phase, _, end in self.phases if time < end), self.phases[-1][0])

    def progress(self, phase: int, time: float) -> float:
        """Share of a phase's work that is done at ``time``: 0 … 1, over all parts of a phase that comes twice."""
        parts = [(start, end) for name, start, end in self.phases if name == phase]
        whole = sum(end - start for start, end in parts)
        done = sum(min(max(time - start, 0.0), end - start) for start, end in parts)
        return done / whole if whole else float(time >= self._would_have_ended(phase))

    def _would_have_ended(self, phase: int) -> float:
        return next((start for name, start, _ in self.phases if name > phase), self.seconds)


def draw_operation(rng: np.random.Generator, course: Course, without: tuple[str, ...] = ()) -> Operation:
    """Draw one operation; tools in ``without`` are not used."""
    seconds = float(np.rint(rng.uniform(*course.seconds)))
    inside = float(min(rng.uniform(2.0, 5.0), 0.15 * seconds)) if rng.random() < course.outside else 0.0
    order = draw_order(rng, course)
    long = np.array([course.pace[phase] * rng.uniform(0.75, 1.3) / order.count(phase) for phase in order])
    ends = np.rint(inside + np.cumsum(long) / long.sum() * (seconds - inside))
    ends = [0.0, *ends[:-1].tolist(), seconds]
    phases = tuple((phase, start, end) for phase, (start, end) in zip(order, pairwise(ends), strict=True))
    shares = {str(tool): share for tool, share in course.tools.items() if tool not in without}
    return Operation(seconds, inside, phases, tuple(_uses(rng, phases, inside, shares)))


def draw_order(rng: np.random.Generator, course: Course) -> list[int]:
    """Phases in an order of the workflow: 0, 1, 2, 3, then 4 and 5; or fundus first: 2 before and after 3."""
    order = [0] if rng.random() >= course.no_preparation else []
    order += [1, 2, 3, 2] if rng.random() < course.fundus_first else [1, 2, 3]
    kind = rng.random()
    if kind < course.cleaning_first:
        return [*order, 5, 4]
    return order + ([5, 4, 5] if kind < course.cleaning_first + course.cleaning_twice else [4, 5])


def _uses(
    rng: np.random.Generator, phases: tuple[tuple[int, float, float], ...], inside: float, shares: dict[str, float]
) -> list[InstrumentUse]:
    spans = [(phase, max(start, inside), end) for phase, start, end in phases if end > inside]
    wanted = {tool: _spread(shares.get(tool, 0.0) * phases[-1][2], WORK[tool], spans) for tool in TOOLS}
    uses = []
    for number, (_, start, end) in enumerate(spans):
        need = {tool: wanted[tool][number] * rng.uniform(0.8, 1.2) for tool in TOOLS}
        right = {tool: need[tool] for tool in TOOLS if tool != "grasper"}
        if rng.random() < 0.5:  # somebody else sucks
            uses += _hand(rng, {"suction_irrigation": right.pop("suction_irrigation")}, ASSISTANT, start, end)
        uses += _hand(rng, {"grasper": need["grasper"]}, LEFT, start, end)
        uses += _hand(rng, right, RIGHT, start, end)
    return uses


def _spread(seconds: float, work: tuple[float, ...], spans: list[tuple[int, float, float]]) -> list[float]:
    """Divide a tool's seconds among the phases by its work there; what a phase cannot hold goes to the others."""
    long = np.array([end - start for _, start, end in spans])
    weight = np.array([work[phase] for phase, _, _ in spans]) * long
    given = np.zeros(len(spans))
    for _ in range(4):
        free = np.where(given < MOST * long, weight, 0)
        if seconds - given.sum() < 0.1 or not free.any():
            break
        given = np.minimum(given + (seconds - given.sum()) * free / free.sum(), MOST * long)
    small = (given < SHORT) & (given < given.max())
    given[np.argmax(given)] += given[small].sum()  # one use, rather than several of a moment each
    given[small] = 0
    return [float(value) for value in given]


def _hand(rng: np.random.Generator, need: dict[str, float], hand: int, start: float, end: float) -> list[InstrumentUse]:
    """Place the bursts of a hand's tools one after another, with chance gaps, clips before scissors."""
    bursts: list[tuple[float, str, float]] = []
    for tool, seconds in need.items():
        many = max(1, round(seconds / BURST.get(tool, 1e9)))
        rank = {"clipper": 0.0, "scissors": 2.0}.get(tool, 1.0)
        long = seconds / many + UNSEEN
        bursts += [(rank + rng.uniform(0, 1.6), tool, long) for _ in range(many) if seconds > 0.5]
    busy = sum(long for _, _, long in bursts)
    scale = min(1.0, MOST * (end - start) / busy) if busy else 1.0
    gaps = rng.dirichlet(np.ones(len(bursts) + 1)) * (end - start - busy * scale)
    uses, time = [], start
    for gap, (_, tool, long) in zip(gaps, sorted(bursts), strict=False):
        uses.append(InstrumentUse(tool, hand, float(time + gap), float(time + gap + long * scale)))
        time += gap + long * scale
    return uses
