import logging

import numpy as np
import pytest
import torch
from monai.engines import SupervisedEvaluator
from torch.nn.functional import cross_entropy

from fedmed.errors import DataError, FedMedError
from fedmed.training.calibration import TemperatureHandler, brier_score, expected_calibration_error, fit_temperature


def drawn(n=400, temperature=1.0, classes=3, seed=0):
    """Logits that are calibrated when divided by ``temperature``."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, classes, generator=generator)
    labels = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator)[:, 0]
    return logits * temperature, labels


def test_scale_of_the_logits_is_the_scale_of_the_temperature():
    logits, labels = drawn()
    assert fit_temperature(3 * logits, labels) == pytest.approx(3 * fit_temperature(logits, labels), rel=1e-6)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5, 8.0])
def test_equals_lbfgs(temperature):
    logits, labels = drawn(temperature=temperature)
    log_t = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    exact = {"line_search_fn": "strong_wolfe", "tolerance_grad": 1e-10, "tolerance_change": 0}
    optimizer = torch.optim.LBFGS([log_t], max_iter=200, **exact)

    def closure():
        optimizer.zero_grad()
        loss = cross_entropy(logits.double() / log_t.exp(), labels)
        loss.backward()
        return loss

    optimizer.step(closure)
    result = fit_temperature(logits, labels)
    assert result == pytest.approx(log_t.exp().item(), rel=1e-6) and result == pytest.approx(temperature, rel=0.25)


def test_it_stays_in_its_range():
    labels = torch.tensor([0, 1, 2] * 5)
    certain = 10 * torch.eye(3)[labels]
    assert fit_temperature(certain, labels) == 0.05  # always right: the more certain the better
    assert fit_temperature(-certain, labels) == 20.0
    assert fit_temperature(torch.zeros(15, 3), labels) == 20.0  # nothing to scale: any is as good
    assert fit_temperature(torch.tensor([1e30, -1e30, 0.0]).repeat(15, 1), labels) == 20.0


def test_too_few_cases_leave_it_at_one(caplog):
    logits, labels = drawn()
    with caplog.at_level(logging.INFO, "fedmed.site"):
        assert fit_temperature(logits[:9], labels[:9]) == 1.0
        assert fit_temperature(logits, torch.ones_like(labels)) == 1.0
        assert fit_temperature(torch.zeros(0, 3), labels[:0]) == 1.0
    assert caplog.text.count("too few for a temperature; it stays 1") == 3
    with pytest.raises(DataError, match="logits are NaN or infinite"):
        fit_temperature(torch.full((20, 3), float("nan")), labels[:20])


def slow_error(values, labels, bins):
    total = 0.0
    for low in range(bins):
        inside = [n for n, row in enumerate(values) if low / bins < max(row) <= (low + 1) / bins]
        if inside:
            accuracy = sum(int(np.argmax(values[n])) == labels[n] for n in inside) / len(inside)
            total += len(inside) / len(values) * abs(accuracy - sum(max(values[n]) for n in inside) / len(inside))
    return total


@pytest.mark.parametrize("bins", [1, 2, 15])
def test_calibration_error_equals_a_loop(bins):
    logits, labels = drawn(200, temperature=3.0)
    values = torch.softmax(logits.double(), 1).numpy()
    assert expected_calibration_error(values, labels, bins) == pytest.approx(
        slow_error(values, labels.numpy(), bins), abs=1e-12
    )


def test_calibration_error_falls_with_the_fitted_temperature():
    logits, labels = drawn(2000, temperature=3.0)
    before, after = (torch.softmax(logits / t, 1) for t in (1.0, fit_temperature(logits, labels)))
    assert expected_calibration_error(before, labels) > 0.1 > 0.04 > expected_calibration_error(after, labels)


def test_calibration_error_at_the_edges():
    assert expected_calibration_error([[0.5, 0.5]], [0], bins=2) == 0.5  # on an edge: the lower bin
    assert expected_calibration_error([[1.0, 0.0], [0.0, 1.0]], [0, 1]) == 0
    assert expected_calibration_error([[1.0, 0.0], [0.0, 1.0]], [1, 0]) == 1
    with pytest.raises(FedMedError, match="0 cases and 15 bins"):
        expected_calibration_error(np.zeros((0, 2)), [])


def test_brier_score_by_hand():
    """Brier's own definition, of which the one that many take for two classes is half."""
    values, labels = [[0.7, 0.3], [0.1, 0.9], [0.6, 0.4]], [0, 1, 1]
    assert brier_score(values, labels) == pytest.approx(2 * (0.3**2 + 0.1**2 + 0.6**2) / 3)
    assert brier_score([[0.5, 0.3, 0.2]], [1]) == pytest.approx(0.25 + 0.49 + 0.04)
    assert [brier_score(np.eye(2), labels) for labels in ([0, 1], [1, 0])] == [0, 2]
    with pytest.raises(FedMedError, match="no cases"):
        brier_score(np.zeros((0, 2)), [])


def fitted(classifier, pictures, handler=None, runs=1, **changes):
    metric = {"val_temperature": handler or TemperatureHandler()}
    evaluator = SupervisedEvaluator("cpu", pictures, classifier, key_val_metric=metric, **changes)
    for _ in range(runs):
        evaluator.run()
    return evaluator.state.metrics["val_temperature"]


@pytest.mark.parametrize("decollate", [True, False])
def test_handler_sees_all_logits_of_the_run(classifier, pictures, decollate):
    classifier.eval()
    with torch.no_grad():
        classifier.classifier.weight.mul_(20)
        logits = torch.cat([classifier(batch["image"]) for batch in pictures])
    labels = torch.cat([batch["label"] for batch in pictures])
    expected = fit_temperature(logits, labels)
    assert 0.05 < expected < 20 and abs(expected - 1) > 0.01
    assert fitted(classifier, pictures, decollate=decollate) == pytest.approx(expected)


def test_a_temperature_that_the_network_has_does_not_enter(classifier, pictures):
    before = fitted(classifier, pictures)
    classifier.temperature.fill_(3.0)
    assert fitted(classifier, pictures) == before


def test_a_second_run_forgets_the_first(classifier, pictures):
    handler = TemperatureHandler()
    assert fitted(classifier, pictures, handler, runs=2) == fitted(classifier, pictures)
    assert len(handler.collected) == 16
