import copy

import pytest
import torch
from ignite.engine import Events

from fedmed.errors import JobError
from fedmed.losses.dice import SoftDiceLoss
from fedmed.systems.agreement.engine import AgreementEngine
from fedmed.systems.agreement.loss import AgreementLoss, SquaredAgreementLoss, agreed
from fedmed.training.unlabelled import build_teacher

from .conftest import equal


@pytest.fixture
def network(undecided):
    return undecided


def build(network, loader, lr=1e-2, **changes):
    optimizer = torch.optim.Adam(network.parameters(), lr=lr)
    return AgreementEngine("cpu", 1, loader, network, optimizer, **changes)


def another(network):
    """A mean of labelled sites that disagrees about some voxels."""
    other = copy.deepcopy(network)
    with torch.no_grad():
        other.layers[3].bias.add_(0.3)
    return other


def strong(loader):
    return [{**batch, "strong": (batch["image"] * 0.5 + 0.1)} for batch in loader]


def reference(network, labelled, loader, gate):
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    labelled.eval()
    for batch in loader:
        network.eval()
        with torch.no_grad():
            p, counts = agreed(network(batch["image"]), labelled(batch["image"]), gate)
        network.train()
        optimizer.zero_grad()
        AgreementLoss()(network(batch["strong"]), p, counts).backward()
        optimizer.step()


@pytest.mark.parametrize("gate", [None, [0.6, 0.55]])
def test_equals_the_same_in_plain_pytorch(network, twin, unlabeled, gate):
    mean, loader = another(network), strong(unlabeled)
    twin.load_state_dict(network.state_dict())
    engine = build(network, loader)
    engine.receive({"labelled_mean": mean.state_dict(), **({"gate": torch.tensor(gate)} if gate else {})})
    engine.run()
    reference(twin, mean, loader, gate)
    assert equal(network, twin)


@pytest.mark.parametrize("view", ["image", "strong"])
def test_the_student_sees_its_view_changed_by_the_augmentation(network, unlabeled, view):
    batch = strong(unlabeled)[0]
    engine = build(network, [batch], augment=lambda images: images + 1)
    seen = engine.student_view(batch["image"], batch if view == "strong" else unlabeled[0])
    assert torch.equal(seen, batch[view] + 1)


def test_it_reports_how_much_counts(network, unlabeled):
    mean = another(network)
    images = unlabeled[0]["image"]
    with torch.no_grad():
        expected = agreed(network.eval()(images), mean.eval()(images))[1].float().mean().item()
    engine = build(network, unlabeled[:1])
    engine.receive({"labelled_mean": mean.state_dict()})
    engine.run()
    assert 0 < expected < 1
    assert engine.extras() == {"agreed_share": pytest.approx(expected)}
    assert engine.state.output["agreed_fraction"].item() == pytest.approx(expected)


def test_alone_or_with_an_identical_model_everything_counts(network, unlabeled):
    for known in (False, True):
        engine = build(network, unlabeled[:1])
        engine.receive({"labelled_mean": copy.deepcopy(network.state_dict())} if known else {})
        engine.run()
        assert engine.extras() == {"agreed_share": 1.0}


@pytest.mark.parametrize("loss", [AgreementLoss(), SquaredAgreementLoss()])
def test_where_nothing_counts_nothing_is_learned(network, unlabeled, loss):
    """BatchNorm's running statistics apart, as in any pass in train mode."""
    before = copy.deepcopy(dict(network.named_parameters()))
    engine = build(network, unlabeled, agreement_loss=loss)
    engine.receive({"gate": torch.tensor([1.0, 1.0])})
    engine.run()
    assert engine.extras() == {"agreed_share": 0.0}
    assert all(torch.equal(before[name], parameter) for name, parameter in network.named_parameters())


def test_each_model_sees_a_mirror_image_and_answers_for_the_patch(network, unlabeled):
    """Of a network whose answer depends on how a patch lies, two looks differ; of one that answers by voxel, never."""
    images = unlabeled[0]["image"]
    engine = build(network, unlabeled[:1], flips=[0, 1])
    torch.manual_seed(0)
    seen = [engine.predicted(images, network) for _ in range(40)]
    plain = [network.eval()(images.flip(axes)).flip(axes) for axes in ([], [2], [3], [2, 3])]
    assert all(any(torch.allclose(one, p) for p in plain) for one in seen)
    assert len({tuple(one.flatten().tolist()) for one in seen}) == 4
    by_voxel = torch.nn.Sigmoid()
    assert all(torch.equal(engine.predicted(images, by_voxel), by_voxel(images)) for _ in range(6))


