import copy

import pytest
import torch
from torch import nn

from fedmed.errors import FedMedError
from fedmed.training.unlabelled import build_teacher


@pytest.fixture
def student():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(1, 3, 3), nn.BatchNorm1d(3), nn.Conv1d(3, 1, 1))


def change(student):
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.add_(torch.randn_like(parameter))
    student.train()(torch.randn(4, 1, 8))  # moves the running statistics


def test_average_of_parameters_and_copy_of_buffers(student):
    teacher = build_teacher("ema", student, 0.75)
    change(student)  # after the teacher was made: the first update copies all the same
    seen = []
    for _ in range(4):
        seen.append([p.detach().clone().double() for p in student.parameters()])
        teacher.update_parameters(student)
        change(student)
    for index, parameter in enumerate(teacher.module.parameters()):
        expected = seen[0][index]
        for later in seen[1:]:
            expected = 0.75 * expected + 0.25 * later[index]
        assert torch.allclose(parameter.double(), expected, atol=1e-6)
    teacher.update_parameters(student)
    for ours, theirs in zip(teacher.module.buffers(), student.buffers(), strict=True):
        assert torch.equal(ours, theirs)


def test_is_a_pass_in_eval_mode_without_gradient_and_leaves_the_student_alone(student):
    teacher = build_teacher("ema", student)
    before = copy.deepcopy(student.state_dict())
    teacher.update_parameters(student)
    result = teacher(torch.randn(2, 1, 8))
    assert not teacher.training and not result.requires_grad
    assert all(torch.equal(value, before[name]) for name, value in student.state_dict().items())
    shared = {p.data_ptr() for p in student.parameters()} & {p.data_ptr() for p in teacher.parameters()}
    assert not shared and all(p.requires_grad for p in student.parameters())


@pytest.mark.parametrize(
    ("kind", "decay", "message"),
    [("mean", 0.9, "use one of current, ema"), ("ema", 1.0, "ema_decay is 1.0"), ("ema", -0.1, "ema_decay is -0.1")],
)
def test_bad_values(student, kind, decay, message):
    with pytest.raises(FedMedError, match=message):
        build_teacher(kind, student, decay)
    assert build_teacher("current", student) is None
