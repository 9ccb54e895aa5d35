"""The server's rule as class path and arguments, from the flat arguments of a job's aggregator."""

from collections.abc import Collection, Mapping
from typing import Any

from fedmed.aggregation.robust import RULES
from fedmed.aggregation.rule import ServerRule
from fedmed.class_paths import build
from fedmed.errors import JobError
from fedmed.methods.method import MEAN

RULE_ROOMS = ("fedmed.aggregation", "fedmed.methods")
MIDDLE = "fedmed.aggregation.robust.MiddleMean"
WEIGHTINGS = {
    "iterations": "fedmed.aggregation.weighting.IterationWeighting",
    "samples": "fedmed.aggregation.weighting.SampleWeighting",
    "uniform": "fedmed.aggregation.weighting.UniformWeighting",
    "reported": "fedmed.aggregation.reported.ReportedWeighting",
}
BESIDE = ("sharing", "sends", "warm_start_sharing", "max_norm")  # said beside the rule, and not of it
FLAT = ("normalise", "user_weights", "clip_norm", "weighting", "trim")


def rule_spec(aggregator: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``{path, args}`` of the rule that the plain arguments of a job's aggregator ask for.

    Either they name it, ``rule: {path, args}``, or it is a :class:`WeightedMean` with the arguments ``normalise``,
    ``user_weights``, ``buffers``, ``clip_norm``, ``rule`` (``mean``, ``median`` or ``trimmed_mean``, with ``trim``) and
    ``weighting``: one of the names in ``WEIGHTINGS``, or a mapping ``{by: …}`` of such a name or the class path of
    another weighting, whose other keys are arguments of the weighting.

    Raises:
        JobError: arguments that contradict each other.
    """
    given = {key: value for key, value in aggregator.items() if key not in BESIDE}
    rule, trim = given.pop("rule", "mean"), given.pop("trim", None)
    if isinstance(rule, Mapping):
        if twice := [key for key in FLAT if key in aggregator]:
            raise JobError(f"'{twice[0]}' belongs to the arguments of the rule that 'rule' names, not beside it")
        return dict(rule)
    args = {**given, "weighting": _weighting(given.get("weighting", "iterations"))}
    if not isinstance(rule, str) or rule not in RULES:
        raise JobError(f"rule {rule!r} is unknown; use {', '.join(RULES)}, or name a class: {{path: …, args: {{…}}}}")
    if rule != "mean":
        args["middle"] = {"path": MIDDLE, "args": {"rule": rule, "trim": trim}}
    elif trim is not None:
        raise JobError("'trim' is for rule 'trimmed_mean'; the rule is 'mean', which drops nothing")
    return {"path": MEAN, "args": args}


def _weighting(weighting: Any) -> dict[str, Any]:
    args = dict(weighting) if isinstance(weighting, Mapping) else {"by": weighting}
    kind = args.pop("by", None)
    if not isinstance(kind, str) or (kind not in WEIGHTINGS and "." not in kind):
        raise JobError(f"'weighting' is {kind!r}; use {', '.join(WEIGHTINGS)}, or name a class: {{by: …}}")
    return {"path": WEIGHTINGS.get(kind, kind), "args": args}


def load_rule(spec: Mapping[str, Any], allowed: Collection[str] = ()) -> ServerRule:
    """Build the server's rule from ``{path, args}``.

    Args:
        spec: class path below ``fedmed.aggregation`` or ``fedmed.methods``, and plain arguments.
        allowed: further class paths, which the server's own settings list.

    Raises:
        JobError: as :func:`fedmed.class_paths.build`, or the class is not a rule.
    """
    rule = build(spec, RULE_ROOMS, allowed)
    if not isinstance(rule, ServerRule):
        raise JobError(f"{spec['path']} is not a rule of the server: see ServerRule in fedmed/aggregation/rule.py")
    return rule
