"""Between our messages and FLARE's ``FLModel``: numpy arrays on the wire, plain values in the meta."""

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from torch import Tensor

from fedmed.bundles.network import plain_metrics
from fedmed.errors import JobError, UpdateRefused
from fedmed.flare.values import MALFORMED, extras_to_numpy, extras_to_tensors, few, whole
from fedmed.messages.answers import Answer, Extras, Release, Update
from fedmed.messages.task import Task

log = logging.getLogger("fedmed.flare")
KEY = "fedmed"


def to_numpy(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Tensors as arrays that share their memory; dtype and bits stay."""
    return {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}


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
        meta={KEY: {**task.config(), "extras": extras_to_numpy(task.extras)}},
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


def update_to_model(update: Update) -> FLModel:
    """A site's contribution."""
    facts = {"round": update.round, "n_steps": update.n_steps, "n_samples": update.n_samples}
    return FLModel(
        params_type=ParamsType.DIFF,
        params=to_numpy(update.tensors),
        current_round=update.round,
        meta={KEY: {**facts, "metrics": plain_metrics(update.metrics), "extras": extras_to_numpy(update.extras)}},
    )


def model_to_update(model: FLModel) -> Update:
    """Inverse of :func:`update_to_model`, at the server; the site's name is the one that FLARE authenticated.

    Raises:
        UpdateRefused: something other than a FedMed update arrived.
    """
    site = model.meta.get("client_name", "?")
    facts = model.meta.get(KEY)
    if not isinstance(facts, Mapping) or model.params_type != ParamsType.DIFF:
        raise UpdateRefused(site, "not a FedMed update (differences with round, n_steps and n_samples)")
    try:
        numbers = {key: whole(key, facts[key]) for key in ("round", "n_steps", "n_samples")}
        tensors, metrics = to_tensors(model.params), plain_metrics(few(facts.get("metrics", {})))
        extras = extras_to_tensors(few(facts.get("extras", {})))
    except MALFORMED as error:
        raise UpdateRefused(site, f"malformed update: {error}") from error
    return Update(site=site, tensors=tensors, metrics=metrics, extras=extras, **numbers)


def extras_to_model(extras: Extras) -> FLModel:
    """A site's answer to a ``metadata`` task."""
    facts = {"round": extras.round, "extras": extras_to_numpy(extras.values)}
    return FLModel(params_type=ParamsType.FULL, params={}, meta={KEY: facts})


def model_to_extras(model: FLModel) -> Extras:
    """Inverse of :func:`extras_to_model`, at the server; what is malformed counts as values of no round."""
    site, facts = model.meta.get("client_name", "?"), model.meta.get(KEY)
    try:
        return Extras(site, whole("round", facts["round"]), extras_to_tensors(dict(facts["extras"])))
    except MALFORMED as error:
        log.warning("site '%s': malformed answer to the task 'metadata': %s", site, error)
        return Extras(site, -1)


def release_to_model(release: Release) -> FLModel:
    """A site's answer to a ``release`` task."""
    facts = {"round": release.round, "allowed": release.allowed}
    return FLModel(params_type=ParamsType.FULL, params=to_numpy(release.tensors), meta={KEY: facts})


def model_to_release(model: FLModel) -> Release:
    """Inverse of :func:`release_to_model`, at the server.

    Malformed facts count as a refusal. Malformed tensors count as none: which are missing is then found out and said.
    """
    site, facts = model.meta.get("client_name", "?"), model.meta.get(KEY)
    if not isinstance(facts, Mapping) or facts.get("allowed") is not True:
        return Release(site, None)
    try:
        tensors = to_tensors(model.params)
    except (AttributeError, TypeError, ValueError):
        tensors = {}
    return Release(site, facts.get("round"), True, tensors)


def metrics_to_model(metrics: Mapping[str, Any]) -> FLModel:
    """A site's answer to a ``validate`` or ``evaluate`` task."""
    plain = plain_metrics(metrics)
    return FLModel(metrics=plain, meta={KEY: {"metrics": plain}})


def answer_to_model(answer: Answer) -> FLModel:
    """Any answer of a site."""
    if isinstance(answer, Update):
        return update_to_model(answer)
    if isinstance(answer, Extras):
        return extras_to_model(answer)
    return release_to_model(answer) if isinstance(answer, Release) else metrics_to_model(answer)


def model_to_answer(task: str, model: FLModel, site: str) -> Answer:
    """Inverse of :func:`answer_to_model`, still at the site.

    Args:
        task: what was asked for, which says what kind of answer it must be.
        model: the answer.
        site: who answers.

    Raises:
        UpdateRefused: it is no answer of FedMed's to this task.
    """
    facts = (model.meta or {}).get(KEY)
    if not isinstance(facts, Mapping) or task not in ("train", "metadata", "release", "validate", "evaluate"):
        raise UpdateRefused(site, f"it is no answer of FedMed's to a task '{task}'")
    model.meta["client_name"] = site
    if task == "train":
        return model_to_update(model)
    if task == "metadata":
        extras = model_to_extras(model)
        if extras.round < 0:
            raise UpdateRefused(site, "its values for other sites are malformed")
        return extras
    return model_to_release(model) if task == "release" else plain_metrics(facts.get("metrics") or {})
