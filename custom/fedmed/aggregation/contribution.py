"""Part of a site's update that an aggregation rule reads.

A protocol rather than an import of ``federation.messages.Update``: dependencies point from federation to here.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor


class Contribution(Protocol):
    """One site's part in one round.

    Attributes:
        site: who sent it.
        round: the round it was computed for, counted from 0.
        tensors: name -> difference to the tensor that the site received, ``after - before``, any shape.
        n_steps: optimizer steps done in the round, 0 or more.
        n_samples: training images of the site; 0 where it does not say.
        extras: further values of a method by name, such as a number that it is weighed by.
    """

    @property
    def site(self) -> str: ...

    @property
    def round(self) -> int: ...

    @property
    def tensors(self) -> Mapping[str, Tensor]: ...

    @property
    def n_steps(self) -> int: ...

    @property
    def n_samples(self) -> int: ...

    @property
    def extras(self) -> Mapping[str, Any]: ...
