"""Federated averaging where sites without labels learn sharpened predictions of theirs (UDA at each of them)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedmed.errors import JobError
from fedmed.losses.pseudo_label import GROWTHS
from fedmed.methods.declarations import Role
from fedmed.methods.fedfixmatch import FedFixMatch


@dataclass(frozen=True)
class FedUDA(FedFixMatch):
    """As :class:`FedFixMatch`, with predictions, sharpened, in the place of classes; overlay ``uda``.

    Attributes:
        annealing: ``linear``, ``exp`` or ``log``: labelled frames whose class the model already knows are left out, by
            a threshold that grows so over the run (training-signal annealing); None = all count.
    """

    title: ClassVar[str] = "FedUDA"
    source: ClassVar[str] = "Xie et al. 2019, arXiv 1904.12848, as in Kassem et al. 2023, arXiv 2203.07345"
    overlay: ClassVar[str] = "uda"

    annealing: str | None = None

    def __post_init__(self) -> None:
        if self.annealing is not None and self.annealing not in GROWTHS:
            raise JobError(f"'annealing' is {self.annealing!r}; use one of {', '.join(GROWTHS)}, or null")

    def roles(self) -> Mapping[str, Role]:
        """As there; labelled sites may leave out what the model knows."""
        roles = dict(super().roles())
        if self.annealing is not None:
            roles["supervised"] = replace(roles["supervised"], overlays=("annealed",))
        return roles

    def settings(self, role: str) -> Mapping[str, Any]:
        """How the threshold grows."""
        return {"annealing": self.annealing} if role == "supervised" and self.annealing is not None else {}

    def card(self) -> str:
        """How the model came about."""
        return (
            "Sites without labels learned their own sharpened predictions of frames that the model was sure of, under "
            "strong changes of them (UDA), and the server averaged all sites."
        )
