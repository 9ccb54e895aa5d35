"""Synthetic runs."""

from pathlib import Path

import pytest

from tests.reports.made_runs import make_run


@pytest.fixture
def fake_run(tmp_path):
    """Factory: ``fake_run(rounds=3, done=2)`` makes a run in a new folder and returns its path."""
    made = []

    def make(**options) -> Path:
        made.append(tmp_path / f"run_{len(made)}")
        return make_run(made[-1], **options)

    return make


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    """One finished run of four rounds that tests only read."""
    return make_run(tmp_path_factory.mktemp("finished") / "run", rounds=4, refuse=(1,))
