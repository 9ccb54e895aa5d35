"""First rounds of a study whose sites without labels can only learn from what labels have taught."""

from typing import Any

RATE, LOW = 3e-3, 3e-4  # of a small network from random weights, and that at which it comes to rest


def labels_first(rounds: int) -> dict[str, Any]:
    """Values of a study: labelled sites train alone until their model has converged, and statistics stay at home.

    From random weights an arbitrary matching satisfies a cycle, and pseudo-labels are of one class. BatchNorm's
    statistics of labelled sites do not fit the images of others, so each site without labels takes its own; sites that
    are only scored have the labelled ones'. What else adapts a model to a site's images belongs here, too. The result
    is the mean of the last rounds: labelled sites, which else choose it, know nothing of what the others gained.

    Args:
        rounds: length of the warm start.
    """
    return {"warm_start": {"rounds": rounds}, "buffers": {"unsupervised": "local"}, "select": "mean"}


def small_labels_first(rounds: int, of: int, **labelled: float) -> dict[str, Any]:
    """The same for a small network from random weights: the labelled sites' rate falls to a tenth over the warm start.

    Sites without labels have that tenth from the beginning.

    Args:
        rounds: length of the warm start.
        of: length of the run, in rounds.
        labelled: further settings of the labelled sites.
    """
    rate = {"learning_rate": RATE, "final_div_factor": 0.4, "pct_start": 0.1, "cycle_share": rounds / of}
    overrides = {"supervised": {**rate, **labelled}, "unsupervised": {"learning_rate": LOW}}
    schedule = {"role_overlays": {"supervised": ["one_cycle"]}, "overrides": overrides}
    return {"rounds": of, **schedule, **labels_first(rounds)}
