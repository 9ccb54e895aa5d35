"""A link of a chain: one federated job, scored on its sites' lists; also one site alone, and a pool of several."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args

import pandas as pd
from pydantic import Field, model_validator

from fedmed.bundles.load import Bundle
from fedmed.errors import JobError
from fedmed.experiments.chain import ChainLink, ChainStep, Place
from fedmed.experiments.experiment_data import ExperimentData
from fedmed.experiments.federation_data import (
    DEFAULT_NETWORK,
    POOL,
    FederationData,
    IterationBudget,
    Overrides,
    TrainingRole,
)
from fedmed.experiments.job_of_link import LinkJob, link_job
from fedmed.experiments.job_run import JobRun, complete, finished, named_run
from fedmed.experiments.job_scores import check_complete, read_job_scores
from fedmed.experiments.site_lists import SiteCases, pooled_site, site_for
from fedmed.settings.site import SiteConfig, load_site
from fedmed.settings.yaml_model import YamlModel

JOB_NAME = "arm"  # the same for all, so that equal arms of two tables are one run


class Scaled(YamlModel):
    """A setting of the bundle as a multiple of what it would be.

    Attributes:
        by: the factor.
        of: another setting that it is a multiple of, as the supervised sites have it; None = itself.
    """

    by: Annotated[int | float, Field(ge=0)]
    of: str | None = None


class FederatedTraining(ChainLink):
    """Federated training with labels at some of its sites; all shown sites are tested. Sites are the table's.

    Attributes:
        train: site -> ``supervised`` or ``unsupervised``; the others are only tested.
        pool: instead of ``train``: labelled sites whose cases are trained on together, as if sharing were allowed.
        interval: factor of the budget's aggregation interval.
        warm_start: whether sites without labels join late.
        network: entry of the federation's ``networks``.
        weights: site -> user weight.
        overrides: role -> overridable settings of the bundle.
        scaled: role -> settings as multiples.
        job: further settings of the job, e.g. ``sharing``.
    """

    needs: ClassVar[type[ExperimentData]] = FederationData

    train: dict[str, TrainingRole] = {}
    pool: list[str] = []
    interval: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1
    warm_start: bool = True
    network: str = DEFAULT_NETWORK
    weights: dict[str, int | float] = {}
    overrides: Overrides = {}
    scaled: dict[TrainingRole, dict[str, Scaled]] = {}
    job: dict[str, Any] = {}

    @model_validator(mode="after")
    def _trains(self) -> "FederatedTraining":
        if bool(self.train) == bool(self.pool):
            raise ValueError("give either 'train' (site: role) or 'pool' (sites)")
        if idle := set(self.scaled) - set(self._roles()):
            raise ValueError(f"'scaled' speaks of {idle.pop()} sites, but the arm has none; leave it out")
        return self

    def lacking(self, data: FederationData) -> str | None:
        for site in (*self.train, *self.pool):
            if site not in data.sites:
                return f"the site '{site}'"
        return None if self.network in data.networks else f"the network '{self.network}'"

    def steps(self, place: Place, before: ChainStep | None) -> list[ChainStep]:
        if lacking := self.lacking(place.data):
            raise JobError(f"arm '{place.arm}' needs {lacking}, which the federation '{place.data.name}' does not have")
        return [JobStep(self.run(place))]

    def run(self, place: Place) -> JobRun:
        """The job with the lists of its sites, which are written."""
        data, lists, roles = place.data, place.runs / "lists", self._site_roles(place)
        cases = {site: SiteCases(load_site(site), data.labelled) for site in roles if site != POOL}
        sites = {site: site_for(cases[site], role, lists) for site, role in roles.items() if site != POOL}
        if self.pool:
            sites[POOL] = pooled_site([cases[data.sites[site]] for site in self.pool], lists)
        return named_run(self.job_of(place), sites, place.runs, data.name)

    def job_of(self, place: Place) -> LinkJob:
        """The job of one seed."""
        data: FederationData = place.data
        overlays, given = data.networks[self.network], {"bundle": data.bundle, **data.job, **self.job}
        if lender := given.get("release_from"):
            given["release_from"] = data.shown_sites([lender])[lender]
        schedule = self._schedule(data.budget)
        schedule["warm_start"] |= given.pop("warm_start", {})
        return link_job(
            place.arm,
            given,
            name=JOB_NAME,
            sites=self._site_roles(place),
            overlays=overlays,
            overrides=self._overrides(data, given["bundle"], overlays),
            user_weights={data.shown_sites([site])[site]: weight for site, weight in self.weights.items()},
            evaluate_last=True,
            seed=place.seed,
            **schedule,
        )

    def _roles(self) -> list[str]:
        """Roles that train, in the usual order."""
        present = {*self.train.values(), *(["supervised"] if self.pool else [])}
        return [role for role in get_args(TrainingRole) if role in present]

    def _site_roles(self, place: Place) -> dict[str, str]:
        """Site of the federation -> role."""
        names = place.data.sites
        roles = dict.fromkeys(place.data.shown_sites(list(place.test)).values(), "evaluate")
        return roles | ({POOL: "supervised"} if self.pool else {}) | {names[s]: role for s, role in self.train.items()}

    def _schedule(self, budget: IterationBudget) -> dict[str, Any]:
        """Rounds of the budget. When the interval does not divide it, the last round makes the run a little longer."""
        steps = max(1, round(budget.interval * self.interval))
        late = self.warm_start and "unsupervised" in self.train.values()
        return {
            "steps": steps,
            "rounds": math.ceil(budget.steps / steps),
            "warm_start": {"rounds": math.ceil(budget.warm_start / steps) if late else 0},
            "validate_every": max(1, round(budget.validate_every / steps)),
        }

    def _overrides(self, data: FederationData, bundle: str, overlays: list[str]) -> dict[str, dict[str, Any]]:
        """The factors are of what the federation has set, where it has, else of what the bundle has."""
        roles = self._roles()
        overrides = {role: {**data.overrides.get(role, {}), **self.overrides.get(role, {})} for role in roles}
        for role, settings in self.scaled.items():
            config = Bundle(bundle, overlays).parser()
            for name, scaled in settings.items():
                source, own = (scaled.of, "supervised") if scaled.of else (name, role)
                base = overrides.get(own, {}).get(source, config.get(source))
                if not isinstance(base, int | float):
                    raise JobError(f"'scaled' is a multiple of '{source}', which is {base!r} in the bundle '{bundle}'")
                overrides[role][name] = base * scaled.by
        return overrides


@dataclass(frozen=True)
class JobStep(ChainStep):
    """A job and the scores of its sites."""

    run: JobRun

    @property
    def path(self) -> Path:
        return self.run.folder

    @property
    def sites(self) -> Sequence[SiteConfig]:
        return list(self.run.sites.values())

    def missing(self) -> bool:
        return not finished(self.run)

    def make(self) -> None:
        complete(self.run, lambda _: check_complete(self.run))

    def scores(self) -> pd.DataFrame | None:
        return read_job_scores(self.run)
