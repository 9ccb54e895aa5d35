"""Numbers about its training cases that a site finds out once and tells in every round."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from fedmed.engines.gradient_correction import Correction, RoundStart


class ToldOnce(Correction, ABC):
    """Changes nothing in the training; sends one array beside the model, found before the first step of a round.

    Attributes:
        name: of the value.
    """

    name: ClassVar[str]

    def __init__(self) -> None:
        self._shares: Tensor | None = None

    @abstractmethod
    def find(self) -> Tensor | None:
        """The numbers; None where they cannot be known yet."""

    def begin(self, start: RoundStart) -> None:
        """Before the round's first step."""
        if self._shares is None:
            self._shares = self.find()

    def extras(self) -> dict[str, float | Tensor]:
        """See the class."""
        return {} if self._shares is None else {self.name: self._shares.float()}

    def state_dict(self) -> dict[str, Any]:
        """The numbers."""
        return {} if self._shares is None else {"shares": self._shares}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        self._shares = state_dict.get("shares")
