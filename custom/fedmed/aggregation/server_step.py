"""Interface of a step after the mean of a round, such as a server's optimizer."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from fedmed.aggregation.acceptance import all_finite
from fedmed.aggregation.contribution import Contribution
from fedmed.aggregation.rule import Model, RoundFacts
from fedmed.aggregation.sharing import classify
from fedmed.errors import RoundFailed, SharingError


@runtime_checkable
class ServerOptimizer(Protocol):
    """A step after the mean, such as a server's optimizer (Reddi et al. 2021, arXiv 2003.00295, Algorithm 1)."""

    def move(
        self, model: Model, mean: Model, names: Sequence[str], updates: Sequence[Contribution], facts: RoundFacts
    ) -> Mapping[str, Tensor]:
        """Return the next values of some or all named tensors; what is left out takes the mean's value.

        Args:
            model: the model before the round.
            mean: what :class:`fedmed.aggregation.weighted_mean.WeightedMean` made of the round, of ``names`` in
                float64, before it is rounded to the model's dtype. The pseudo-gradient of a tensor is
                ``model[name] - mean[name]``: of two rounded numbers it would be mostly rounding where sites move
                little. Tensors of ``names`` may be overwritten.
            names: parameters that some site sent, in the model's order; buffers (BatchNorm) follow the mean.
            updates: those that were averaged, sorted by site.
            facts: when this is.
        """
        ...

    # The next two are as those of ServerRule.
    def state(self) -> dict[str, Any]: ...

    def restore(self, state: Mapping[str, Any]) -> None: ...


def apply_step(
    step: ServerOptimizer,
    model: Model,
    mean: Model,
    sent: Sequence[str],
    updates: Sequence[Contribution],
    facts: RoundFacts,
) -> dict[str, Tensor]:
    """Return ``mean`` with the parameters that the step moved.

    Args:
        step, model, mean, updates, facts: see :meth:`ServerOptimizer.move`.
        sent: tensors that some site sent.

    Raises:
        SharingError: the step returned what is not a parameter of the model, or has another shape.
        RoundFailed: the next values are not finite in the model's dtype.
    """
    names = [name for name in sent if classify(name, model[name]) == "parameter"]
    moved = step.move(model, mean, names, updates, facts)
    for name, tensor in moved.items():
        if name not in names or tensor.shape != model[name].shape or not tensor.is_floating_point():
            raise SharingError(f"the step after the mean returned '{name}', which does not fit the model's parameters")
    result = {**mean, **moved}
    for name in names:
        result[name] = result[name].to(model[name].dtype)
        if not all_finite(result[name]):
            raise RoundFailed(f"tensor '{name}' is not finite after the server's step; the model is unchanged")
    return result
