"""Weight that sites without labels add to the mean of the labelled ones, drawn over the rounds."""

import pytest

from fedmed.reports.run import read_run
from fedmed.systems.agreement.report import AddedWeightSection
from tests.reports.records import change_rounds


@pytest.mark.parametrize("strength", [1.0, 1.6])
def test_both_lines_are_seen_also_where_they_are_equal_or_above_one(fake_run, strength):
    facts = {"trust": 1.0, "strength": strength, "score_with": 0.7, "score_without": 0.7}
    change_rounds(folder := fake_run(rounds=3, refuse=()), lambda *_: facts)
    scores, weight = AddedWeightSection().charts(read_run(folder))["added_weight"].draw(read_run(folder)).axes
    for axes in (scores, weight):
        below, above = axes.lines
        assert below.get_linewidth() > 3 * above.get_linewidth() and below.get_alpha() < 1
        assert all(axes.get_ylim()[0] < line.get_ydata()[0] < axes.get_ylim()[1] for line in axes.lines)
        assert {text.get_text() for text in axes.get_legend().get_texts()} == {below.get_label(), above.get_label()}
