"""What MONAI Label answers with a model. Imported in its environment too: nothing but plain values."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Proposal:
    """An answer of MONAI Label.

    Attributes:
        task: the word in a bundle's folder name from which MONAI Label knows the task.
        scores: whether it is a score for each class of the whole image; otherwise it is a mask.
    """

    task: str
    scores: bool = False


MASKS = Proposal("segmentation")
SCORES = Proposal("classification", scores=True)
PROPOSALS = (MASKS, SCORES)  # all that MONAI Label's clients understand
