"""From a method's class path to its object, and from a run or a study to its method."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeVar

from fedmed.class_paths import classes_below, classes_in, files_below, load_class
from fedmed.errors import JobError
from fedmed.methods.algorithm import Algorithm
from fedmed.methods.method import Method
from fedmed.methods.supervised_fedavg import SupervisedFedAvg
from fedmed.methods.with_algorithm import WithAlgorithm
from fedmed.moved_classes import ADAPTATIONS_NOW

log = logging.getLogger("fedmed.study")
SYSTEMS = "fedmed.systems"
ROOMS = (SYSTEMS, "fedmed.methods")
NO_METHODS = ("adaptations", "algorithms")  # rooms of what is added to a method
SPEC = {"path", "args", "algorithm", "adaptation"}
T = TypeVar("T", Method, Algorithm)


def load_method(spec: Any, allowed: Collection[str] = ()) -> Method:
    """Make the method that a study names.

    Args:
        spec: ``path``, ``args``, and where the study has them ``algorithm``, its ``name``, short or a class path, and
            ``args``, and ``adaptation``, a list of such.
        allowed: class paths outside ``fedmed.systems`` that this machine's own settings list.

    Raises:
        JobError: the class may not be named by a job, which is found out before anything is imported, is not there or
            not a method, or does not take the arguments.
    """
    if not isinstance(spec, Mapping) or "path" not in spec or set(spec) - SPEC:
        raise JobError(f"'method' is {spec!r}; it needs 'path', a class path below {SYSTEMS}, and may have 'args'")
    spec = as_named_now(spec)
    method = _made(method_class(spec["path"], allowed), spec.get("args") or {}, f"method '{spec['path']}'")
    for chosen in spec.get("adaptation") or ():
        method = WithAlgorithm(method, load_algorithm(chosen, allowed, "adaptation"), chosen, "adaptation")
    if chosen := spec.get("algorithm"):
        method = WithAlgorithm(method, load_algorithm(chosen, allowed), chosen)
    return method


def as_named_now(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Move what studies and runs of FedMed 0.1 call an algorithm, and is an adaptation today, to its name of today."""
    chosen = spec.get("algorithm")
    if not isinstance(chosen, Mapping) or not is_adaptation(chosen):
        return dict(spec)
    _tell_of_move(name := chosen["name"])
    now, args = ADAPTATIONS_NOW[name]
    made = {"name": now, "args": {**args, **(chosen.get("args") or {})}}
    rest = {key: value for key, value in spec.items() if key != "algorithm"}
    return {**rest, "adaptation": [*rest.get("adaptation", ()), made]}


def method_spec(study: Mapping[str, Any]) -> dict[str, Any]:
    """Argument of :func:`load_method`, of the plain values of a study; ``{}`` where they name no method."""
    if not (spec := dict(study.get("method") or {})):
        return {}
    if adaptations := [_chosen(one) for one in study.get("adaptation") or ()]:
        spec["adaptation"] = adaptations
    if algorithm := study.get("algorithm"):
        spec["algorithm"] = _chosen(algorithm)
    return as_named_now(spec)


def _chosen(one: Any) -> dict[str, Any]:
    return {"name": one, "args": {}} if isinstance(one, str) else dict(one)


