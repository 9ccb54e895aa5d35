"""The private layers of a model for a site that never trained: the mean of what all sites of the run released."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedmed.durable_files import load_tensors
from fedmed.errors import ExportError, StateError
from fedmed.export.finished_run import FinishedRun
from fedmed.jobs.job import RolePolicies
from fedmed.methods.declarations import TRAINING_ROLES
from fedmed.recovery.model_store import MEAN_OF_PRIVATE


@dataclass(frozen=True)
class KeptMean:
    """What the server of a run has kept.

    Attributes:
        tensors: name -> mean over the sites.
        weighting: ``samples`` or ``uniform``.
        weights: site -> its share.
    """

    tensors: Mapping[str, Tensor]
    weighting: str
    weights: Mapping[str, float]


def kept_mean(run: FinishedRun, policies: RolePolicies, names: Collection[str], site: str, round: int) -> KeptMean:
    """Return the mean of the sites' private layers that belong to the model after ``round``.

    Args:
        run: the run.
        policies: what each role keeps to itself.
        names: the network's tensors.
        site: that never trained; it need not be one of the run's.
        round: the model's round.

    Raises:
        ExportError: the site trained in the run, the model has no private layers, or no mean of them was kept, and
            why; or the file is damaged, or of another model.
    """
    if site in run.study.of_role(*TRAINING_ROLES):
        raise ExportError(f"site '{site}' trained in this run and has layers of its own; export those: --site {site}")
    expected = policies.of("supervised", round).private(names)
    if not expected:
        raise ExportError(f"the model after round {round} is complete: no tensor is a site's own; leave out --unseen")
    entries = [entry for entry in run.result.get("releases") or [] if entry.get("kept") is True]
    path = next(iter(sorted(run.records.parent.glob(f"app_*/{MEAN_OF_PRIVATE.format(round=round)}"))), None)
    if path is None or not entries:  # a file alone may be of an earlier run in the same folder
        raise ExportError(f"the run kept no mean of the sites' private layers after round {round}: {_why(run)}")
    try:
        content = load_tensors(path)
    except StateError as error:
        raise ExportError(str(error)) from error
    tensors, meta = content.get("tensors"), content.get("meta")
    if not isinstance(tensors, Mapping) or not isinstance(meta, Mapping) or not meta.get("weights"):
        raise ExportError(f"{path} is damaged: it does not hold a mean and its weights; copy the run again")
    told = any(entry.get("weights") == meta["weights"] for entry in entries)
    if meta.get("round") != round or set(tensors) != set(expected) or not told:
        raise ExportError(f"{path} is not of the model after round {round}; the folder mixes two runs: copy it again")
    return KeptMean(dict(tensors), str(meta.get("weighting")), dict(meta["weights"]))


def _why(run: FinishedRun) -> str:
    if not run.study.release_keep:
        return (
            "its study must say 'release_from: all' and 'release_keep: true', and each site 'allow_release: true' and "
            "'allow_kept_release: true'"
        )
    entries: list[Mapping[str, Any]] = [entry for entry in run.result.get("releases") or [] if entry.get("asked")]
    reasons = [entry.get("not_kept") or entry.get("reason") for entry in entries]
    return next((str(reason) for reason in reasons if reason), "copy the run's folder completely")
