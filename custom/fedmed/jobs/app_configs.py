"""The files of an NVFlare job folder: the plain arguments of controller, aggregator, persistor and executors."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedmed.bundles.load import Bundle
from fedmed.errors import JobError
from fedmed.jobs.plan import TRAINING_ROLES, Plan
from fedmed.jobs.rule_spec import for_flare

if TYPE_CHECKING:
    from fedmed.jobs.specification import JobSpec

LIMITS = "fedmed.flare.filters.SiteLimitsFilter"
SUPERVISED = "fedmed.flare.executors.SupervisedExecutor"
# What a site without labels does -> its executor, and the overlays of the bundle that it adds.
METHODS = {
    "consistency": ("fedmed.flare.executors.ConsistencyExecutor", ("consistency",)),
    "contrastive": ("fedmed.flare.executors.ContrastiveExecutor", ()),
}
CUSTOM_README = """\
This folder holds no code: the job's classes come from the installed package `fedmed`. NVFlare loads classes outside its
built-in list only when an app has a `custom/` folder with something in it. For sites that forbid custom code, leave the
folder out and list the classes in the site's `class_allow_list`.
"""


def meta(spec: "JobSpec", plan: Plan, roles: Sequence[str]) -> dict[str, Any]:
    """``meta.json``: who gets which app."""
    deploy = {"app_server": ["server"], **{f"app_{role}": plan.of_role(role) for role in roles}}
    needed = len(plan.of_role(*TRAINING_ROLES)) if spec.min_clients is None else spec.min_clients
    return {"name": spec.name, "resource_spec": {}, "min_clients": needed, "deploy_map": deploy}


def controller(spec: "JobSpec", plan: Plan) -> dict[str, Any]:
    """Arguments of the controller; what has its default is left out, but for what a reader looks for."""
    args = {"job": spec.name, "sites": plan.sites, "rounds": spec.rounds, "steps": spec.steps, "epochs": spec.epochs}
    args |= {"warm_start_rounds": spec.warm_start_rounds, "min_clients": spec.min_clients}
    args |= {"select": spec.select} if spec.select != "best" else {}
    args |= {"evaluate": False} if not spec.evaluate else {}
    args |= {"evaluate_last": True} if spec.evaluate_last else {}
    args |= {"exchange": dict(spec.exchange)} if spec.exchange else {}
    args |= {"release_from": spec.release_from} if spec.release_from else {}
    args |= {"patience": spec.patience, "min_rounds": spec.min_rounds} if spec.patience else {}
    args |= {"validate_every": spec.validate_every} if spec.validate_every != 1 else {}
    return args | ({"task_timeout": spec.task_timeout} if spec.task_timeout else {})


def rule(spec: "JobSpec") -> dict[str, Any]:
    """Arguments of the aggregator that say which rule it has, see :func:`fedmed.jobs.rule_spec.rule_spec`."""
    if not isinstance(spec.rule, str):
        return {"rule": for_flare(spec.rule)}
    given: dict[str, Any] = {"user_weights": dict(spec.user_weights)}
    given |= {"rule": spec.rule if spec.rule != "mean" else None, "trim": spec.trim, "clip_norm": spec.clip_norm}
    given |= {"weighting": spec.weighting if spec.weighting != "iterations" else None}
    given |= {"form": spec.form, "floor": spec.floor}
    return {k: v for k, v in given.items() if v is not None}


def aggregator(spec: "JobSpec") -> dict[str, Any]:
    """The aggregator component."""
    args: dict[str, Any] = {"sharing": spec.sharing, "buffers": spec.buffers}
    args |= {"normalise": spec.normalise} if isinstance(spec.rule, str) else {}
    args |= {"warm_start_sharing": spec.warm_start_sharing, **rule(spec)}
    kind = "IterationWeightedAggregator" if spec.sharing == "full" else "PartialSharingAggregator"
    kind = "SelfAdaptiveAggregator" if spec.weighting == "self_adaptive" else kind
    return {"id": "aggregator", "path": f"fedmed.flare.aggregators.{kind}", "args": args}


def model(spec: "JobSpec", plan: Plan) -> dict[str, Any]:
    """Arguments of the persistor: the labelled sites' model, or that of the others where there are none."""
    role = "supervised" if plan.of_role("supervised") else "unsupervised"
    overrides = dict(spec.overrides.get(role, {}))
    groups = Bundle(spec.bundle, spec.overlays, overrides).federation.get("sharing", {})
    known = sorted({group for network in groups.values() for group in network})
    for group in {spec.sharing, spec.warm_start_sharing or "full"} - {"full", *known}:
        raise JobError(f"sharing group '{group}' is not in bundle '{spec.bundle}'; it has: {', '.join(known)}")
    args = {"bundle": spec.bundle, "seed": spec.seed, "overlays": list(spec.overlays), "overrides": overrides}
    args |= {"checkpoint": spec.checkpoint}
    return args | ({"checkpoint_tensors": list(spec.checkpoint_tensors)} if spec.checkpoint_tensors else {})


