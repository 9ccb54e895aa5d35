"""What MONAI Label answers with a model. Imported in its environment too: nothing but plain values."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Proposal:
    """An answer of MONAI Label.

    Attributes:
        task: the word in a bundle's folder name from which MONAI Label knows the task.
        scores: whether it is a score for each class of the whole image; otherwise it is a mask.
        together: of scores, whether several classes may hold at once, each called from the bundle's ``threshold`` on;
            otherwise the likeliest one is called.
    """

    task: str
    scores: bool = False
    together: bool = False


MASKS = Proposal("segmentation")
SCORES = Proposal("classification", scores=True)
SEVERAL = Proposal("classification", scores=True, together=True)
PROPOSALS = (MASKS, SCORES)  # of bundles that name no kind; their tasks are all that MONAI Label's clients understand
