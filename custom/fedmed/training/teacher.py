"""A mean teacher: the moving average of a student's weights (Tarvainen and Valpola 2017)."""

from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from fedmed.errors import FedMedError

KINDS = ("current", "ema")


def build_teacher(kind: str, network: nn.Module, decay: float = 0.99) -> AveragedModel | None:
    """Return the model that makes pseudo-labels, or None when the student itself makes them.

    ``teacher.update_parameters(student)`` copies the student at its first call, and from then on moves each
    parameter to ``decay * teacher + (1 - decay) * student``. Buffers, such as BatchNorm's statistics, are always
    copied from the student. ``teacher(x)`` is a pass in eval mode; the student is never changed.

    Args:
        kind: ``current``, the student itself makes them (Yang et al. 2021, Eq. 4): None. ``ema``: a teacher, which
            costs the memory of one more set of weights.
        network: the student, whose structure the teacher copies.
        decay: in [0, 1); 0.99 averages about the last 100 steps, 0 is the student after its last step.

    Raises:
        FedMedError: an unknown kind, or a decay outside [0, 1).
    """
    if kind not in KINDS:
        raise FedMedError(f"teacher is {kind!r}; use one of {', '.join(KINDS)}")
    if not 0 <= decay < 1:
        raise FedMedError(
            f"ema_decay is {decay}; use a number from 0 to below 1, such as 0.99: at 1 nothing changes it"
        )
    if kind == "current":
        return None
    teacher = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(decay))
    return teacher.requires_grad_(False).eval()
