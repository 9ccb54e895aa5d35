import copy

import pytest
import torch

from fedmed.data.augment import Augment, ScaleShift
from fedmed.errors import DataError, FedMedError
from fedmed.losses.dice import SoftDiceLoss
from fedmed.systems.covid_fssl.engine import ConsistencyEngine
from fedmed.systems.covid_fssl.loss import ConsistencyLoss
from fedmed.training.trainer import SupervisedEngine

from .conftest import assert_close, equal


@pytest.fixture
def network(undecided):
    return undecided


def build(network, loader, lr=1e-2, loss=None, augment=None, **changes):
    optimizer = torch.optim.Adam(network.parameters(), lr=lr)
    loss = loss or ConsistencyLoss("dice_hard", "foreground", 0.5)
    augment = augment or ScaleShift(seed=5)
    return ConsistencyEngine("cpu", 1, loader, network, optimizer, augment, consistency_loss=loss, **changes)


def reference(network, unlabeled, labeled=(), weights=(1.0, 1.0), lr=1e-2):
    """Algorithm 2 in plain PyTorch; ``labeled`` has a batch for every step or none."""
    optimizer = torch.optim.Adam(network.parameters(), lr=lr)
    criterion, augment = ConsistencyLoss("dice_hard", "foreground", 0.5), ScaleShift(seed=5)
    for step, batch in enumerate(unlabeled):
        network.eval()
        with torch.no_grad():
            p = network(batch["image"])
        network.train()
        optimizer.zero_grad()
        loss = 0.0
        if labeled:
            y = labeled[step]["label"].float()
            loss = weights[0] * SoftDiceLoss()(network(labeled[step]["image"]), y)
        loss = loss + weights[1] * criterion(p, network(augment(batch["image"])))
        loss.backward()
        optimizer.step()


def test_equals_algorithm_2(network, twin, unlabeled):
    before = copy.deepcopy(network.state_dict())
    engine = build(network, unlabeled)
    engine.run()
    reference(twin, unlabeled)
    assert equal(network, twin)
    assert 0.1 < engine.state.output["confident_fraction"] < 0.9
    assert not any(torch.equal(parameter, before[name]) for name, parameter in network.named_parameters())


@pytest.mark.parametrize("weights", [(1.0, 1.0), (2.0, 0.25)])
def test_labelled_and_unlabelled_together(network, twin, unlabeled, labeled, weights):
    """Three labelled batches for four steps: the loader begins again."""
    both = {"labeled_loader": labeled, "supervised_loss": SoftDiceLoss()}
    engine = build(network, unlabeled, supervised_weight=weights[0], unlabelled_weight=weights[1], **both)
    engine.run()
    reference(twin, unlabeled, [*labeled, labeled[0]], weights)
    assert_close(network, twin)
    out = engine.state.output
    total = weights[0] * out["supervised_loss"] + weights[1] * out["unlabelled_loss"]
    assert out["loss"].item() == pytest.approx(total.item())


def test_pseudo_label_pass_is_in_eval_mode_without_gradient(network, unlabeled, labeled):
    engine = build(network, unlabeled[:2], labeled_loader=labeled, supervised_loss=SoftDiceLoss())
    engine.run()
    one = [("eval", False, "Tensor"), ("train", True, "Tensor"), ("train", True, "Tensor")]
    assert network.passes == one * 2
    assert network.training


@pytest.mark.parametrize("kind", ["l1", "l2", "ce", "dice_hard", "dice_soft"])
def test_threshold_one_moves_no_parameter(network, unlabeled, kind):
    """With τ = 1 the loss and its gradient are 0 (Yang et al. 2021, Eq. 6), and a fresh Adam does not move.

    The running statistics of BatchNorm still change in the student's pass.
    """
    before = copy.deepcopy(network.state_dict())
    build(network, unlabeled, loss=ConsistencyLoss(kind, "foreground", 1.0)).run()
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, before[name]), name
    assert not torch.equal(network.layers[1].running_mean, before["layers.1.running_mean"])


def test_outputs_are_detached_scalars(network, twin, unlabeled):
    engine = build(network, unlabeled[:1], loss=ConsistencyLoss("dice_hard", "two_sided", 0.52))
    engine.run()
    with torch.no_grad():
        p = twin.eval()(unlabeled[0]["image"])
    out = engine.state.output
    assert set(out) == {"loss", "confident_fraction", "foreground_fraction"}
    assert all(value.ndim == 0 and not value.requires_grad for value in out.values())
    assert out["foreground_fraction"].item() == pytest.approx((p > 0.5).double().mean().item())
    assert out["confident_fraction"].item() == pytest.approx(((p > 0.52) | (p < 0.48)).double().mean().item())


def test_labels_of_unlabelled_cases_are_ignored(network, twin, unlabeled):
    build(network, [{**batch, "label": torch.full((2, 1, 8, 8, 8), torch.nan)} for batch in unlabeled]).run()
    reference(twin, unlabeled)
    assert equal(network, twin)


def test_pseudo_label_comes_from_the_weak_view(network, unlabeled):
    class Views(Augment):
        def __call__(self, batch):
            return batch + 2

        def weak(self, batch):
            return batch + 1

    inputs = []
    network.register_forward_pre_hook(lambda module, args: inputs.append(args[0].clone()))
    build(network, unlabeled[:1], augment=Views()).run()
    image = unlabeled[0]["image"]
    assert torch.equal(inputs[0], image + 1)
    assert torch.equal(inputs[1], image + 2)


def test_zero_unlabelled_weight_equals_supervised_training(labeled, unlabeled):
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv3d(1, 3, 3, padding=1), torch.nn.GroupNorm(1, 3), torch.nn.Conv3d(3, 1, 1)
    )
    other = copy.deepcopy(network)

    def inferer(images, network):
        return torch.sigmoid(network(images))

    both = {"labeled_loader": labeled, "supervised_loss": SoftDiceLoss(), "inferer": inferer}
    build(network, unlabeled[:3], unlabelled_weight=0.0, **both).run()
    optimizer = torch.optim.Adam(other.parameters(), lr=1e-2)
    SupervisedEngine("cpu", 1, labeled, other, optimizer, SoftDiceLoss(), inferer=inferer).run()
    assert equal(network, other)


def test_bad_arguments(network, unlabeled, labeled):
    with pytest.raises(DataError, match="'unlabeled'"):
        build(network, None)
    with pytest.raises(FedMedError, match="supervised_loss"):
        build(network, unlabeled, labeled_loader=labeled)
    with pytest.raises(DataError, match="labelled cases is empty"):
        build(network, unlabeled, labeled_loader=[], supervised_loss=SoftDiceLoss()).run()
    with pytest.raises(FedMedError, match="inferer"):
        build(torch.nn.Conv3d(1, 2, 1), unlabeled).run()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_mixed_precision_on_a_gpu(network, unlabeled, labeled):
    network.cuda()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    criterion = ConsistencyLoss("ce", "whole")
    options = {"labeled_loader": labeled, "supervised_loss": SoftDiceLoss(), "consistency_loss": criterion}
    engine = ConsistencyEngine("cuda", 1, unlabeled, network, optimizer, ScaleShift(), amp=True, **options)
    engine.run()
    assert engine.state.output["loss"].isfinite()
    assert engine.state_dict()["scaler"]["scale"] > 0
