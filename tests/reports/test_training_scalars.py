"""Numbers of a training are shown that the run's method declares, if a site reported them."""

import pytest

from fedmed.methods.declarations import LOSS
from fedmed.methods.find_method import installed
from fedmed.methods.method import Method
from fedmed.reports.curves import curves
from fedmed.reports.run import read_run
from fedmed.reports.run_page import page
from fedmed.reports.training_scalars import declared, last_values, leading, points, reported
from fedmed.systems.covid_fssl.method import Consistency
from tests.reports.records import change, change_rounds

pytestmark = pytest.mark.usefixtures("no_charts")


def with_method(folder, spec, **numbers):
    """The run with a method in its records, and with further numbers of one site in every round."""
    change(folder, "run", config={"study": {"method": spec}})
    change_rounds(folder, lambda _, line: {"sites": line["sites"] | {"ct_east": line["sites"]["ct_east"] | numbers}})
    return read_run(folder)


@pytest.mark.parametrize("kind", [Method, *installed().values()], ids=lambda kind: kind.__name__)
def test_the_loss_comes_first_and_once(kind):
    assert declared(kind())[0] == LOSS and declared(kind()).count(LOSS) == 1
    assert all(scalar == LOSS or scalar.better == "higher" for scalar in leading(declared(kind())))


def test_what_a_method_declares_is_drawn_once_a_site_reports_it(fake_run):
    folder = fake_run(rounds=2, refuse=())
    run = with_method(folder, Consistency().spec(), train_foreground_fraction=0.02, unknown=3.0)
    assert [scalar.label for scalar in reported(run)] == ["loss", "predicted foreground"]
    titles = [axes.get_title(loc="left") or axes.get_title() for axes in curves(run).axes]
    assert titles == ["Training loss", "Validation Dice", "Predicted foreground"]
    assert points(run, "train_foreground_fraction")["ct_east"] == [(1, 0.02), (2, 0.02)]
    assert last_values(points(run, "train_foreground_fraction")) == {"ct_east": 0.02}
    assert "mean loss and predicted foreground in a round" in page(run)


@pytest.mark.parametrize("spec", [None, {"path": "our_hospital.methods.Ours"}, {"path": "fedmed.methods.gone.Gone"}])
def test_a_run_whose_method_is_not_known_here_shows_what_every_run_has(fake_run, spec):
    run = with_method(fake_run(rounds=1), spec, train_foreground_fraction=0.02)
    assert type(run.method) is Method and reported(run) == [LOSS]
    assert "The area of a disc" in page(run)
