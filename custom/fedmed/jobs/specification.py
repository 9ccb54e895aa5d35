"""Describe a job and write its NVFlare folder."""

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedmed.aggregation.rule import ExpectedSenders
from fedmed.bundles.load import Bundle
from fedmed.bundles.pretraining import pretraining
from fedmed.errors import JobError
from fedmed.jobs import app_configs as job_files
from fedmed.jobs.class_paths import load_rule, server_allows
from fedmed.jobs.plan import OPTIMIZER_STATES, ROLES, Plan
from fedmed.jobs.rule_spec import rule_spec


@dataclass
class JobSpec:
    """What a job says.

    Attributes:
        name: of the job and its folder.
        sites: site -> ``supervised``, ``unsupervised`` or ``evaluate``.
        rounds, steps: federated rounds; optimizer steps of a site in each, or
        epochs: its passes over its training images in each.
        bundle, overlays: what is trained, in which size.
        method: of sites without labels, ``consistency`` or ``contrastive``.
        methods: role -> overlays merged last, in place of the method's own.
        overrides: role -> plain values for overridable settings of the bundle.
        warm_start_rounds: first rounds that unsupervised sites sit out.
        warm_start_sharing: sharing group of those rounds; None = ``sharing``.
        sharing: ``full`` or one of the bundle's partial groups.
        buffers: BatchNorm statistics: ``average``, ``pooled`` or ``local``.
        normalise: divide by the sum of weighted steps (see ``site_weights``).
        user_weights: site -> weight, 1 unless given.
        rule: ``mean``, or ``median`` or ``trimmed_mean`` where not every site is trusted; or ``{path, args}`` of a
            server's rule, whose arguments then say what ``normalise`` to ``floor`` would (see ``load_rule``).
        trim: fraction that ``trimmed_mean`` drops at each end; None = 0.2.
        clip_norm: an update with a larger L2 norm is scaled down to it; None = no bound.
        weighting: what a site counts by: ``iterations``, ``samples``, ``uniform`` or ``self_adaptive``.
        form, floor: of ``self_adaptive`` (see ``Weighting``).
        min_clients: accepted updates that a round needs; None = all its participants.
        checkpoint: file in the server's ``$FEDMED_MODELS`` or the bundle's ``models/`` to start from.
        checkpoint_tensors: regular expressions of what is taken from it; none = everything.
        task_timeout: seconds that a site may take for one task; 0 = no limit.
        validate_every: labelled sites score the model they receive every so many rounds.
        release_from: supervised site whose private layers score the sites that have none; it must allow that itself.
        patience, min_rounds: when a run ends before its last round (see ``Plan``).
        select: ``best``, the model that labelled sites score best, or ``last``.
        evaluate: whether sites score the result on their test lists.
        exchange: which values sites get of the others before they train, from which round on (see ``Plan``).
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
    steps: int | None = None
    bundle: str = "covid_ct_segmentation"
    overlays: Sequence[str] = ()
    method: str = "consistency"
    methods: Mapping[str, Sequence[str]] = field(default_factory=dict)
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    warm_start_rounds: int = 0
    warm_start_sharing: str | None = None
    sharing: str = "full"
    buffers: str = "average"
    normalise: bool = True
    user_weights: Mapping[str, float] = field(default_factory=dict)
    rule: str | Mapping[str, Any] = "mean"
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
    epochs: float | None = None
    select: str = "best"
    evaluate: bool = True
    exchange: Mapping[str, Any] | None = None
    weighting: str = "iterations"
    form: str | None = None
    floor: float | None = None
    checkpoint_tensors: Sequence[str] = ()
    patience: int | None = None
    min_rounds: int = 0

    def files(self) -> dict[str, str]:
        """Relative path -> text of every file of the job folder, checked against the installed bundle.

        Raises:
            JobError, BundleError, OverrideError: the job could not run as described.
        """
        plan = Plan(
            sites=self.sites,
            rounds=self.rounds,
            steps=self.steps,
            epochs=self.epochs,
            warm_start_rounds=self.warm_start_rounds,
            min_clients=self.min_clients,
            validate_every=self.validate_every,
            release_from=self.release_from,
            evaluate_last=self.evaluate_last,
            select=self.select,
            evaluate=self.evaluate,
            exchange=self.exchange,
            patience=self.patience,
            min_rounds=self.min_rounds,
        )
        self._check(plan)
        roles = [role for role in ROLES if plan.of_role(role)]
        server = job_files.server(self, plan)
        files: dict[str, Any] = {
            "meta.json": job_files.meta(self, plan, roles),
            "app_server/config/config_fed_server.json": server,
        }
        for role in roles:
            files[f"app_{role}/config/config_fed_client.json"] = job_files.client(self, role)
        for app in ["server", *roles] if self.custom else []:
            files[f"app_{app}/custom/README.md"] = job_files.CUSTOM_README
        return {path: c if isinstance(c, str) else _json(c) for path, c in files.items()}

    def _check(self, plan: Plan) -> None:
        if self.release_from is not None and self.sharing == "full" and self.buffers != "local":
            raise JobError("'release_from' asks for private layers, but all are shared; choose a partial 'sharing'")
        if self.optimizer_state not in OPTIMIZER_STATES:
            raise JobError(f"'optimizer_state' is {self.optimizer_state!r}; use {' or '.join(OPTIMIZER_STATES)}")
        if self.method not in job_files.METHODS:
            raise JobError(f"'method' is {self.method!r}; use {' or '.join(job_files.METHODS)}")
        how = pretraining(Bundle(self.bundle)) if self.method == "contrastive" else None
        if how and how.overlay not in self.overlays:
            raise JobError(
                f"'method' is 'contrastive', but without the overlay '{how.overlay}' the bundle '{self.bundle}' trains "
                "with labels; add it after those of its size"
            )
        if self.checkpoint_tensors and not self.checkpoint:
            raise JobError("'checkpoint_tensors' says what is taken from a 'checkpoint'; name that too")
        rule = load_rule(rule_spec(job_files.aggregator(self)["args"]), server_allows())
        for round in (0, plan.rounds - 1):  # warm start and what follows; of the network nothing is known here
            rule.check(ExpectedSenders(plan.sites, {site: [f"of round {round}"] for site in plan.participants(round)}))

    def added(self, role: str) -> Sequence[str]:
        """Overlays that a role merges after the job's own."""
        method = job_files.METHODS[self.method][1] if role == "unsupervised" else ()
        return self.methods.get(role, method)


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
