"""Report of sites that send a part of the model alone."""

from types import SimpleNamespace

import pytest

from fedmed.methods.supervised_fedavg import SupervisedFedAvg
from fedmed.reports.run_contents import Site
from fedmed.reports.run_files import Round
from fedmed.systems.fedcy.method import FedCy
from fedmed.systems.fedcy.report import SentPartsSection, shares, whose

UNKNOWN = ("seconds", "score", "bytes_down", "bytes_up", "extras_bytes")


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
    assert whose(run(roles)) == "b sends the features alone, which are averaged; the rest is that of a. "
    two = {"a": "supervised", "b": "supervised", "c": "unsupervised", "d": "unsupervised"}
    assert whose(run(two)).startswith("c and d send the features alone")
    assert "the rest is the mean of those of a and b." in whose(run(two))
    assert whose(run({"a": "supervised", "c": "evaluate"})) == "", "nobody sends less"
    assert whose(run({"a": "supervised", "b": "supervised"}, SupervisedFedAvg)) == ""


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
