"""The server's rule as class path and arguments, from what method and study say of it."""

from collections.abc import Collection, Mapping
from typing import Any

from fedmed.aggregation.robust import RULES
from fedmed.aggregation.rule import ServerRule
from fedmed.class_paths import build
from fedmed.errors import JobError
from fedmed.methods.method import MEAN

RULE_ROOMS = ("fedmed.aggregation", "fedmed.systems")
MIDDLE = "fedmed.aggregation.robust.RobustAggregator"
WEIGHTINGS = {
    "iterations": "fedmed.aggregation.weighted_mean.IterationWeighting",
    "samples": "fedmed.aggregation.weighted_mean.SampleWeighting",
    "uniform": "fedmed.aggregation.weighted_mean.UniformWeighting",
    "reported": "fedmed.aggregation.reported.ReportedWeighting",
}
OPTIMIZERS = "fedmed.aggregation.server_optimizers"
STEPS = {
    "sgd": f"{OPTIMIZERS}.ServerSGD",
    "adam": f"{OPTIMIZERS}.ServerAdam",
    "adamw": f"{OPTIMIZERS}.ServerAdamW",
    "yogi": f"{OPTIMIZERS}.ServerYogi",
}


def rule_spec(
    rule: Mapping[str, Any], said: Mapping[str, Any] | None = None, buffers: str | None = None, step: Any = None
) -> dict[str, Any]:
    """Return ``{path, args}`` of the server's rule, whose parts are ``{path, args}`` too.

    Args:
        rule: ``path`` and ``args``. Those of a :class:`WeightedMean` may be written short: ``rule`` is ``mean``,
            ``median`` or ``trimmed_mean``, with ``trim``; ``weighting`` one of the names in ``WEIGHTINGS``, or
            ``{by: …}`` with such a name or the class path of another weighting, and its arguments.
        said: the study's ``normalise``, ``user_weights`` and ``clip_norm``, where it says them.
        buffers: how the server takes BatchNorm statistics; None = as the mean does by itself.
        step: what acts after the mean: one of the names in ``STEPS``, or ``{by: …}``.

    Raises:
        JobError: arguments that contradict each other.
    """
    given, said = dict(rule.get("args") or {}), said or {}
    if rule.get("path") != MEAN:
        if said:
            raise JobError(f"'{min(said)}' belongs to the arguments of the rule that 'rule' names, not beside it")
        return _with_step({**rule, "args": given}, step)
    given = {**({} if buffers is None else {"buffers": buffers}), **said, **given}
    kind, trim, step = given.pop("rule", "mean"), given.pop("trim", None), given.pop("step", step)
    args = {**given, "weighting": _named("weighting", given.get("weighting", "iterations"), WEIGHTINGS)}
    if not isinstance(kind, str) or kind not in RULES:
        raise JobError(f"rule {kind!r} is unknown; use {', '.join(RULES)}, or name a class: {{path: …, args: {{…}}}}")
    if kind != "mean":
        args["middle"] = {"path": MIDDLE, "args": {"rule": kind, "trim": trim}}
    elif trim is not None:
        raise JobError("'trim' is for rule 'trimmed_mean'; the rule is 'mean', which drops nothing")
    return _with_step({"path": MEAN, "args": args}, step)


def step_spec(step: Any) -> dict[str, Any]:
    """Return ``{path, args}`` of what a study's ``server_step`` names, and of what it says acts ``then``.

    Raises:
        JobError: it names nothing.
    """
    spec = _named("server_step", step, STEPS)
    if spec["args"].get("then") is not None:
        spec["args"]["then"] = step_spec(spec["args"]["then"])
    return spec


def _with_step(rule: Mapping[str, Any], step: Any) -> dict[str, Any]:
    """The rule with a step after its mean: it is the mean, or has one among its arguments."""
    if step is None:
        return dict(rule)
    args = dict(rule.get("args") or {})
    if rule.get("path") == MEAN:
        return {**rule, "args": {**args, "step": step_spec(step)}}
    for name, value in args.items():
        if isinstance(value, Mapping) and value.get("path") == MEAN:
            return {**rule, "args": {**args, name: _with_step(value, step)}}
    raise JobError(
        f"the rule {rule.get('path')} has no mean among its arguments after which 'server_step' could act; leave it "
        f"out, or give the rule one: {{path: {MEAN}}}"
    )


def _named(key: str, value: Any, known: Mapping[str, str]) -> dict[str, Any]:
    args = dict(value) if isinstance(value, Mapping) else {"by": value}
    kind = args.pop("by", None)
    if not isinstance(kind, str) or (kind not in known and "." not in kind):
        raise JobError(f"'{key}' is {kind!r}; use {', '.join(known)}, or name a class: {{by: …}}")
    return {"path": known.get(kind, kind), "args": args}


def load_rule(spec: Mapping[str, Any], allowed: Collection[str] = ()) -> ServerRule:
    """Build the server's rule from ``{path, args}``.

    Args:
        spec: class path below ``fedmed.aggregation`` or ``fedmed.systems``, and plain arguments.

    Raises:
        JobError: as :func:`fedmed.class_paths.build`, or the class is not a rule.
    """
    rule = build(spec, RULE_ROOMS, allowed)
    if not isinstance(rule, ServerRule):
        raise JobError(f"{spec['path']} is not a rule of the server: see ServerRule in fedmed/aggregation/rule.py")
    return rule
