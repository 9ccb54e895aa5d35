"""Write an NVFlare job folder: the plain arguments of controller, aggregator, persistor and executors."""

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedmed.aggregation.iteration_weighted import IterationWeighted
from fedmed.aggregation.weighting import check_user_weights
from fedmed.bundles.load import Bundle
from fedmed.errors import JobError
from fedmed.federation.plan import OPTIMIZER_STATES, TRAINING_ROLES, Plan

EXECUTORS = {
    "supervised": "fedmed.flare.executors.SupervisedExecutor",
    "unsupervised": "fedmed.flare.executors.ConsistencyExecutor",
    "evaluate": "fedmed.flare.executors.SupervisedExecutor",
}
LIMITS = "fedmed.flare.filters.SiteLimitsFilter"
CUSTOM_README = """\
This folder holds no code: the job's classes come from the installed package `fedmed`. NVFlare loads classes outside its
built-in list only when an app has a `custom/` folder with something in it. For sites that forbid custom code, leave the
folder out and list the classes in the site's `class_allow_list`.
"""


@dataclass
class JobSpec:
    """What a job says.

    Attributes:
        name: of the job and its folder.
        sites: site -> ``supervised``, ``unsupervised`` or ``evaluate``.
        rounds, steps: federated rounds; optimizer steps of a site in each.
        bundle, overlays: what is trained, in which size.
        methods: role -> overlays of its method, merged last.
        overrides: role -> plain values for overridable settings of the bundle.
        warm_start_rounds: first rounds that unsupervised sites sit out.
        warm_start_sharing: sharing group of those rounds; None = ``sharing``.
        sharing: ``full`` or one of the bundle's partial groups.
        buffers: BatchNorm statistics: ``average``, ``pooled`` or ``local``.
        normalise: divide by the sum of weighted steps (see ``iteration_weights``).
        user_weights: site -> weight, 1 unless given.
        rule: ``mean``, or ``median`` or ``trimmed_mean`` where not every site is trusted.
        trim: fraction that ``trimmed_mean`` drops at each end; None = 0.2.
        clip_norm: an update with a larger L2 norm is scaled down to it; None = no bound.
        min_clients: accepted updates that a round needs; None = all its participants.
        checkpoint: file in the server's ``models/`` of the bundle to start from.
        task_timeout: seconds that a site may take for one task; 0 = no limit.
        validate_every: labelled sites score the model they receive every so many rounds.
        release_from: supervised site whose private layers score the sites that have none; it must allow that itself.
        evaluate_last: also score the last aggregate on the test lists.
        optimizer_state: ``persist`` a site's optimizer across rounds, or ``reset`` it in each.
        seed: of weights, sampling and augmentation.
        custom: whether the apps have a folder ``custom/``. Without it NVFlare's simulator loads no class of ours, and
            sites and server must list them in ``class_allow_list``, as FedMed's startup kits do. With it a site runs
            the job only if it lets jobs bring code (NVFlare's right ``byoc``).
    """

    name: str
    sites: Mapping[str, str]
    rounds: int
    steps: int
    bundle: str = "covid_ct_segmentation"
    overlays: Sequence[str] = ()
    methods: Mapping[str, Sequence[str]] = field(default_factory=lambda: {"unsupervised": ["consistency"]})
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    warm_start_rounds: int = 0
    warm_start_sharing: str | None = None
    sharing: str = "full"
    buffers: str = "average"
    normalise: bool = True
    user_weights: Mapping[str, float] = field(default_factory=dict)
    rule: str = "mean"
    trim: float | None = None
    clip_norm: float | None = None
    min_clients: int | None = None
    checkpoint: str | None = None
    task_timeout: int = 0
    validate_every: int = 1
    release_from: str | None = None
    evaluate_last: bool = False
    optimizer_state: str = "persist"
    seed: int = 0
    custom: bool = True

    def files(self) -> dict[str, str]:
        """Relative path -> text of every file of the job folder, checked against the installed bundle.

        Raises:
            JobError, BundleError, OverrideError: the job could not run as described.
        """
        plan = Plan(
            sites=self.sites,
            rounds=self.rounds,
            steps=self.steps,
            warm_start_rounds=self.warm_start_rounds,
            min_clients=self.min_clients,
            validate_every=self.validate_every,
            release_from=self.release_from,
        )
        if self.release_from is not None and self.sharing == "full" and self.buffers != "local":
            raise JobError("'release_from' asks for private layers, but all are shared; choose a partial 'sharing'")
        if self.optimizer_state not in OPTIMIZER_STATES:
            raise JobError(f"'optimizer_state' is {self.optimizer_state!r}; use {' or '.join(OPTIMIZER_STATES)}")
        check_user_weights(self.user_weights, plan.sites)
        self._check_rule(plan)
        roles = [role for role in EXECUTORS if plan.of_role(role)]
        files = {"meta.json": self._meta(plan, roles), "app_server/config/config_fed_server.json": self._server(plan)}
        for role in roles:
            files[f"app_{role}/config/config_fed_client.json"] = self._client(role)
        for app in ["server", *roles] if self.custom else []:
            files[f"app_{app}/custom/README.md"] = CUSTOM_README
        return {path: c if isinstance(c, str) else _json(c) for path, c in files.items()}

    def _meta(self, plan: Plan, roles: Sequence[str]) -> dict[str, Any]:
        deploy = {"app_server": ["server"], **{f"app_{role}": plan.of_role(role) for role in roles}}
        needed = len(plan.of_role(*TRAINING_ROLES)) if self.min_clients is None else self.min_clients
        return {"name": self.name, "resource_spec": {}, "min_clients": needed, "deploy_map": deploy}

    def _model(self) -> dict[str, Any]:
        return {"bundle": self.bundle, "seed": self.seed}

    def _weighting(self) -> dict[str, Any]:
        robust = {"rule": self.rule if self.rule != "mean" else None, "trim": self.trim, "clip_norm": self.clip_norm}
        return {"user_weights": dict(self.user_weights), **{k: v for k, v in robust.items() if v is not None}}

    def _check_rule(self, plan: Plan) -> None:
        rule = IterationWeighted(buffers=self.buffers, normalise=self.normalise, **self._weighting())
        trained = {round: plan.participants(round) for round in (0, plan.rounds - 1)}  # warm start and what follows
        counted = {round: [s for s in sites if self.user_weights.get(s, 1)] for round, sites in trained.items()}
        rule.check_senders({f"round {round}": len(sites) for round, sites in counted.items()})

    def _server(self, plan: Plan) -> dict[str, Any]:
        overrides = dict(self.overrides.get("supervised", {}))
        groups = Bundle(self.bundle, self.overlays, overrides).federation.get("sharing", {})
        known = sorted({group for network in groups.values() for group in network})
        for group in {self.sharing, self.warm_start_sharing or "full"} - {"full", *known}:
            raise JobError(f"sharing group '{group}' is not in bundle '{self.bundle}'; it has: {', '.join(known)}")
        controller = {"job": self.name, "sites": plan.sites, "rounds": self.rounds, "steps": self.steps}
        controller |= {"warm_start_rounds": self.warm_start_rounds, "min_clients": self.min_clients}
        controller |= {"evaluate_last": True} if self.evaluate_last else {}
        controller |= {"release_from": self.release_from} if self.release_from else {}
        controller |= {"validate_every": self.validate_every} if self.validate_every != 1 else {}
        controller |= {"task_timeout": self.task_timeout} if self.task_timeout else {}
        aggregator = {"sharing": self.sharing, "buffers": self.buffers, "normalise": self.normalise}
        aggregator |= {"warm_start_sharing": self.warm_start_sharing, **self._weighting()}
        persistor = {**self._model(), "overlays": list(self.overlays), "overrides": overrides}
        persistor["checkpoint"] = self.checkpoint
        kind = "IterationWeightedAggregator" if self.sharing == "full" else "PartialSharingAggregator"
        return {
            "format_version": 2,
            # Sites ask for work this often (seconds); the default of 2 would be most of a small round.
            "server": {"heart_beat_timeout": 600, "task_request_interval": 0.2},
            "task_data_filters": [],
            "task_result_filters": [],
            "components": [
                {"id": "persistor", "path": "fedmed.flare.persistor.BundleModelPersistor", "args": persistor},
                {"id": "aggregator", "path": f"fedmed.flare.aggregators.{kind}", "args": aggregator},
                {
                    "id": "tensorboard",
                    "path": "nvflare.app_opt.tracking.tb.tb_receiver.TBAnalyticsReceiver",
                    "args": {"events": ["fed.analytix_log_stats"]},
                },
            ],
            "workflows": [
                {"id": "controller", "path": "fedmed.flare.controller.FederationController", "args": controller}
            ],
        }

    def _client(self, role: str) -> dict[str, Any]:
        overlays = [*self.overlays, *self.methods.get(role, ())]
        overrides = dict(self.overrides.get(role, {}))
        Bundle(self.bundle, overlays, overrides)
        args = {**self._model(), "role": role, "overlays": overlays, "overrides": overrides}
        args |= {"sharing": self.sharing, "buffers": self.buffers}
        args |= {"warm_start_rounds": self.warm_start_rounds, "warm_start_sharing": self.warm_start_sharing}
        args |= {"optimizer_state": self.optimizer_state} if self.optimizer_state != "persist" else {}
        executor = {"path": EXECUTORS[role], "args": args}
        asked = ["release"] if self.release_from and role == "supervised" else []
        tasks = ["train", "validate", *asked, "evaluate"]
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


def _json(content: Mapping[str, Any]) -> str:
    """Readable JSON; an argument that is None is left out, which is what None means."""
    plain = json.dumps(content)
    return json.dumps(json.loads(plain, object_hook=_without_none), indent=2) + "\n"


def _without_none(mapping: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if value is not None}


def write_job(spec: JobSpec, folder: Path, replace: bool = False) -> Path:
    """Write a job folder, whole or not at all.

    Args:
        spec: the job.
        folder: where to; must not exist unless ``replace``.
        replace: replace an existing job folder.

    Raises:
        JobError: the folder exists, or is not a job folder and may not be replaced.
    """
    folder = Path(folder)
    if folder.exists() and not (replace and (folder / "meta.json").is_file()):
        raise JobError(f"{folder} exists{' and is no job folder' if replace else ''}; choose another or use --replace")
    files = spec.files()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".job-") as temporary:
        for path, text in files.items():
            target = Path(temporary) / "job" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        (Path(temporary) / "job").rename(folder)
    return folder
