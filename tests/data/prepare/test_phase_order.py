"""Phases in the orders of the protocol, and what is said of others."""

from pathlib import Path

import numpy as np
import pytest

from fedmed.data.operation_names import PHASES
from fedmed.data.prepare.phase_counts import added, alone, missing, shares_of_phases
from fedmed.data.prepare.video_inspect import BEYOND, odd_order
from fedmed.data.video.label_table import TimedLabels
from fedmed_demo.surgery.operation import draw_order
from fedmed_demo.surgery.profile import Course

NAMES = (*PHASES, BEYOND)


def table(order, rows=10, names=NAMES):
    """A row a second, ``rows`` of each phase in turn."""
    phases = np.repeat(np.array(order, np.int64), rows)
    return TimedLabels(Path("a.csv"), np.arange(len(phases), dtype=float), 1.0, phases, None, names, ())


@pytest.mark.parametrize(
    "order",
    [
        [0, 1, 2, 3, 4, 5],
        [0, 1, 2, 3, 5, 4],
        [0, 1, 2, 3, 5, 4, 5],
        [1, 2, 3, 4, 5],  # cut at its beginning
        [0, 1, 2, 3, 4],  # nothing to clean
        [0, 1, 2, 3, 2, 4, 5],  # from the fundus
        [1, 2, 3, 2, 5, 4, 5],
        [0, 1, 2, 3, 4, 6, 5],  # the seventh phase has no place and does not count
        [0, 1, 2, 3, 6, 4, 6, 5],
        [0, 1],  # cut at its end
        [3],
    ],
)
def test_orders_of_the_protocol(order):
    assert odd_order(table(order)) == ""


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ([0, 1, 5, 2, 3, 4], "'clipping_and_cutting' begins at 30 s, after 'cleaning_and_coagulation'"),  # 5 before 3
        ([0, 2, 1, 3, 4, 5], "'hepatocystic_triangle_dissection' begins at 20 s, after 'clipping_and_cutting'"),
        ([1, 0, 2], "'preparation' begins at 10 s, after 'hepatocystic_triangle_dissection'"),
        ([0, 1, 2, 3, 2, 3, 4], "'gallbladder_dissection' begins at 50 s, after 'clipping_and_cutting'"),
        ([0, 1, 2, 3, 4, 5, 4], "'gallbladder_packaging' begins at 60 s, after 'cleaning_and_coagulation'"),
        ([0, 1, 2, 3, 4, 3], "'gallbladder_dissection' begins at 50 s, after 'gallbladder_packaging'"),
        ([0, 1, 3, 2, 6, 4], "'clipping_and_cutting' begins at 30 s, after 'gallbladder_dissection'"),  # once, and late
    ],
)
def test_other_orders_are_told_where_they_begin(order, words):
    assert odd_order(table(order)).startswith(words)


def test_synthetic_operations_come_in_order():
    """The generator and this rule were written apart from each other."""
    drawn = np.random.default_rng(0)
    course = Course(fundus_first=0.5, no_preparation=0.3, cleaning_first=0.3, cleaning_twice=0.3)
    orders = [draw_order(drawn, course) for _ in range(200)]
    assert len(set(map(tuple, orders))) > 8 and not any(odd_order(table(order)) for order in orders)


def test_other_protocols_are_not_judged():
    assert odd_order(table([1, 0], names=("first", "second"))) == ""
    assert odd_order(TimedLabels(Path("a.csv"), np.arange(3.0), 1.0, None, None, (), ())) == ""


def test_what_lists_have_of_each_phase():
    counts = {"training": added([{"a": 3, "b": 1}, {"b": 4}]), "testing": {"a": 5, "b": 0}, "unlabeled": {}}
    assert counts["training"] == {"a": 3, "b": 5} and alone(counts) == {"testing": "a"}
    assert missing(counts, ("a", "b", "c")) == [
        "no row of 'training' is of the phase 'c': nothing is learnt of it here",
        "no row of 'testing' is of the phase 'b': nothing is said of it",
        "no row of 'testing' is of the phase 'c': nothing is said of it",
    ]
    assert shares_of_phases(counts) == ["training: a 37.5%, b 62.5%", "testing: a 100.0%"]
