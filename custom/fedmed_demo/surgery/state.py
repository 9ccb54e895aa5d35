"""Progress of an operation, as far as tissue shows it."""

from dataclasses import dataclass

import numpy as np

from fedmed_demo.surgery.operation import Operation


@dataclass(frozen=True)
class State:
    """Progress of the operation; tissue is drawn anew when it changes."""

    free: float  # adhesions taken down, 0 … 1
    open: float  # duct and artery laid open, 0 … 1
    clips: int
    cut: bool
    peeled: float  # share of the gallbladder that has left its bed
    gone: bool  # in the bag
    blood: float  # share of the field


def state_at(operation: Operation, time: float, blood: float) -> State:
    """The state in steps so coarse that tissue is drawn a dozen times an operation."""
    free, laid, clipped, peeled, packed = (operation.progress(phase, time) for phase in range(5))
    bleeds = blood * (0.4 + 0.6 * np.sin(np.floor(time / 9.0) * 2.4) ** 2)
    return State(
        free=np.floor(3 * free) / 3,
        open=np.floor(3 * laid) / 3,
        clips=int(3 * min(1.4 * clipped, 1)),
        cut=clipped > 0.75,
        peeled=np.floor(4 * peeled) / 4,
        gone=packed > 0.3,
        blood=float(np.rint(bleeds * 20) / 20),
    )
