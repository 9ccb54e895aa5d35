import pytest

from fedmed.experiments.figures import figure
from fedmed.experiments.info import ArmInfo, TableInfo

SITES = ["site_1", "site_2"]
ARMS = [ArmInfo("alone"), ArmInfo("rate 1e-5", "rate", 1e-5), ArmInfo("rate 1e-4", "rate", 1e-4)]


@pytest.fixture
def scores(runs):
    found = []
    for height, arm in enumerate(("alone", "rate 1e-5", "rate 1e-4")):
        found += runs(arm, [[0.5 + 0.1 * height], [0.52 + 0.1 * height]])
    return found + runs("rate 1e-5", [[0.9]], site="site_2")


def test_rows_are_arms_below_their_groups(scores):
    drawn = figure(TableInfo("t", "A title", ARMS, SITES, "alone"), scores, "last")
    first, second = drawn.axes
    names = [label.get_text() for label in first.get_yticklabels()]
    assert names == ["alone", "rate", "rate 1e-5", "rate 1e-4"]
    assert [axes.get_title(loc="left") or axes.get_title() for axes in drawn.axes] == SITES
    assert first.lines[0].get_xdata()[0] == pytest.approx(0.51)  # the baseline
    left, right = (axes.get_xlim()[1] - axes.get_xlim()[0] for axes in (first, second))
    assert left == pytest.approx(right)


def test_lines_go_over_x_with_the_baseline_across(scores):
    info = TableInfo("t", "A title", ARMS, SITES, "alone", x_label="learning rate", x_log=True)
    (axes,) = figure(info, scores, "last").axes
    line = next(line for line in axes.lines if line.get_marker() == "o")
    assert list(line.get_xdata()) == [1e-5, 1e-4]
    assert list(line.get_ydata()) == pytest.approx([0.61, 0.71])
    assert axes.get_xscale() == "log"
    ticks = [axes.xaxis.get_major_formatter()(x) for x in axes.get_xticks()]
    assert ticks == ["1e-5", "1e-4"]
    assert {text.get_text() for text in axes.texts} == set(SITES)


@pytest.mark.parametrize("x_label", [None, "rate"])
def test_the_caption_says_what_is_drawn(scores, x_label):
    drawn = figure(TableInfo("t", "A title", ARMS, SITES, "alone", x_label=x_label), scores, "last")
    caption = " ".join(drawn.texts[-1].get_text().split())
    assert caption == ("Test Dice, model of the last round; mean ± standard deviation over 1 to 2 seeds; dashed: alone")
