"""What a study begins with where sites without labels can only learn from what labels have taught."""

from typing import Any


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
