"""A stage of an arm: one job, federated, local or centralised, scored on its sites' lists."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, model_validator

from fedmed.bundles.bundle import Bundle
from fedmed.errors import JobError
from fedmed.jobs.control_study import nothing_learned
from fedmed.jobs.job import Job
from fedmed.methods.control_kinds import ADAPTED, LEFT_OUT, SILENT
from fedmed.methods.find_method import is_adaptation, load_method
from fedmed.methods.method import ALL_SITES
from fedmed.settings.site import SiteConfig
from fedmed.settings.yaml_model import YamlModel
from research.runner.experiment_data import ExperimentData, Positive, stage_job
from research.runner.federation_data import (
    DEFAULT_NETWORK,
    ArmRole,
    Budget,
    FederationData,
    RoleOverrides,
    TrainingRole,
)
from research.runner.job_step import JobStep, run_folder
from research.runner.score_table import without
from research.runner.site_lists import CENTRALISED, pooled_site, require_values, site_for
from research.runner.stages import Place, Stage, StageStep

log = logging.getLogger(__name__)
OLD_NAMES = {"alone": "local", "pool": "centralised", "in_turn": "leave_one_out"}
JOB_NAME = "arm"  # the same for all, so that equal arms of two tables are one run


class Scaled(YamlModel):
    """A setting of the bundle as a multiple of what it would be."""

    by: Annotated[int | float, Field(ge=0)]  # the factor
    of: str | None = None  # another setting that it is a multiple of, as the supervised sites have it; None = itself


class FederatedTraining(Stage):
    """Federated training with labels at some of its sites; all shown sites are tested. Sites are the table's.

    Attributes:
        train: site -> ``supervised`` or ``unsupervised``; the others are only tested.
        centralised: instead of ``train``: labelled sites whose cases are trained on together, as if that
            were allowed.
        local: instead of ``train``: labelled sites of which each trains a model of its own, tested at all; each is a
            row of its own too.
        at_home: of ``local``: each is tested at its own site and nowhere else, so that together they are one row.
        leave_one_out: each site of ``train`` or ``centralised`` is left out once, and is where that model is tested.
        control: what the sites without labels of ``train`` do instead, so that it is seen what their scans are worth:
            ``left_out`` = they do not train; ``silent`` = they take part in every round and learn nothing, as their
            role in the method says; in both no site adapts. ``adapted`` = as ``silent``, with the job's ``adaptation``.
        budget: in place of the data's.
        interval: factor of the budget's aggregation interval.
        warm_start: whether sites without labels join late.
        network: entry of the federation's ``networks``.
        overlays: further overlays of the bundle, of all sites.
        weights: site -> user weight.
        overrides: role -> overridable settings of the bundle; ``evaluate`` is that of sites that are only tested.
        scaled: role -> settings as multiples.
        job: further settings of the job, e.g. ``sharing``; with a budget of rounds also their ``epochs``. With
            ``evaluate: false`` nothing is scored, and sites that would only be tested have no part.
    """

    needs: ClassVar[type[ExperimentData]] = FederationData

    train: dict[str, TrainingRole] = {}
    centralised: list[str] = []
    local: list[str] = []
    at_home: bool = False
    leave_one_out: bool = False
    control: Literal["left_out", "silent", "adapted"] | None = None
    budget: Budget | None = None
    interval: Positive = 1
    warm_start: bool = True
    network: str = DEFAULT_NETWORK
    overlays: list[str] = []
    weights: dict[str, int | float] = {}
    overrides: RoleOverrides = {}
    scaled: dict[TrainingRole, dict[str, Scaled]] = {}
    job: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _old_names(cls, values: dict[str, Any]) -> dict[str, Any]:
        for old in sorted(values.keys() & OLD_NAMES.keys()):
            if OLD_NAMES[old] in values:
                raise ValueError(f"'{old}' and '{OLD_NAMES[old]}' are one setting; write '{OLD_NAMES[old]}' alone")
            log.warning("'%s' of a training is called '%s' now", old, OLD_NAMES[old])
        return {OLD_NAMES.get(key, key): value for key, value in values.items()}

    @model_validator(mode="after")
    def _trains(self) -> "FederatedTraining":
        if sum(map(bool, (self.train, self.centralised, self.local))) != 1:
            raise ValueError("give either 'train' (site: role), 'centralised' (sites) or 'local' (sites)")
        if self.leave_one_out and len(self.train or self.centralised) < 2:
            raise ValueError("'leave_one_out' needs two sites or more of 'train' or 'centralised'")
        if self.at_home and self.centralised:
            raise ValueError("'at_home' is for 'local' (sites); leave it out")
        without = [site for site, role in self.train.items() if role == "unsupervised"]
        if self.control and not without:
            raise ValueError(f"'control' is '{self.control}', but no site of the arm trains without labels")
        present = {*self.train.values(), *(["supervised"] if self.centralised or self.local else [])}
        if idle := set(self.scaled) - present:
            raise ValueError(f"'scaled' speaks of {idle.pop()} sites, but the arm has none; leave it out")
        return self

    def lacking(self, data: FederationData) -> str | None:
        for site in (*self.train, *self.centralised, *self.local):
            if site not in data.sites:
                return f"the site '{site}'"
        return None if self.network in data.networks else f"the network '{self.network}'"

    def steps(self, place: Place, before: StageStep | None) -> Sequence[StageStep]:
        if lacking := self.lacking(place.data):
            raise JobError(f"arm '{place.arm}' needs {lacking}, which the federation '{place.data.name}' does not have")
        return [step for turn in place.data.turns() for step in self.steps_of_turn(replace(place, data=turn))]

    def steps_of_turn(self, place: Place) -> list[JobStep]:
        """Steps to make with one assignment of sites."""
        names = place.data.sites
        if not (self.local or self.leave_one_out):
            return [self._step(place)]
        local = {names[site]: {"local": [], "train": {site: "supervised"}} for site in self.local}
        left = {
            without(names[site]): self._without(site) for site in (*self.train, *self.centralised) if self.leave_one_out
        }
        parts = {node: self.model_copy(update=new) for node, new in (local | left).items()}
        return [stage._step(place, "" if self.at_home else node) for node, stage in parts.items()]

    def _without(self, site: str) -> dict[str, Any]:
        train = {name: role for name, role in self.train.items() if name != site}
        return {
            "train": train,
            "centralised": [name for name in self.centralised if name != site],
            "leave_one_out": False,
        }

    def _step(self, place: Place, node: str = "") -> JobStep:
        job, sites = self.job_of(place), self._sites(place)
        trained = [(sites[site], role) for site, role in job.study.sites.items() if role != "evaluate"]
        require_values(job.method, trained)
        data: FederationData = place.data
        places = {site: name for name, site in data.sites.items()} if data.turn else {}
        beginning = job.study.warm_start.rounds
        if self.control and not beginning:  # a site that is left out would join then: up to there both are the same
            beginning = (self.budget or data.budget).schedule(self.interval, True)["warm_start"]["rounds"]
        path = run_folder(place, job, sites)
        return JobStep(job, sites, path, node, turn=data.turn, beginning=beginning, places=places)

    def _sites(self, place: Place) -> dict[str, SiteConfig]:
        """Settings of the job's sites; their lists are written."""
        data: FederationData = place.data

        def settings_of(site: str, role: str) -> SiteConfig:
            return site_for(data.settings_of(site), role, place.lists, data.labelled)

        sites = {site: settings_of(site, role) for site, role in self._site_roles(place).items() if site != CENTRALISED}
        if self.centralised:
            members = [settings_of(data.sites[site], "supervised") for site in self.centralised]
            sites[CENTRALISED] = pooled_site(members, ["training", "validation"], place.lists)
        return sites

    def job_of(self, place: Place) -> Job:
        """The job of one seed."""
        data: FederationData = place.data
        overlays, given = data.networks[self.network] + self.overlays, self._given(data)
        if (lender := given.get("release_from")) and lender != ALL_SITES:
            given["release_from"] = data.shown_sites([lender])[lender]
        late = self.warm_start and "unsupervised" in self._roles()
        schedule = (self.budget or data.budget).schedule(self.interval, late)
        schedule["warm_start"] |= given.pop("warm_start", {})
        schedule |= {key: given.pop(key) for key in {"epochs"} & set(schedule) & set(given)}
        left_out, roles = set(self.train) - set(self._training()), self._site_roles(place)
        job = stage_job(
            place.arm,
            given,
            name=JOB_NAME,
            sites=roles,
            overlays=overlays,
            overrides=self._overrides(data, given, overlays, tested="evaluate" in roles.values()),
            user_weights={
                data.shown_sites([site])[site]: w for site, w in self.weights.items() if site not in left_out
            },
            evaluate_last=given.get("evaluate", True),
            seed=place.seed,
            **schedule,
        )
        if self.control == ADAPTED and not job.study.adapts:
            raise JobError(f"arm '{place.arm}': 'control' is 'adapted', but its 'job' has no 'adaptation'")
        return job

    def _given(self, data: FederationData) -> dict[str, Any]:
        """Further settings of the job; without an adaptation where a control does not adapt."""
        given = {"bundle": data.bundle, **data.job, **self.job}
        if self.control not in (LEFT_OUT, SILENT):
            return given
        gone = {"adaptation", *(["algorithm"] if is_adaptation(given.get("algorithm")) else [])}
        return {key: value for key, value in given.items() if key not in gone}

    def _training(self) -> dict[str, TrainingRole]:
        """Sites that train, as the table names them -> role."""
        left_out = ["unsupervised"] if self.control == LEFT_OUT else []
        return {site: role for site, role in self.train.items() if role not in left_out}

    def _roles(self) -> list[TrainingRole]:
        """Roles that train, in the usual order."""
        present = {*self._training().values(), *(["supervised"] if self.centralised else [])}
        return [role for role in get_args(TrainingRole) if role in present]

    def _site_roles(self, place: Place) -> dict[str, str]:
        """Site of the federation -> role."""
        names = place.data.sites
        tested = [] if self.at_home or not self.job.get("evaluate", True) else list(place.test)
        roles = dict.fromkeys(place.data.shown_sites(tested).values(), "evaluate")
        trained = {names[site]: role for site, role in self._training().items()}
        return roles | ({CENTRALISED: "supervised"} if self.centralised else {}) | trained

    def _overrides(
        self, data: FederationData, job: dict[str, Any], overlays: list[str], tested: bool
    ) -> dict[str, dict[str, Any]]:
        """The factors are of what the federation has set, where it has, else of what the bundle has."""
        roles: list[ArmRole] = [*self._roles()]
        if tested:
            roles.append("evaluate")
        merged = {role: {**data.overrides.get(role, {}), **self.overrides.get(role, {})} for role in roles}
        overrides: dict[str, dict[str, Any]] = {r: kept for r, kept in merged.items() if kept or r != "evaluate"}
        present = {role: settings for role, settings in self.scaled.items() if role in overrides}
        for role, settings in present.items():
            config = Bundle(job["bundle"], overlays).parser()
            for name, scaled in settings.items():
                source, at = (scaled.of, "supervised") if scaled.of else (name, role)
                base = overrides.get(at, {}).get(source, config.get(source))
                if not isinstance(base, int | float):
                    where = f"{base!r} in the bundle '{job['bundle']}'"
                    raise JobError(f"'scaled' is a multiple of '{source}', which is {where}")
                overrides[role][name] = base * scaled.by
        if self.control in (SILENT, ADAPTED):
            declared, buffers = load_method(job.get("method")).roles(), job.get("buffers", "average")
            without_labels = declared.get("unsupervised")
            overrides["unsupervised"] |= nothing_learned(without_labels, buffers) if without_labels else {}
        return overrides
