"""The server's rule, made from what a job says of it."""

from collections.abc import Collection, Mapping
from typing import Any

from fedmed.aggregation.weighted_mean import WeightedMean
from fedmed.class_paths import load_class, make
from fedmed.methods.method import MEAN

ROOM = "fedmed.aggregation"
OF_POLICIES = ("path", "sharing", "sends", "warm_start_sharing", "max_norm")  # said beside the rule's own arguments


def make_rule(aggregator: Mapping[str, Any], allowed: Collection[str] = ()) -> WeightedMean:
    """Make the rule that a job's ``aggregator`` arguments describe.

    Args:
        aggregator: ``path``, by default the weighted mean's, the rule's arguments, and what roles share.
        allowed: class paths outside ``fedmed.aggregation`` that the server's own settings list.

    Raises:
        JobError: the class may not be named by a job, or does not take the arguments.
    """
    path = aggregator.get("path", MEAN)
    kind = load_class(path, WeightedMean, ROOM, allowed, "rule")
    return make(kind, path, {key: value for key, value in aggregator.items() if key not in OF_POLICIES}, "rule")
