import pytest
import torch
from ignite.metrics import Metric
from monai.engines import SupervisedEvaluator

from fedmed.systems.agreement.labelled_sites import JudgedMeans, LabelConfidence
from fedmed.training.corrections.correction import RoundStart


class Accuracy(Metric):
    def reset(self):
        self.right, self.all = 0, 0

    def update(self, output):
        pred, label = output
        self.right, self.all = self.right + int(((pred > 0.5) == label).sum()), self.all + label.numel()

    def compute(self):
        return self.right / self.all


@pytest.fixture
def evaluator(undecided, labeled):
    counter = LabelConfidence()
    metric = Accuracy(output_transform=lambda out: (out[0]["pred"], out[0]["label"]))
    engine = SupervisedEvaluator("cpu", labeled[:1], undecided, key_val_metric={"val_accuracy": metric},
                                 decollate=False, postprocessing=lambda x: x)  # fmt: skip
    metric._output_transform = lambda out: (out["pred"], out["label"])
    counter.attach(engine)
    return engine, counter


def judge(evaluator, network, **facts):
    engine, counter = evaluator
    item = JudgedMeans(engine, network, counter)
    item.begin(RoundStart({}, **facts))
    return item.extras()


def test_both_models_are_scored_and_the_received_one_stays(evaluator, undecided, labeled):
    evaluator[0].run()
    received = evaluator[0].state.metrics["val_accuracy"]
    counted = evaluator[1].counts.clone()
    before = {name: tensor.clone() for name, tensor in undecided.state_dict().items()}
    mean = {"layers.3.bias": torch.full((1,), 50.0)}  # foreground everywhere
    result = judge(evaluator, undecided, values={"labelled_mean": mean}, round=0, rounds=5)
    share = labeled[0]["label"].float().mean().item()
    assert result["mean_scores"].tolist() == pytest.approx([received, share])
    assert all(torch.equal(before[name], tensor) for name, tensor in undecided.state_dict().items())
    assert torch.equal(evaluator[1].counts, counted), "the confidence is that of the received model"


def test_the_quantile_falls_over_the_rounds(evaluator, undecided):
    evaluator[0].run()
    result = [judge(evaluator, undecided, round=round, rounds=5)["label_confidence"] for round in (0, 2, 4)]
    expected = [evaluator[1].quantiles(level) for level in (0.5, 0.3, 0.1)]
    assert all(torch.equal(a, b) for a, b in zip(result, expected, strict=True))
    assert "mean_scores" not in judge(evaluator, undecided)


def test_a_confidence_that_is_not_needed_is_not_sent(evaluator, undecided):
    evaluator[0].run()
    item = JudgedMeans(evaluator[0], undecided, evaluator[1], tell_confidence=False)
    item.begin(RoundStart({}, values={"labelled_mean": {}}))
    assert list(item.extras()) == ["mean_scores"]


def test_without_a_score_of_the_received_model_nothing_is_sent(evaluator, undecided):
    assert judge(evaluator, undecided, values={"labelled_mean": {}}) == {}
