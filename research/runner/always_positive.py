"""Scores of calling every label in every frame; a model that is not above them has learned little of use."""

from typing import Literal

import numpy as np

from fedmed.training.metrics import f1_scores
from research.runner.label_scores import LabelScores
from research.runner.score_kinds import Floats

FRAMES = "n_frames"  # what a site sends beside its counts


def always_positive(scores: LabelScores, columns: Literal["sites", "labels"]) -> str:
    """A sentence with the F1 of each site (mean over labels), or of each label on the frames of all sites together.

    Empty where a site did not say how many frames it tested on, or keeps its counts.
    """
    sites = [_shown(scores, site) for site in scores.sites]
    known = [site for site in sites if site is not None]
    if not known or len(known) < len(sites):
        return ""
    shown, frames = np.stack([shown for shown, _ in known]), np.array([[frames] for _, frames in known])
    if columns == "sites":
        names, values = scores.sites, _f1(shown, frames).mean(1)
    else:
        names, values = scores.labels, _f1(shown.sum(0), frames.sum(0))
    text = ", ".join(f"{name} {value:.3f}" for name, value in zip(names, values, strict=True))
    return f"Calling every label in every frame would score: {text}; mean {values.mean():.3f}."


def _f1(shown: Floats, frames: Floats) -> Floats:
    return np.asarray(f1_scores(shown, frames - shown, np.zeros_like(shown), "zero"))


def _shown(scores: LabelScores, site: str) -> tuple[Floats, float] | None:
    """Frames of a site that show each label, (J,), and all of them; the same for every model that was tested there."""
    for (arm, seed, place), numbers in scores.numbers.items():
        counts = scores.counts(arm, seed, site) if place == scores.place(site) else None
        if counts is not None and FRAMES in numbers:
            return (counts.tp + counts.fn).astype(float), numbers[FRAMES]
    return None
