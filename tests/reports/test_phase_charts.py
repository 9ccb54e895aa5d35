"""Tables of phases: the same colours everywhere, and numbers as they were counted."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex

from fedmed.reports.label_charts import confusion_maps, heat_map, phase_colours
from fedmed.reports.palette import PHASES, VARIABLES
from fedmed.training.label_counts import Confusion, LabelCounts

BUNDLE = Path(__file__).resolve().parents[2] / "bundles" / "surgical_phase_classification"
NAMES = ["preparation", "clipping_and_cutting", "cleaning"]
CONFUSIONS = {"a": Confusion(np.diag([3, 2, 1])), "b": Confusion(np.array([[0, 5, 0], [0, 1, 0], [0, 0, 4]]))}


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_a_phase_has_one_colour_in_reports_and_in_the_bundles_pictures(monkeypatch):
    monkeypatch.syspath_prepend(str(BUNDLE))
    before = set(sys.modules)
    assert importlib.import_module("surgical_phase.ribbon").COLOURS == PHASES
    for name in set(sys.modules) - before:
        if name.startswith("surgical_phase"):
            del sys.modules[name]
    assert set(PHASES) <= set(VARIABLES), "each has a counterpart in the dark"
    many = phase_colours([str(n) for n in range(10)])
    assert len(set(many.values())) == 8 and many["8"] == many["0"]


def test_a_table_for_each_site_and_one_of_all():
    figure = confusion_maps(NAMES, CONFUSIONS)
    whole, first, second, *rest = figure.axes
    assert whole.get_title() == "all sites: F1 0.70, accuracy 0.69"  # (6/11 + 6/11 + 1) / 3, 11/16
    assert first.get_title() == "a: F1 1.00, accuracy 1.00"
    assert second.get_title().startswith("b: ")
    assert texts(whole)[:9] == ["3", "5", "0", "0", "3", "0", "0", "0", "5"]
    assert texts(whole)[9:] == ["1", "1", "2", "2", "3", "3"], "the numbers of rows and columns"
    boxes = [to_hex(text.get_bbox_patch().get_facecolor()) for text in whole.texts if text.get_bbox_patch()]
    assert boxes == [colour for colour in PHASES[:3] for _ in range(2)]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["1  preparation", "2  clipping and cutting", "3  cleaning"]


def test_of_one_site_there_is_one_table():
    figure = confusion_maps(NAMES, {"a": CONFUSIONS["a"]})
    assert [axes.get_title() for axes in figure.axes if axes.get_title()] == ["a: F1 1.00, accuracy 1.00"]


@pytest.mark.parametrize("n", [2, 6, 14])
def test_tables_are_as_wide_as_the_page_however_many_phases(n):
    confusions = {str(site): Confusion(np.eye(n, dtype=int)) for site in range(5)}
    figure = confusion_maps([f"phase_{place}" for place in range(n)], confusions)
    assert figure.get_figwidth() == 10.6 and len(figure.axes) >= 6


@pytest.mark.parametrize(("names", "slanted"), [(NAMES, False), ([*NAMES, "electrocoagulation_of_vessels"], True)])
def test_names_below_a_heat_map_stand_upright_where_there_is_room(names, slanted):
    counts = LabelCounts(*np.ones((3, len(names)), int))
    axes = heat_map(names, {"a": counts}, "phase").axes[0]
    labels = axes.get_xticklabels()
    assert (labels[1].get_rotation() > 0) == slanted
    assert labels[1].get_text() == ("clipping_and_cutting" if slanted else "clipping and\ncutting")
