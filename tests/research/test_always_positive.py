"""Scores of calling every label in every frame, worked out by hand."""

import numpy as np
import pytest

from fedmed.training.label_counts import LabelCounts
from research.runner.always_positive import always_positive


class Sent:
    """One model, two sites of 100 and 50 frames; (frames found, called in vain, missed) of two labels."""

    sites, labels, seeds = ["a", "b"], ["hook", "bag"], [0]

    def __init__(self, frames=(100, 50)):
        self.of_site = {
            "a": LabelCounts(*np.array([[40, 0], [10, 5], [20, 10]])),
            "b": LabelCounts(*np.array([[5, 0], [0, 0], [5, 0]])),
        }
        numbers = {"a": frames[0], "b": frames[1]}
        self.numbers = {("model", 0, f"site_{k}"): {} if n is None else {"n_frames": n} for k, n in numbers.items()}

    def place(self, site):
        return f"site_{site}"

    def counts(self, arm, seed, site):
        return self.of_site[site]


def test_by_site_and_by_label():
    # Site a: 2 · 60 / 160 and 2 · 10 / 110; site b: 2 · 10 / 60, and a label that is never there, called: 0.
    assert always_positive(Sent(), "sites").endswith(": a 0.466, b 0.167; mean 0.316.")
    # Together: 2 · 70 / 220 and 2 · 10 / 160.
    assert always_positive(Sent(), "labels").endswith(": hook 0.636, bag 0.125; mean 0.381.")


@pytest.mark.parametrize("columns", ["sites", "labels"])
def test_nothing_is_said_where_a_site_does_not_tell_its_frames(columns):
    assert always_positive(Sent(frames=(100, None)), columns) == ""
