"""Between our messages and FLARE's ``FLModel``: numpy arrays on the wire, plain values in the meta."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from torch import Tensor

from fedmed.bundles.bundle_parser import plain_metrics
from fedmed.errors import LONGEST, JobError, UpdateRefused
from fedmed.messages.answers import Answer, Extras, Release, Update, map_tensors
from fedmed.messages.task import Task
from fedmed.plain_text import in_terminal

log = logging.getLogger("fedmed.flare")
KEY = "fedmed"
DEEPEST = 8  # levels of values within values; what is sent has three
MOST_VALUES, LONGEST_NAME = 1000, 200  # of an update; the server writes them down
MALFORMED = (AttributeError, KeyError, OverflowError, TypeError, ValueError)  # what reading nonsense may raise


def to_numpy(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values with tensors as arrays in C order, also in lists and mappings; dtype, bits and mostly the memory stay."""
    return map_tensors(values, lambda tensor: tensor.detach().cpu().contiguous().numpy())


def to_tensors(arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    """Arrays as tensors; a scalar array keeps its shape ()."""
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def task_to_model(task: Task) -> FLModel:
    """A task for one site."""
    return FLModel(
        params_type=ParamsType.FULL,
        params=to_numpy(task.tensors),
        current_round=max(task.round, 0),  # FLARE knows no round -1, the starting model; the task itself does
        total_rounds=task.total_rounds,
        meta={KEY: {**task.config(), "extras": to_numpy(task.extras)}},
    )


def model_to_task(model: FLModel) -> Task:
    """Inverse of :func:`task_to_model`, at the site."""
    config = (model.meta or {}).get(KEY)
    if not config or model.params is None:
        raise JobError("the task carries no FedMed settings; was it sent by FedMed's controller?")
    try:
        return Task.from_config(config, to_tensors(model.params), extras_to_tensors(config.get("extras") or {}))
    except MALFORMED as error:
        raise JobError(f"the task is malformed ({error}); do server and site use the same FedMed?") from error


def answer_to_model(answer: Answer) -> FLModel:
    """Any answer of a site."""
    if isinstance(answer, Update):
        facts: dict[str, Any] = {"round": answer.round, "n_steps": answer.n_steps, "n_samples": answer.n_samples}
        facts |= {"metrics": plain_metrics(answer.metrics), "extras": to_numpy(answer.extras)}
        params = to_numpy(answer.tensors)
        return FLModel(params_type=ParamsType.DIFF, params=params, current_round=answer.round, meta={KEY: facts})
    if isinstance(answer, Extras):
        facts = {"round": answer.round, "extras": to_numpy(answer.values)}
        return FLModel(params_type=ParamsType.FULL, params={}, meta={KEY: facts})
    if isinstance(answer, Release):
        facts = {"round": answer.round, "allowed": answer.allowed, **({"keep": True} if answer.keep else {})}
        return FLModel(params_type=ParamsType.FULL, params=to_numpy(answer.tensors), meta={KEY: facts})
    scores = plain_metrics(answer)
    return FLModel(metrics=scores, meta={KEY: {"metrics": scores}})


def model_to_update(model: FLModel) -> Update:
    """A site's contribution, at the server; the site's name is the one that FLARE authenticated.

    Raises:
        UpdateRefused: something other than a FedMed update arrived.
    """
    site = model.meta.get("client_name", "?")
    facts = model.meta.get(KEY)
    if not isinstance(facts, Mapping) or model.params_type != ParamsType.DIFF:
        raise UpdateRefused(site, "not a FedMed update (differences with round, n_steps and n_samples)")
    try:
        numbers = {key: whole_number(key, facts[key]) for key in ("round", "n_steps", "n_samples")}
        tensors, metrics = to_tensors(model.params), named_numbers(facts.get("metrics", {}))
        extras = extras_to_tensors(limited(facts.get("extras", {})))
    except MALFORMED as error:
        raise UpdateRefused(site, f"malformed update: {error}") from error
    return Update(site=site, tensors=tensors, metrics=metrics, extras=extras, **numbers)


def model_to_extras(model: FLModel) -> Extras:
    """A site's answer to a ``metadata`` or ``fingerprint`` task, at the server.

    What is malformed counts as values of no round.
    """
    site, facts = model.meta.get("client_name", "?"), model.meta.get(KEY)
    try:
        return Extras(site, whole_number("round", facts["round"]), extras_to_tensors(dict(facts["extras"])))
    except MALFORMED as error:
        said = in_terminal(error, LONGEST)
        log.warning("site '%s': malformed values: %s", site, said)
        return Extras(site, -1)


def model_to_release(model: FLModel) -> Release:
    """A site's answer to a ``release`` task, at the server.

    Malformed facts count as a refusal, malformed tensors as missing ones, which are named later.
    """
    site, facts = model.meta.get("client_name", "?"), model.meta.get(KEY)
    if not isinstance(facts, Mapping) or facts.get("allowed") is not True:
        return Release(site, None)
    try:
        tensors = to_tensors(model.params)
    except (AttributeError, TypeError, ValueError):
        tensors = {}
    return Release(site, facts.get("round"), True, tensors, facts.get("keep") is True)


def model_to_metrics(model: FLModel) -> dict[str, Any]:
    """A site's answer to a ``validate`` or ``evaluate`` task, at the server; what is malformed counts as none."""
    site, facts = model.meta.get("client_name", "?"), model.meta.get(KEY)
    try:
        return named_numbers(facts.get("metrics") or {}) if isinstance(facts, Mapping) else {}
    except MALFORMED as error:
        log.warning("site '%s': malformed scores: %s", site, error)
        return {}


def named_numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Numbers with a name, also those that the server will refuse by name because they are not finite.

    Raises:
        ValueError: there are too many, or a name is too long.
    """
    return {n: v for n, v in limited(metrics).items() if isinstance(n, str) and type(v) in (int, float)}


# Task -> what becomes of the answer to it.
CONVERT: dict[str, Callable[[FLModel], Answer]] = {
    "train": model_to_update,
    "metadata": model_to_extras,
    "release": model_to_release,
    "validate": model_to_metrics,
    "evaluate": model_to_metrics,
    "fingerprint": model_to_extras,
}


def model_to_answer(task: str, model: FLModel, site: str) -> Answer:
    """Inverse of :func:`answer_to_model`, still at the site.

    Raises:
        UpdateRefused: it is not an answer of FedMed's to this task.
    """
    facts = (model.meta or {}).get(KEY)
    if not isinstance(facts, Mapping) or task not in CONVERT:
        raise UpdateRefused(site, f"it is not an answer of FedMed's to a task '{task}'")
    model.meta["client_name"] = site
    answer = CONVERT[task](model)
    if isinstance(answer, Extras) and answer.round < 0:
        raise UpdateRefused(site, "its values for other sites are malformed")
    return answer


def extras_to_tensors(value: Any, level: int = 0) -> Any:
    """Inverse of :func:`to_numpy`, of values beside a model.

    Raises:
        TypeError: an array of something else than numbers, a key that is not a name, another kind of object than plain
            values, arrays, mappings and lists, or too many levels of these.
    """
    if level > DEEPEST:
        raise TypeError(f"values within values within values, {DEEPEST} levels and more")
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.array(value))
    if isinstance(value, Mapping):
        if strange := [key for key in value if not isinstance(key, str)]:
            raise TypeError(f"a {type(strange[0]).__name__} is not the name of a value")
        return {key: extras_to_tensors(item, level + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [extras_to_tensors(item, level + 1) for item in value]
    if value is not None and type(value) not in (bool, int, float, str):
        raise TypeError(f"a {type(value).__name__} is not a value that may travel")
    return value


def limited(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return named values of an update.

    Raises:
        ValueError: there are too many, or a name is too long.
    """
    if len(values) > MOST_VALUES or any(len(name) > LONGEST_NAME for name in values if isinstance(name, str)):
        raise ValueError(f"more than {MOST_VALUES} values, or a name of more than {LONGEST_NAME} characters")
    return dict(values)


def whole_number(name: str, value: Any) -> int:
    """Return a whole number as it is.

    Raises:
        TypeError: it is a text, or a number with a fraction.
    """
    if type(value) is not int:
        raise TypeError(f"'{name}' is not a whole number")
    return value
