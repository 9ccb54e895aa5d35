import math

import pytest
import torch
import torch.nn.functional as F

from fedmed.errors import FedMedError
from fedmed.systems.agreement.loss import (
    AgreementLoss,
    SquaredAgreementLoss,
    agreed,
    all_classes,
    build_agreement_loss,
    likeliest,
    reweighed,
)

LOCAL = torch.tensor([0.9, 0.8, 0.6, 0.2, 0.4]).view(1, 1, 5)  # probability of class 1
LABELLED = torch.tensor([0.7, 0.4, 0.9, 0.1, 0.3]).view(1, 1, 5)
COUNTS = torch.tensor([[True, False, True, True, True]])
MEAN = all_classes(torch.tensor([0.8, 0.6, 0.75, 0.15, 0.35]).view(1, 1, 5))


def named(labels, classes=2):
    """Probabilities that are certain of these classes."""
    return F.one_hot(torch.as_tensor(labels), classes).movedim(-1, 1).double()


LABEL = named([[1, 1, 1, 0, 0]])


def test_a_voxel_counts_where_both_name_its_class():
    p, counts = agreed(LOCAL, LABELLED)
    assert torch.allclose(p, MEAN) and torch.equal(counts, COUNTS)


def test_of_equally_likely_classes_the_first_is_named():
    p = torch.randint(0, 3, (2, 4, 9, 8, 7), generator=torch.Generator().manual_seed(0)).float()  # many are equal
    assert torch.equal(likeliest(p), p.argmax(dim=1)) and not likeliest(torch.full((1, 2, 3), 0.5)).any()


def test_of_agreed_voxels_the_sure_ones_count_by_class():
    # Means of both, of the class that they name: 0.8, -, 0.75, 0.85 and 0.65.
    _, counts = agreed(LOCAL, LABELLED, [0.7, 0.78])
    assert counts.tolist() == [[True, False, False, True, False]]
    assert agreed(LOCAL, LABELLED, [0.78])[1].tolist() == [[True, False, False, True, False]], "one for all classes"


def test_several_classes():
    local = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.2, 0.6, 0.2]]).T.unsqueeze(0)  # (1, 3 classes, 3 voxels)
    other = torch.tensor([[0.6, 0.2, 0.2], [0.2, 0.5, 0.3], [0.1, 0.8, 0.1]]).T.unsqueeze(0)
    p, counts = agreed(local, other)
    assert torch.allclose(p, (local + other) / 2) and counts.tolist() == [[True, False, True]]
    assert agreed(local, other, [0.6, 0.0, 0.0])[1].tolist() == [[False, False, True]]


@pytest.mark.parametrize("shape", [(2, 1, 6, 7), (2, 1, 4, 5, 6), (2, 4, 6, 7), (3, 5)])
def test_identical_models_agree_everywhere(shape):
    p = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    p = p if shape[1] == 1 else p.softmax(dim=1)
    mean, counts = agreed(p, p)
    assert counts.all() and counts.shape == (shape[0], *shape[2:])
    assert torch.equal(mean, all_classes(p))


def test_loss_worked_out_by_hand():
    """Voxels 1, 3, 4 and 5 count: two of class 1, two of class 0."""
    q = torch.tensor([0.8, 0.1, 0.5, 0.4, 0.2], dtype=torch.float64).view(1, 1, 5)
    entropy = -(math.log(0.8) + math.log(0.5) + math.log(0.6) + math.log(0.8)) / 4
    dice = 1 - 2 * (0.8 + 0.5) / (2 + 0.64 + 0.25 + 0.16 + 0.04)
    assert AgreementLoss(dice=False)(q, LABEL, COUNTS).item() == pytest.approx(entropy, abs=1e-9)
    assert AgreementLoss()(q, LABEL, COUNTS).item() == pytest.approx(entropy + dice, abs=1e-8)


def test_with_balance_both_classes_count_alike():
    q = torch.tensor([0.8, 0.1, 0.5, 0.4, 0.2], dtype=torch.float64).view(1, 1, 5)
    zeros, ones = -(math.log(0.5) + math.log(0.6) + math.log(0.8)) / 3, -math.log(0.8)
    loss = AgreementLoss(balance=True, dice=False)(q, named([[1, 0, 0, 0, 0]]), COUNTS).item()
    assert loss == pytest.approx((ones + zeros) / 2, abs=1e-9)


