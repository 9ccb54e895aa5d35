"""Figures whose parts stay where they are: to arrange them takes two fifths of drawing them."""

import pytest
from matplotlib.layout_engine import ConstrainedLayoutEngine


@pytest.fixture(autouse=True)
def unarranged_figures(monkeypatch):
    """Draw figures without arranging their parts; no test here looks at where they are."""
    monkeypatch.setattr(ConstrainedLayoutEngine, "execute", lambda self, figure: None)
