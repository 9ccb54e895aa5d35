"""What of a site's released private layers is believed, and the mean of those of several sites."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedmed.aggregation.acceptance import all_finite
from fedmed.aggregation.private_mean import mean_of_sites, site_shares
from fedmed.bundles.network import merge
from fedmed.errors import SharingError, StateError
from fedmed.federation.server import Server
from fedmed.messages.answers import Release

log = logging.getLogger("fedmed.server")
UNKNOWN_SAMPLES = (
    "it did not say of how many training samples its layers are ('n_samples' among 'privacy.allowed_metrics' in its "
    "own settings); 'release_weights: uniform' does not need it"
)


def fault(answer: Release | None, expected: Mapping[str, Tensor], round: int) -> str:
    """Why an answer to a ``release`` task cannot be used; empty if it can.

    Args:
        answer: of the site; None where none came.
        expected: name -> tensor of the shape and dtype that is asked for.
        round: whose private layers were asked for.
    """
    if answer is None:
        return "it did not answer"
    if not answer.allowed:
        return "it does not allow it ('allow_release' in its own settings)"
    try:
        if answer.round != round:
            raise SharingError(f"it is of round {answer.round}, round {round} was asked for")
        merge(expected, answer.tensors, expected)
        if bad := [name for name, tensor in answer.tensors.items() if not all_finite(tensor)]:
            raise SharingError(f"tensor '{bad[0]}' has values that are NaN or infinite")
    except SharingError as error:
        return f"its answer is unusable: {error}"
    return ""


@dataclass(frozen=True)
class MeanOfSites:
    """The mean of several sites' layers.

    Attributes:
        tensors: name -> mean, in memory of its own.
        shares: site -> its share.
        weighing: what the shares follow: ``samples`` or ``uniform``.
    """

    tensors: Mapping[str, Tensor]
    shares: Mapping[str, float]
    weighing: str

    @classmethod
    def of(cls, released: Mapping[str, Release], samples: Mapping[str, int], weighing: str) -> "MeanOfSites":
        """Average the layers of sites that released them.

        Args:
            released: site -> its answer, which can be used.
            samples: site -> training samples that it reported.
            weighing: ``samples`` or ``uniform``.

        Raises:
            SharingError: their mean cannot be made; names the tensor.
        """
        shares = site_shares({site: samples.get(site, 0) for site in released}, weighing)
        tensors = mean_of_sites({site: answer.tensors for site, answer in released.items()}, shares)
        return cls(tensors, shares, weighing)

    def facts(self) -> dict[str, Any]:
        """For the run's record and for what is kept."""
        return {"weighting": self.weighing, "weights": dict(self.shares)}


def reported_samples(rounds: Mapping[int, Mapping[str, Any]], private: Mapping[str, int]) -> dict[str, int]:
    """Return the training samples that each site reported with the update to which its private layers belong.

    Args:
        rounds: number of a round -> its line of ``rounds.jsonl``.
        private: site -> round of its private layers. A site that said no number above 0 is left out.
    """
    said = {site: rounds.get(round, {}).get("sites", {}).get(site, {}) for site, round in private.items()}
    found = {site: numbers.get("n_samples") for site, numbers in said.items()}
    return {site: int(number) for site, number in found.items() if type(number) is int and number > 0}


def keep_mean(server: Server, mean: MeanOfSites, released: Mapping[str, Release], round: int) -> dict[str, Any]:
    """Write the mean for an export if the study asks for it and every site allows it.

    Args:
        server: whose study it is, and which keeps the file.
        mean: of what the sites released.
        released: site -> its answer.
        round: of the model to which the layers belong.

    Returns:
        What the run's record says of it.
    """
    if not server.plan.release_keep:
        return {}
    lacking = [site for site in server.plan.lenders if site not in released or not released[site].keep]
    if lacking:
        reason = f"{', '.join(lacking)} did not allow it ('allow_kept_release' in a site's own settings)"
        log.warning("the mean of the private layers is not kept: %s", reason)
        return {"kept": False, "not_kept": reason}
    try:
        path = server.store.keep_mean(round, mean.tensors, mean.facts())
    except StateError as error:
        log.error("the mean of the private layers is not kept: %s", error)
        return {"kept": False, "not_kept": "it could not be written"}
    log.warning("the mean of the private layers of %s is kept for an export: %s", ", ".join(released), path)
    return {"kept": True}