def test_where_one_class_alone_counts_it_has_all_the_weight():
    q = torch.full((1, 1, 4), 0.25, dtype=torch.float64)
    label, counts = named([[0, 0, 0, 0]]), torch.ones(1, 4, dtype=torch.bool)
    for balance in (False, True):
        assert AgreementLoss(balance)(q, label, counts).item() == pytest.approx(-math.log(0.75), abs=1e-9)


def test_a_class_that_counts_nowhere_has_no_dice():
    q = torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]], dtype=torch.float64).T.unsqueeze(0)
    label, counts = named([[1, 0]], 3), torch.ones(1, 2, dtype=torch.bool)
    dice = 1 - 2 * 0.5 / (1 + 0.25 + 0.09)  # of class 1; class 2 is nowhere
    entropy = -(math.log(0.5) + math.log(0.6)) / 2
    assert AgreementLoss()(q, label, counts).item() == pytest.approx(entropy + dice, abs=1e-8)


@pytest.mark.parametrize("balance", [False, True, None])
def test_nothing_is_learned_where_no_voxel_counts(balance):
    q = torch.rand(2, 1, 3, 3, requires_grad=True)
    criterion = AgreementLoss(balance) if balance is not None else SquaredAgreementLoss()
    loss = criterion(q, named(torch.ones(2, 3, 3, dtype=torch.int64)), torch.zeros(2, 3, 3, dtype=torch.bool))
    loss.backward()
    assert loss.item() == 0 and not q.grad.any()


def test_voxels_that_do_not_count_have_no_gradient():
    for criterion in (AgreementLoss(), SquaredAgreementLoss()):
        q = torch.full((1, 1, 5), 0.3, requires_grad=True)
        criterion(q, MEAN, COUNTS).backward()
        assert (q.grad[0, 0] != 0).tolist() == COUNTS[0].tolist()


def test_certain_mistakes_stay_finite():
    q = torch.tensor([0.0, 1.0]).view(1, 1, 2).requires_grad_()
    loss = AgreementLoss()(q, named([[1, 0]]), torch.ones(1, 2, dtype=torch.bool))
    loss.backward()
    assert loss.isfinite() and q.grad.isfinite().all()


def test_squared_distance_worked_out_by_hand():
    """Of two classes both are as far away, so each voxel's distance counts twice."""
    q = torch.tensor([0.9, 0.1, 0.5, 0.15, 0.35], dtype=torch.float64).view(1, 1, 5)
    loss = SquaredAgreementLoss()(q, MEAN.double(), COUNTS).item()
    assert loss == pytest.approx(2 * (0.1**2 + 0.25**2) / 4, abs=1e-7)
    everywhere = SquaredAgreementLoss(everywhere=True)(q, MEAN.double(), COUNTS).item()
    assert everywhere == pytest.approx(2 * (0.1**2 + 0.5**2 + 0.25**2) / 5, abs=1e-7)


def test_what_is_learned():
    assert isinstance(build_agreement_loss("classes", balance=True), AgreementLoss)
    assert isinstance(build_agreement_loss("probabilities"), SquaredAgreementLoss)
    with pytest.raises(FedMedError, match="'labels'"):
        build_agreement_loss("labels")


def test_weights_of_classes_worked_out_by_hand():
    p = torch.tensor([0.6, 0.2]).view(1, 1, 2)
    drawn = reweighed(p, torch.tensor([1.6, 0.4]))
    assert drawn.shape == p.shape
    assert drawn.flatten().tolist() == pytest.approx([0.6 * 0.4 / (0.6 * 0.4 + 0.4 * 1.6), 0.08 / (0.08 + 0.8 * 1.6)])
    several = torch.tensor([[0.5, 0.3, 0.2]])
    assert reweighed(several, torch.tensor([2.0, 0.0, 0.0])).tolist() == [[1, 0, 0]]
    assert torch.allclose(reweighed(several, torch.full((3,), 0.3)), several)
    with pytest.raises(FedMedError, match="3 weights of classes for 2 classes"):
        reweighed(p, torch.ones(3))


def test_errors():
    with pytest.raises(FedMedError, match=r"shapes \(1, 1, 5\), \(1, 1, 4\)"):
        agreed(LOCAL, LABELLED[..., :4])
    with pytest.raises(FedMedError, match="gate has 3 numbers for 2 classes"):
        agreed(LOCAL, LABELLED, [0.1, 0.2, 0.3])
