"""Sections of a method that trains at the server and weighs channels."""

import numpy as np
import pytest

from fedmed.errors import DataError
from fedmed.reports.run import read_run
from fedmed.systems.fedst.report import ChannelGatesSection, ServerTrainingSection, gates_figure, server_points
from tests.reports.records import change_rounds

NUMBERS = {
    "domain_norm": 2.0, "descriptor_gap": 0.5, "feature_gap": 0.25, "server_loss": 0.4, "server_loss_pre": 0.3,
    "server_seconds": 4.0,
}  # fmt: skip


@pytest.fixture
def trained(fake_run):
    """A run whose server trained in all rounds but the first."""
    folder = fake_run(rounds=4, refuse=())
    change_rounds(folder, lambda place, _: {name: v + place for name, v in NUMBERS.items()} if place else {})
    return folder


def test_numbers_of_the_server_are_drawn_by_round(trained):
    run, section = read_run(trained), ServerTrainingSection()
    assert server_points(run, "domain_norm") == [(2, 3.0), (3, 4.0), (4, 5.0)]
    figure = section.charts(run)["server_training"].draw(run)
    norm, gaps, losses = figure.axes
    assert [len(axes.lines) for axes in (norm, gaps, losses)] == [1, 2, 2]
    assert gaps.lines[0].get_ydata().tolist() == [1.25, 2.25, 3.25]
    assert section.notes(run) == ["The server trained for 6 s in a round, in the mean."]


@pytest.mark.parametrize(("value", "top"), [(2.0, 2.2), (1e-7, 1.1e-7), (3e5, 3.3e5), (0.0, 1.0)])
def test_a_line_that_hardly_changes_stays_below_the_edge_of_its_panel(fake_run, value, top):
    folder = fake_run(rounds=4, refuse=())
    change_rounds(folder, lambda place, _: {"domain_norm": value * (1 - 1e-6 * place)})
    (norm,) = ServerTrainingSection().charts(run := read_run(folder))["server_training"].draw(run).axes
    assert norm.get_ylim() == pytest.approx((0, top), rel=1e-6)


def test_a_run_whose_server_did_not_train_shows_nothing(finished_run):
    run = read_run(finished_run)
    for section in (ServerTrainingSection(), ChannelGatesSection()):
        assert section.charts(run) == {} and section.notes(run) == [] and section.columns(run) == {}


def write_gates(run, name, values):
    folder = next(site.folder for site in run.sites if site.name == name)
    np.savez(folder / "evaluation/gates.npz", mean=np.array(values))


def test_gates_are_read_from_the_sites_own_folders(trained):
    run = read_run(trained)
    write_gates(run, "ct_north", [0.5, 0.2, 0.9])
    write_gates(run, "ct_south", [0.5, 0.8, 0.7])
    figure = ChannelGatesSection().charts(run)["gates"].draw(run)
    shown, apart = figure.axes[0], figure.axes[1]
    assert np.asarray(shown.images[0].get_array()).tolist() == [[0.2, 0.9, 0.5], [0.8, 0.7, 0.5]]
    assert {text.get_text() for text in apart.texts} == {"", "0.27"}, "(0 + 0.6 + 0.2) / 3"
    assert [label.get_text() for label in shown.get_yticklabels()] == ["ct_north", "ct_south"]
    assert len(gates_figure({"one": np.array([0.1, 0.2])}).axes) == 2, "a panel and its scale"
    write_gates(run, "ct_south", [0.5, 1.8, 0.7])
    with pytest.raises(DataError, match=r"gates.npz: 'mean' is not a row of numbers from 0 to 1"):
        ChannelGatesSection().charts(run)