def server(spec: "JobSpec", plan: Plan) -> dict[str, Any]:
    """``config_fed_server.json``."""
    persistor = {"id": "persistor", "path": "fedmed.flare.persistor.BundleModelPersistor", "args": model(spec, plan)}
    tensorboard = {
        "id": "tensorboard",
        "path": "nvflare.app_opt.tracking.tb.tb_receiver.TBAnalyticsReceiver",
        "args": {"events": ["fed.analytix_log_stats"]},
    }
    control = {"path": "fedmed.flare.controller.FederationController", "args": controller(spec, plan)}
    return {
        "format_version": 2,
        # Sites ask for work this often (seconds); the default of 2 would be most of a small round.
        "server": {"heart_beat_timeout": 600, "task_request_interval": 0.2},
        "task_data_filters": [],
        "task_result_filters": [],
        "components": [persistor, aggregator(spec), tensorboard],
        "workflows": [{"id": "controller", **control}],
    }


def client(spec: "JobSpec", role: str) -> dict[str, Any]:
    """``config_fed_client.json`` of a role."""
    overlays, overrides = [*spec.overlays, *spec.added(role)], dict(spec.overrides.get(role, {}))
    Bundle(spec.bundle, overlays, overrides)
    args = {"bundle": spec.bundle, "seed": spec.seed, "role": role, "overlays": overlays, "overrides": overrides}
    args |= {"sharing": spec.sharing, "buffers": spec.buffers}
    args |= {"warm_start_rounds": spec.warm_start_rounds, "warm_start_sharing": spec.warm_start_sharing}
    args |= {"optimizer_state": spec.optimizer_state} if spec.optimizer_state != "persist" else {}
    executor = {"path": METHODS[spec.method][0] if role == "unsupervised" else SUPERVISED, "args": args}
    tasks = client_tasks(spec, role)
    to_server = {
        "id": "to_server",
        "path": "nvflare.app_common.widgets.convert_to_fed_event.ConvertToFedEvent",
        "args": {"events_to_convert": ["analytix_log_stats"], "fed_event_prefix": "fed."},
    }
    return {
        "format_version": 2,
        "executors": [{"tasks": tasks, "executor": executor}],
        "task_data_filters": [],
        # The site's own limits; a provisioned site has the filter in its privacy.json too, where no job reaches it.
        "task_result_filters": [{"tasks": tasks, "filters": [{"path": LIMITS, "args": {}}]}],
        "components": [to_server],
    }


def client_tasks(spec: "JobSpec", role: str) -> list[str]:
    """What a site of this role may be asked for."""
    asked: Mapping[str, bool] = {
        "train": True,
        "metadata": spec.exchange is not None and role in TRAINING_ROLES,
        "validate": True,
        "release": bool(spec.release_from) and role == "supervised",
        "evaluate": True,
    }
    return [task for task, is_asked in asked.items() if is_asked]