def study_of_run(config: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values of the study in the ``config`` of a ``run.json``, those that are not the default; none if empty."""
    if "study" in config or "controller" not in config:
        return dict(config.get("study") or {})
    said = {**(config.get("aggregator") or {}), **config["controller"]}  # as FedMed 0.1 wrote it
    spec, warm = dict(said.pop("method", None) or {}), {"rounds": said.pop("warm_start_rounds", 0)}
    warm |= {"sharing": said.pop("warm_start_sharing")} if "warm_start_sharing" in said else {}
    said |= {"name": said.pop("job", ""), "warm_start": warm if warm["rounds"] else None}
    said |= {"method": {key: spec[key] for key in ("path", "args") if key in spec}} if spec else {}
    said |= {key: spec[key] for key in ("algorithm", "adaptation") if key in spec}
    return {key: value for key, value in said.items() if value is not None and key not in ("exchange", "fresh")}


def is_adaptation(algorithm: Any) -> bool:
    """Tell whether what a study calls its algorithm, a name or ``name`` and ``args``, is an adaptation now."""
    name = algorithm.get("name") if isinstance(algorithm, Mapping) else algorithm
    return isinstance(name, str) and name in ADAPTATIONS_NOW


@cache
def _tell_of_move(name: str) -> None:
    log.warning("'algorithm: %s' is 'adaptation: %s' now, and is read so", name, ADAPTATIONS_NOW[name][0])


def load_algorithm(chosen: Any, allowed: Collection[str] = (), what: str = "algorithm") -> Algorithm:
    """Make the algorithm or adaptation that a study names by ``name``, its file's or a class path, and ``args``.

    Raises:
        JobError: as :func:`load_method`.
    """
    room = f"{SYSTEMS}.{what}s"
    known = files_below(room)
    if not isinstance(chosen, Mapping) or "name" not in chosen or set(chosen) - {"name", "args"}:
        raise JobError(f"'{what}' is {chosen!r}; it needs 'name', one of {', '.join(known)}, and may have 'args'")
    name = chosen["name"]
    if name not in known and "." not in str(name):
        near = get_close_matches(str(name), known, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known)}, and class paths"
        raise JobError(f"{what} '{name}' is unknown; {hint}")
    kind = classes_in(f"{room}.{name}", Algorithm)[0] if name in known else load_class(name, (room,), allowed)
    if not issubclass(kind, Algorithm) or kind is Algorithm:
        raise JobError(f"'{name}' is not an {what}: derive it from fedmed.methods.algorithm.Algorithm")
    return _made(kind, chosen.get("args") or {}, f"{what} '{name}'")


def algorithms() -> dict[str, type[Algorithm]]:
    """Short name, which is the module's -> class of every algorithm of FedMed."""
    return classes_below(f"{SYSTEMS}.algorithms", Algorithm)


def adaptations() -> dict[str, type[Algorithm]]:
    """Short name, which is the module's -> class of every adaptation of FedMed."""
    return classes_below(f"{SYSTEMS}.adaptations", Algorithm)


def _made(kind: type[T], args: Any, what: str) -> T:
    known = [field.name for field in fields(kind) if field.init]
    if not isinstance(args, Mapping):
        raise JobError(f"arguments of {what} are {args!r}; write 'name: value' lines")
    if unknown := sorted(str(name) for name in set(args) - set(known)):
        near = get_close_matches(unknown[0], known, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"it has: {', '.join(known) or 'none'}"
        raise JobError(f"{what} has no argument '{unknown[0]}'; {hint}")
    return kind(**args)


def method_class(path: Any, allowed: Collection[str] = ()) -> type[Method]:
    """Return a method's class; a JobError if a job may not name it, it is not there, or it is not a method."""
    kind = load_class(path, ROOMS, allowed)
    if not issubclass(kind, Method):
        raise JobError(f"'{path}' is not a method: derive it from fedmed.methods.method.Method")
    return kind


def method_of_run(facts: Mapping[str, Any], allowed: Collection[str] = ()) -> Method:
    """The method of a run, from its ``run.json``; the base, which declares nothing, where it is not recorded.

    Raises:
        JobError: as :func:`load_method`.
    """
    spec = method_spec(study_of_run(facts.get("config") or {}))
    return load_method(spec, allowed) if spec else Method()


def installed() -> dict[str, type[Method]]:
    """Short name -> class of every method of FedMed."""
    modules = [f"{SYSTEMS}.{name}.method" for name in files_below(SYSTEMS) if name not in NO_METHODS]
    methods: list[type[Method]] = [
        SupervisedFedAvg,
        *(kind for module in modules for kind in classes_in(module, Method)),
    ]
    return {kind.name: kind for kind in sorted(methods, key=lambda kind: kind.name)}


def find(name: str, allowed: Collection[str] = ()) -> str:
    """Return a method's class path from its short name or class path; a JobError if there is no such method."""
    known = installed()
    if name in known:
        return f"{known[name].__module__}.{known[name].__name__}"
    if "." not in name:
        said = f"method '{name}' is unknown" if name else "say which method"
        raise JobError(f"{said}; there are {', '.join(known)}, and class paths")
    method_class(name, allowed)
    return name
