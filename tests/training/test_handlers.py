import pytest
import torch
from ignite.engine import Engine
from monai.engines import SupervisedEvaluator
from monai.inferers import SlidingWindowInferer

from fedmed.data.augment import ScaleShift
from fedmed.errors import Aborted, DataError, FedMedError
from fedmed.losses.dice import SoftDiceLoss
from fedmed.systems.covid_fssl.engine import ConsistencyEngine
from fedmed.systems.covid_fssl.loss import ConsistencyLoss
from fedmed.training.trainer import AbortHandler, NonFiniteLossHandler, ProgressHandler, SupervisedEngine


def trainer(network, loader, **changes):
    optimizer = torch.optim.Adam(network.parameters())
    return SupervisedEngine("cpu", 1, loader, network, optimizer, SoftDiceLoss(), **changes)


def stub(outputs):
    """An engine that returns given outputs, one an iteration."""
    engine = Engine(lambda _, output: output)
    return engine, lambda: engine.run(outputs, max_epochs=1)


@pytest.mark.parametrize(("stop", "passes"), [(0, 0), (3, 2)])
def test_abort_before_the_first_batch_or_between_iterations(network, labeled, stop, passes):
    engine = trainer(network, labeled * 5)
    AbortHandler(lambda: engine.state.iteration == stop).attach(engine)
    with pytest.raises(Aborted, match="aborted"):
        engine.run()
    assert len(network.passes) == passes


def test_abort_between_the_windows_of_one_volume(network):
    inferer = SlidingWindowInferer((8, 8, 8), sw_batch_size=1, overlap=0)
    batch = {"image": torch.rand(1, 1, 32, 32, 8), "label": torch.zeros(1, 1, 32, 32, 8)}
    evaluator = SupervisedEvaluator("cpu", [batch], network, inferer=inferer)
    AbortHandler(lambda: len(network.passes) == 3).attach(evaluator)
    with pytest.raises(Aborted):
        evaluator.run()
    assert len(network.passes) == 3  # of 16


def test_abort_leaves_no_hook_behind(network, labeled):
    engine = trainer(network, labeled)
    AbortHandler(lambda: False).attach(engine)
    engine.run()
    assert not network._forward_pre_hooks
    assert len(network.passes) == 3


def test_progress_reports_means_and_the_last_step():
    outputs = [
        {"loss": torch.tensor(float(i), requires_grad=True), "share": i / 10, "pred": torch.rand(3)} for i in range(7)
    ]
    calls = []
    engine, run = stub(outputs)
    ProgressHandler(lambda *call: calls.append(call), 3).attach(engine)
    run()
    assert [(step, steps) for step, steps, _ in calls] == [(3, 7), (6, 7), (7, 7)]
    assert [values["loss"] for *_, values in calls] == [1, 4, 6]
    assert [values["share"] for *_, values in calls] == pytest.approx([0.1, 0.4, 0.6])
    assert all(set(values) == {"loss", "share"} for *_, values in calls)


def test_progress_of_the_engines(network, labeled, unlabeled):
    calls = []
    engine = trainer(network, labeled)
    ProgressHandler(lambda *call: calls.append(call), 1).attach(engine)
    engine.run()
    assert [set(values) for *_, values in calls] == [{"loss"}] * 3
    optimizer = torch.optim.Adam(network.parameters())
    loss = ConsistencyLoss()
    engine = ConsistencyEngine("cpu", 1, unlabeled, network, optimizer, ScaleShift(), consistency_loss=loss)
    ProgressHandler(lambda *call: calls.append(call), 10).attach(engine)
    engine.run()
    assert calls[-1][:2] == (4, 4)
    assert set(calls[-1][2]) == {"loss", "confident_fraction", "foreground_fraction"}


@pytest.mark.parametrize("interval", [None, 1, 4, 100])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_names_its_step(interval, bad):
    outputs = [{"loss": torch.tensor(bad if i == 5 else 1.0)} for i in range(10)]
    engine, run = stub(outputs)
    NonFiniteLossHandler(interval).attach(engine)
    with pytest.raises(FedMedError, match=f"loss is {bad} at step 6 of 10.*learning_rate"):
        run()


def test_a_loss_that_is_not_finite_because_of_the_images(network, labeled):
    labeled[1]["image"][0, 0, 0, 0, 0] = torch.nan
    engine = trainer(network, labeled)
    NonFiniteLossHandler().attach(engine)
    with pytest.raises(DataError, match="step 2 of 3.*NaN or infinite voxels"):
        engine.run()


def test_bad_interval():
    with pytest.raises(FedMedError, match="interval is 0"):
        ProgressHandler(print, 0)
