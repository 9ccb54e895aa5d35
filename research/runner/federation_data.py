"""The federation that a table is run on: which sites stand for the table's, and how long training may take."""

import math
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from fedmed.errors import JobError
from fedmed.settings.site import SiteConfig, load_site
from fedmed.settings.yaml_model import YamlModel
from research.runner.experiment_data import Count, ExperimentData, Positive
from research.runner.recorded_sites import RecordedSites
from research.runner.site_lists import CENTRALISED

DEFAULT_NETWORK = "default"
TrainingRole = Literal["supervised", "unsupervised"]
ArmRole = TrainingRole | Literal["evaluate"]  # the latter: of sites that are only tested
RoleOverrides = dict[ArmRole, dict[str, Any]]


class IterationBudget(YamlModel):
    """Iterations of every site in one run; the same for all arms of a table."""

    steps: Count  # of a supervised site in all
    warm_start: Annotated[int, Field(ge=0)]  # the first of them, in which sites without labels do not take part yet
    interval: Count  # between two aggregations
    validate_every: Count = Field(alias="validate")  # between two validations of the labelled sites

    @model_validator(mode="after")
    def _fits(self) -> "IterationBudget":
        if max(self.warm_start, self.interval) > self.steps:
            raise ValueError(f"warm_start and interval must not be longer than the {self.steps} steps of a run")
        return self

    def schedule(self, factor: float, late: bool) -> dict[str, Any]:
        """A job's rounds, the last of which makes the run a little longer where the interval does not divide it.

        Args:
            factor: of the interval.
            late: whether sites without labels join after the warm start.
        """
        steps = max(1, round(self.interval * factor))
        return {
            "steps": steps,
            "rounds": math.ceil(self.steps / steps),
            "warm_start": {"rounds": math.ceil(self.warm_start / steps) if late else 0},
            "validate_every": max(1, round(self.validate_every / steps)),
        }


class RoundsBudget(YamlModel):
    """Rounds of every run, in which a site passes over its own cases: the larger it is, the longer it trains."""

    rounds: Count
    epochs: Positive = 1  # of a site in a round
    warm_start: Annotated[int, Field(ge=0)] = 0  # first rounds, in which sites without labels do not take part yet
    validate_every: Count = Field(alias="validate", default=1)  # rounds between two validations of the labelled sites

    def schedule(self, factor: float, late: bool) -> dict[str, Any]:
        """A job's rounds; ``factor`` times as many epochs in each make fewer rounds."""
        return {
            "epochs": self.epochs * factor,
            "rounds": math.ceil(self.rounds / factor),
            "warm_start": {"rounds": math.ceil(self.warm_start / factor) if late else 0},
            "validate_every": max(1, round(self.validate_every / factor)),
        }


Budget = Annotated[  # by a key, so that what is wrong is told once
    Annotated[IterationBudget, Tag("in steps")] | Annotated[RoundsBudget, Tag("in rounds")],
    Discriminator(lambda value: "in rounds" if isinstance(value, dict) and "rounds" in value else "in steps"),
]


class FederationData(ExperimentData):
    """Data of a table of federated training."""

    sites: dict[str, str]  # the table's name of a site (``site_1``) -> the site's name in the federation
    networks: dict[str, list[str]]  # ``default`` and others -> overlays of the bundle
    budget: Budget
    labelled: str | None = None  # datalist beside a site's own with masks for all of its cases; None = its own
    overrides: RoleOverrides = {}  # of the bundle's settings, for every run that does not say otherwise
    recorded: RecordedSites | None = None  # what the sites are made of; None: they have settings of their own

    def settings_of(self, site: str) -> SiteConfig:
        """Settings of a site of the federation, which is made first where that is still to be done."""
        return self.recorded.settings_of(site) if self.recorded else load_site(site)

    @property
    def turn(self) -> str:
        """Name of this one of several assignments of sites; empty where there is one."""
        return ""

    def turns(self) -> "list[FederationData]":
        """Data of each assignment of sites to the table's names: a run of every arm for each."""
        return [self]

    @model_validator(mode="after")
    def _consistent(self) -> "FederationData":
        named = list(self.sites.values())
        # Two of the table's sites in one would leave it only one of its two roles.
        if len(set(named)) < len(named) or CENTRALISED in named:
            raise ValueError(f"'sites' names {named}; they must differ, and not be '{CENTRALISED}'")
        if DEFAULT_NETWORK not in self.networks:
            raise ValueError(f"'networks' needs an entry '{DEFAULT_NETWORK}' (a list of overlays)")
        return self

    def shown_sites(self, wanted: list[str]) -> dict[str, str]:
        if missing := [site for site in wanted if site not in self.sites]:
            raise JobError(
                f"the table tests the site '{missing[0]}', which the federation '{self.name}' does not name; it has: "
                f"{', '.join(self.sites)}"
            )
        return {site: self.sites[site] for site in wanted}
