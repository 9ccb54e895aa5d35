"""The numbers of a training that a run's method declares, over the rounds; the loss, which every method has, first."""

from collections.abc import Iterable
from statistics import fmean
from typing import Literal

from fedmed.methods.declarations import LOSS, Scalar
from fedmed.methods.method import Method
from fedmed.reports.run_contents import Run

Points = dict[str, list[tuple[float, float]]]  # site -> (round, value)


def declared(method: Method) -> list[Scalar]:
    """All that sites may report."""
    return list(dict.fromkeys((LOSS, *method.scalars())))


def leading(scalars: Iterable[Scalar]) -> list[Scalar]:
    """Those to show where room is scarce: the loss, and what is to become higher."""
    return [scalar for scalar in scalars if scalar == LOSS or scalar.better == "higher"]


def reported(run: Run) -> list[Scalar]:
    """The loss, and those of the others that a site reported."""
    names = {name for line in run.rounds for values in line.sites.values() for name in values}
    return [scalar for scalar in declared(run.method) if scalar == LOSS or scalar.name in names]


def points(run: Run, name: str, offset: int = 1, of: Literal["sites", "extras", "geometry"] = "sites") -> Points:
    """Site -> (round, value of a number of its updates); rounds without one are left out.

    Args:
        run, name: the run, and of the number.
        offset: what is added to the rounds, which are counted from 0 in the files.
        of: whether it is a metric that came with them, a value beside the model, or one of the updates' geometry.
    """
    series: Points = {site.name: [] for site in run.sites}
    for line in run.rounds:
        for site, values in getattr(line, of).items():
            if site in series and (value := values.get(name)) is not None:
                series[site].append((line.index + offset, value))
    return series


def last_values(points: Points) -> dict[str, float]:
    """Site -> its last value."""
    return {site: values[-1][1] for site, values in points.items() if values}


def mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
