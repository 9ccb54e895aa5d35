"""Words for what a bundle does: mark a region, name a class, or stand in for images as an encoder."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Kind:
    """One kind of bundle, in the words of its card.

    Attributes:
        name: ``segmentation``, ``classification`` or ``encoder``; the part ``run_<name>.md.j2`` of the card is its own.
        labels: what sites with labels have.
        case: what is counted.
        unfit: what it must not be used for, and what it needs.
    """

    name: str
    labels: str
    case: str
    unfit: str

    def part(self, role: str) -> str:
        """A site's part in the training."""
        if role == "evaluate":
            return "none, tested only"
        return f"trained {'with' if role == 'supervised' and self.name != 'encoder' else 'without'} {self.labels}"


SEGMENTATION = Kind(
    "segmentation",
    "masks",
    "case",
    "measuring disease where nobody has\nchecked the masks. A mask is a proposal that a reader corrects.",
)
CLASSIFICATION = Kind(
    "classification",
    "labels",
    "image",
    "findings that are none of its classes.\nA probability is no finding, and every image gets one, whatever it shows. "
    "A reader decides.",
)
ENCODER = Kind(
    "encoder",
    "labels",
    "image",
    "any use as it is: it names no class.\nA classifier must be trained on it first, and tested where it will be used.",
)


def kind_of(meta: Mapping[str, Any]) -> Kind:
    """The kind of an exported bundle, from its metadata."""
    if meta["federation"].get("pretrained"):
        return ENCODER
    pred = next(iter(meta["network_data_format"]["outputs"].values()))
    return CLASSIFICATION if pred["format"] == "classes" else SEGMENTATION
