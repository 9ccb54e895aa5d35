"""Sections of methods: training at the server and weights of channels, added weight, and parts that sites send."""

from types import SimpleNamespace

import numpy as np
import pytest

from fedmed.errors import DataError
from fedmed.methods.supervised_fedavg import SupervisedFedAvg
from fedmed.reports.run import read_run
from fedmed.reports.run_contents import Site
from fedmed.reports.run_files import Round
from fedmed.systems.agreement.report import AddedWeightSection
from fedmed.systems.fedcy.method import FedCy
from fedmed.systems.fedcy.report import SentPartsSection, shares, trained_by
from fedmed.systems.fedst.report import ChannelGatesSection, ServerTrainingSection, gates_figure, server_points
from tests.reports.records import change_rounds

UNKNOWN = ("seconds", "score", "bytes_down", "bytes_up", "extras_bytes")
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


@pytest.fixture
def run():
    """Return a function: a run of two rounds with these sites; all but the evaluated ones trained."""

    def make(roles, method=FedCy, frames=100):
        sites = [Site(name, role) for name, role in roles.items()]
        trained = [site.name for site in sites if site.role != "evaluate"]
        numbers = {name: {"n_samples": float(frames * (place + 1))} for place, name in enumerate(trained)}
        total = sum(values["n_samples"] for values in numbers.values())
        coefficients = {name: values["n_samples"] / total for name, values in numbers.items()}
        empty = {"refused": (), "warnings": (), "coefficients": coefficients, "sites": numbers}
        rounds = [Round(index, **dict.fromkeys(UNKNOWN), **empty) for index in range(2)]
        return SimpleNamespace(sites=sites, rounds=rounds, method=method(), total_rounds=2)

    return make


def test_whose_the_parts_are(run):
    roles = {"a": "supervised", "b": "unsupervised", "c": "evaluate"}
    assert trained_by(run(roles)) == "b sends the features alone, which are averaged; the rest is that of a. "
    two = {"a": "supervised", "b": "supervised", "c": "unsupervised", "d": "unsupervised"}
    assert trained_by(run(two)).startswith("c and d send the features alone")
    assert "the rest is the mean of those of a and b." in trained_by(run(two))
    assert trained_by(run({"a": "supervised", "c": "evaluate"})) == "", "nobody sends less"
    assert trained_by(run({"a": "supervised", "b": "supervised"}, SupervisedFedAvg)) == ""


def test_the_chart(run):
    finished = run({"a": "supervised", "b": "unsupervised"})
    (name,) = SentPartsSection().charts(finished)
    assert name == "aggregation", "in place of the discs of every report"
    frames, bands = shares(finished).axes
    assert frames.get_title() == "Frames processed in a round"
    assert sorted(line.get_ydata().tolist() for line in frames.lines)[:2] == [[100, 100], [200, 200]]
    assert bands.get_title() == "Weight in the aggregate" and len(bands.collections) == 2


def test_without_numbers_of_frames_the_usual_chart_stays(run):
    finished = run({"a": "supervised"})
    for line in finished.rounds:
        line.sites["a"].clear()
    assert SentPartsSection().charts(finished) == {}
    assert SentPartsSection().columns(finished) == {} and SentPartsSection().notes(finished) == []
