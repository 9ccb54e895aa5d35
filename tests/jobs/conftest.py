"""Reports without what a test does not look at: drawing takes most of their time."""

import pytest


@pytest.fixture
def no_svg(monkeypatch):
    """Draw a report's charts as PNGs alone, and not once more for its page."""
    monkeypatch.setattr("fedmed.reports.plots.svg", lambda figure, name: "")


@pytest.fixture
def no_png(monkeypatch):
    """Draw a report's charts in its page alone."""
    monkeypatch.setattr("fedmed.reports.plots.png", lambda figure, path: b"")


@pytest.fixture(autouse=True)
def quick_figures(unarranged_figures):
    """Draw figures without arranging their parts; no test here looks at where they are."""
