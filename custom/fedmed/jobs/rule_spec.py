"""The server's rule as class path and arguments, from the flat arguments of a job's aggregator."""

from collections.abc import Mapping
from typing import Any

from fedmed.aggregation.robust import RULES
from fedmed.errors import JobError

SIMILARITY = "rsa"  # by which `weighting: self_adaptive` weighs a site
MEAN = "fedmed.aggregation.weighted_mean.WeightedMean"
MIDDLE = "fedmed.aggregation.robust.MiddleMean"
WEIGHTINGS = {
    "iterations": "fedmed.aggregation.weighting.IterationWeighting",
    "samples": "fedmed.aggregation.weighting.SampleWeighting",
    "uniform": "fedmed.aggregation.weighting.UniformWeighting",
    "self_adaptive": "fedmed.aggregation.self_adaptive.SelfAdaptiveWeighting",
    "reported": "fedmed.aggregation.reported.ReportedWeighting",
}
OTHERS = ("sharing", "warm_start_sharing", "max_norm")  # arguments of the aggregator that are not of the rule
FLAT = ("normalise", "user_weights", "clip_norm", "weighting", "form", "floor")
AS_IT_IS = "config_type"  # FLARE's key that keeps a mapping what it is


def rule_spec(aggregator: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``{path, args}`` of the rule that the plain arguments of a job's aggregator ask for.

    Either they name it, ``rule: {path, args}`` (see :func:`for_flare`), or it is a :class:`WeightedMean` with the
    arguments ``normalise``, ``user_weights``, ``buffers``, ``clip_norm``, ``rule`` (``mean``, ``median`` or
    ``trimmed_mean``, with ``trim``) and ``weighting``: one of the names in ``WEIGHTINGS``, with ``form`` and ``floor``
    for ``self_adaptive``, or a mapping ``{by: reported, name: …}`` whose other keys are arguments of the weighting. A
    number that is reported counts as it is, or with ``form: gap`` or ``softmax`` as a similarity does.

    Raises:
        JobError: arguments that contradict each other.
    """
    given = {key: value for key, value in aggregator.items() if key not in OTHERS}
    rule, trim = given.pop("rule", "mean"), given.pop("trim", None)
    if isinstance(rule, Mapping):
        if twice := [key for key in (*FLAT, "trim") if key in aggregator]:
            raise JobError(f"'{twice[0]}' belongs to the arguments of the rule that 'rule' names, not beside it")
        return {key: value for key, value in rule.items() if key != AS_IT_IS}
    weighting = _weighting(given.pop("weighting", "iterations"), given.pop("form", None), given.pop("floor", None))
    args = {**given, "weighting": weighting}
    if not isinstance(rule, str) or rule not in RULES:
        raise JobError(f"rule {rule!r} is unknown; use {', '.join(RULES)}, or name a class: {{path: …, args: {{…}}}}")
    if rule != "mean":
        args["middle"] = {"path": MIDDLE, "args": {"rule": rule, "trim": trim}}
    elif trim is not None:
        raise JobError("'trim' is for rule 'trimmed_mean'; the rule is 'mean', which drops nothing")
    return {"path": MEAN, "args": args}


def for_flare(rule: Mapping[str, Any]) -> dict[str, Any]:
    """``{path, args}`` as it may stand among the arguments of a FLARE component.

    FLARE would import and build whatever has a ``path`` there, before FedMed could refuse it.
    """
    return {AS_IT_IS: "dict", **rule}


def _weighting(weighting: Any, form: str | None, floor: float | None) -> dict[str, Any]:
    args = dict(weighting) if isinstance(weighting, Mapping) else {"by": weighting}
    kind = args.pop("by", None)
    if not isinstance(kind, str) or kind not in WEIGHTINGS:
        raise JobError(f"'weighting' is {kind!r}; use {', '.join(WEIGHTINGS)}")
    for name, value in (("form", form), ("floor", floor)):
        if value is not None and kind != "self_adaptive":
            raise JobError(f"'{name}' is for weighting 'self_adaptive' only; leave it out for '{kind}'")
        args |= {} if value is None else {name: value}
    if kind == "reported" and "form" in args:
        kind = "self_adaptive"
    elif kind == "self_adaptive":
        args.setdefault("name", SIMILARITY)
    return {"path": WEIGHTINGS[kind], "args": args}
