"""Fixtures of whole tiny federations."""

import importlib.util
from pathlib import Path

import pytest

from fedmed.federation.client import Client
from fedmed.federation.job import read_job


@pytest.fixture
def unscored(monkeypatch):
    """Scoring takes most of a tiny run; where it is not the question it is left out."""
    monkeypatch.setattr(Client, "_score", lambda self, task, parser: {"val_dice": 0.5})
    monkeypatch.setattr(Client, "evaluate", lambda self, task: {"n_cases": 0})


@pytest.fixture
def lively(tiny_job):
    """Overrides with which the unlabelled site moves too: a threshold that a barely trained model passes."""
    overrides = read_job(tiny_job("o")).clients["ct_north"]["overrides"]
    unsupervised = {**overrides, "confidence": 0.5, "unsupervised_learning_rate": 1e-3}
    return {"supervised": overrides, "unsupervised": unsupervised, "evaluate": overrides}


@pytest.fixture(scope="session")
def faulty_executor():
    """``FaultyExecutor`` of tests/faulty_executor.py."""
    path = Path(__file__).parents[1] / "faulty_executor.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FaultyExecutor
