"""Figures of reports, which no test of kinds looks at closely."""

import pytest


@pytest.fixture(autouse=True)
def quick_figures(unarranged_figures):
    """Draw figures without arranging their parts."""
