"""One class a frame of a video, by a model that needs the frames before it."""

from dataclasses import dataclass

from fedmed.kinds.phases import Phases


@dataclass(frozen=True)
class PhasesOverTime(Phases):
    """As phases, of whole videos in their order. MONAI Label asks about one image at a time, so it cannot be served."""

    proposal = None
