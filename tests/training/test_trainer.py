import pytest
import torch

from fedmed.errors import JobError
from fedmed.training.trainer import SupervisedEngine


@pytest.fixture
def engine():
    network = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    return SupervisedEngine("cpu", 1, [], network, optimizer, torch.nn.MSELoss())


def test_an_engine_without_exchange_sends_nothing_and_takes_nothing(engine):
    engine.receive({})
    assert engine.extras() == {}


def test_what_an_engine_cannot_use_is_refused(engine):
    with pytest.raises(JobError, match="SupervisedEngine has no use for others.*'exchange'"):
        engine.receive({"others": []})
