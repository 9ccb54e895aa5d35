"""Synthetic runs."""

import shutil
from pathlib import Path

import pytest

from tests.reports.made_runs import make_run


@pytest.fixture(scope="session")
def _runs(tmp_path_factory):
    """Return a function: options -> a run made with them once, which is only copied."""
    made = {}

    def make(**options) -> Path:
        name = repr(options)
        if name not in made:
            made[name] = make_run(tmp_path_factory.mktemp("made") / "run", **options)
        return made[name]

    return make


@pytest.fixture
def fake_run(_runs, tmp_path):
    """Factory: ``fake_run(rounds=3, done=2)`` makes a run in a new folder and returns its path."""
    made = []

    def make(**options) -> Path:
        made.append(tmp_path / f"run_{len(made)}")
        return shutil.copytree(_runs(**options), made[-1])

    return make


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    """One finished run of four rounds that tests only read."""
    return make_run(tmp_path_factory.mktemp("finished") / "run", rounds=4, refuse=(1,))


@pytest.fixture
def arranged():
    """Asked for by tests that look at where parts of a figure are."""


@pytest.fixture(autouse=True)
def quick_figures(request):
    """Draw figures without arranging their parts."""
    if "arranged" not in request.fixturenames:
        request.getfixturevalue("unarranged_figures")
