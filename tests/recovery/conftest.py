"""Runs of a small federation that nobody interrupts, and that were killed."""

from itertools import count
from pathlib import Path

import pytest

from fedmed.federation import run_record as record
from fedmed.settings.server import ALLOWED
from tests.recovery.small_federation import STATEFUL, Killed, Run, end_at


@pytest.fixture(scope="session")
def write_tiny_job(write_tiny_job, two_levels):
    """Return a function as that of all tests; of CT jobs it makes the network smaller still."""
    return lambda folder, name="tiny", **changes: write_tiny_job(folder, name, **{"overlays": two_levels, **changes})


@pytest.fixture
def quick(monkeypatch):
    """The versions of packages stay what they are."""
    monkeypatch.setattr(record, "package_versions", dict)
    monkeypatch.setattr(record, "hardware", dict)
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "federation" / "custom_parts")
    monkeypatch.setenv(ALLOWED, STATEFUL["rule"]["path"])


@pytest.fixture
def whole(tmp_path):
    """Return a function: arguments of a run -> what it leaves when nobody interrupts it."""

    def whole(*arguments, **plan):
        run = Run(tmp_path / "whole", *arguments, **plan)
        run.play("job-1")
        return run.outcome("job-1")

    return whole


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """Return a function: a run that was killed at the start of a round (default 3), each in a folder of its own."""
    folders = count()

    def broken(*arguments, round=3, **plan):
        run = Run(tmp_path / f"ws{next(folders)}", *arguments, **plan)
        with monkeypatch.context() as patch, pytest.raises(Killed):
            end_at(patch, round)
            run.play("job-1")
        return run

    return broken
