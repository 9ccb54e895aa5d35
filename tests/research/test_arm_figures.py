import pytest

from research.runner.arm_figures import ArmFigure, arm_figure
from research.runner.site_columns import in_groups
from research.runner.table_layout import ShownArm

SITES = ["site_1", "site_2"]
ARMS = in_groups([ShownArm("rate 1e-5", "rate", 1e-5), ShownArm("alone"), ShownArm("rate 1e-4", "rate", 1e-4)])


MEANS = {(arm, "site_1"): [0.5 + 0.1 * i, 0.52 + 0.1 * i] for i, arm in enumerate(("alone", "rate 1e-5", "rate 1e-4"))}
MEANS |= {("rate 1e-5", "site_2"): [0.9]}


def drawn_with(**settings):
    return arm_figure(ArmFigure("A title", "Test Dice", ARMS, SITES, "alone", **settings), MEANS)


def test_rows_are_arms_below_their_groups():
    drawn = drawn_with()
    first, second = drawn.axes
    names = [label.get_text() for label in first.get_yticklabels()]
    assert names == ["alone", "rate", "rate 1e-5", "rate 1e-4"]
    assert [axes.get_title(loc="left") or axes.get_title() for axes in drawn.axes] == SITES
    assert first.lines[0].get_xdata()[0] == pytest.approx(0.51)  # the baseline
    left, right = (axes.get_xlim()[1] - axes.get_xlim()[0] for axes in (first, second))
    assert left == pytest.approx(right)


def test_lines_go_over_x_with_the_baseline_across():
    (axes,) = drawn_with(x_label="learning rate", x_log=True).axes
    line = next(line for line in axes.lines if line.get_marker() == "o")
    assert list(line.get_xdata()) == [1e-5, 1e-4]
    assert list(line.get_ydata()) == pytest.approx([0.61, 0.71])
    assert axes.get_xscale() == "log"
    ticks = [axes.xaxis.get_major_formatter()(x) for x in axes.get_xticks()]
    assert ticks == ["1e-5", "1e-4"]
    assert {text.get_text() for text in axes.texts} == set(SITES)