def test_classes_of_an_image_are_not_flipped_back():
    pooled = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3), torch.nn.Softmax(dim=1))
    engine, image = build(pooled, [{"image": torch.rand(2, 1, 4, 4)}], flips=[1]), torch.rand(2, 1, 4, 4)
    torch.manual_seed(0)
    result = {tuple(engine.predicted(image, pooled).flatten().tolist()) for _ in range(8)}
    assert result == {tuple(pooled(one).flatten().tolist()) for one in (image, image.flip(3))}


def test_a_model_alone_is_asked_twice(network, unlabeled):
    engine = build(network, unlabeled[:1] * 8, lr=0.0, flips=[0, 1], agreement_loss=SquaredAgreementLoss())
    torch.manual_seed(0)
    engine.run()
    assert engine.extras()["agreed_share"] < 1


@pytest.mark.parametrize("first", [True, False])
def test_the_labelled_mean_is_frozen_and_is_the_model_that_came_until_another_is_sent(network, unlabeled, first):
    mean, engine = copy.deepcopy(network) if first else another(network), build(network, unlabeled)
    engine.receive({} if first else {"labelled_mean": mean.state_dict()})
    engine.run()
    assert equal(engine.frozen, mean) and not equal(network, mean)
    assert {mode for mode, *_ in engine.frozen.passes} == {"eval"}


def test_private_layers_of_the_frozen_model_are_the_sites_own(network, unlabeled):
    mean = another(network).state_dict()
    shared = {name: tensor for name, tensor in mean.items() if not name.startswith("layers.3")}
    local = copy.deepcopy(network.layers[3].state_dict())
    engine = build(network, unlabeled)
    engine.receive({"labelled_mean": shared})
    engine.run()
    assert torch.equal(engine.frozen.layers[3].bias, local["bias"])


def test_without_agreement_the_labelled_mean_is_not_asked(network, twin, unlabeled):
    twin.load_state_dict(network.state_dict())
    engine, alone = build(network, unlabeled, agree=False), build(twin, unlabeled, agree=False)
    engine.receive({"labelled_mean": another(network).state_dict()})
    engine.run()
    alone.run()
    assert equal(network, twin)


def test_pseudo_labels_are_drawn_to_the_shares_of_the_labelled_sites(network, unlabeled):
    shares, agreeing = [], []
    for wanted in ([0.95, 0.05], [0.05, 0.95]):
        engine = build(copy.deepcopy(network), unlabeled[:1] * 60, lr=0.0)
        engine.receive({"class_shares": torch.tensor(wanted), "labelled_mean": another(network).state_dict()})
        engine.run()
        shares.append(engine.state.output["foreground_fraction"].item())
        agreeing.append(engine.state.output["agreed_fraction"].item())
    assert shares[0] < 0.2 and shares[1] > 0.8
    assert min(agreeing) > 0.7  # the labelled sites' mean is drawn there too


def test_the_first_step_of_a_round_is_aligned_already(network, unlabeled):
    """The engine looks at some batches before it learns from any."""
    engine, first = build(network, unlabeled * 3, lr=0.0), []
    engine.add_event_handler(
        Events.ITERATION_COMPLETED(once=1), lambda engine: first.append(engine.state.output["foreground_fraction"])
    )
    engine.receive({"class_shares": torch.tensor([0.9, 0.1])})
    engine.run()
    assert first[0].item() == pytest.approx(0.1, abs=0.05)
    assert engine.state.iteration == len(unlabeled * 3)


def test_with_a_teacher_and_labelled_cases(network, unlabeled, labeled):
    engine = build(network, unlabeled, teacher=build_teacher("ema", network, 0.9), labeled_loader=labeled,
                   supervised_loss=SoftDiceLoss())  # fmt: skip
    engine.receive({"labelled_mean": another(network).state_dict()})
    engine.run()
    out = engine.state.output
    assert out["loss"].item() == pytest.approx((out["supervised_loss"] + out["unlabelled_loss"]).item())
    assert "teacher" in engine.state_dict()


def test_errors(network, unlabeled):
    with pytest.raises(JobError, match="no use for mu"):
        build(network, unlabeled).receive({"mu": 1.0})
    engine = build(network, unlabeled)
    engine.receive({"labelled_mean": {"another.weight": torch.zeros(1)}})
    with pytest.raises(JobError, match="'another.weight'"):
        engine.run()
