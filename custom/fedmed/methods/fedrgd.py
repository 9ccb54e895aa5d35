"""Federated averaging in groups with GroupNorm, sites without labels learning from confident predictions."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedmed.methods.declarations import Role
from fedmed.methods.fedfixmatch import FedFixMatch
from fedmed.methods.method import MEAN

_NO_STATISTICS = {"buffers": "average"}  # with GroupNorm there are none that could stay at home


@dataclass(frozen=True)
class FedRGD(FedFixMatch):
    """As :class:`FedFixMatch`, a tenth of its weight, many more frames, and every site counts the same.

    The paper averages groups of sites, each with the labelled one, and then the groups. With a single group, as Kassem
    et al. compare with, that is the plain mean of all sites. Networks have GroupNorm, overlay ``groupnorm``.
    """

    title: ClassVar[str] = "FedRGD"
    source: ClassVar[str] = "Zhang et al. 2021, arXiv 2008.11364, with one group as in Kassem et al. 2023"
    example: ClassVar[Mapping[str, Any]] = {**FedFixMatch.example, **_NO_STATISTICS}
    small: ClassVar[Mapping[str, Any]] = {**FedFixMatch.small, **_NO_STATISTICS}

    def roles(self) -> Mapping[str, Role]:
        """As there, with GroupNorm at all of them."""
        made = super().roles().items()
        return {name: replace(role, overlays=("groupnorm", *role.overlays)) for name, role in made}

    def rule(self) -> dict[str, Any]:
        """The mean of all sites."""
        return {"path": MEAN, "args": {"weighting": "uniform"}}

    def settings(self, role: str) -> Mapping[str, Any]:
        """Weight and threshold at sites without labels."""
        return {"confidence": 0.25, "unlabelled_weight": 0.1} if role == "unsupervised" else {}

    def card(self) -> str:
        """How the model came about."""
        return (
            "Sites without labels learned from frames whose class the model was rather sure of; every site counted the "
            "same, and the network has GroupNorm (after Zhang et al. 2021)."
        )
