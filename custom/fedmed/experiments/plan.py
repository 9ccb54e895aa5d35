"""From an arm of a table to a job that runs."""

import math
from typing import Any

from fedmed.bundles.load import Bundle
from fedmed.errors import JobError
from fedmed.experiments.federation import POOL, Budget, Federation
from fedmed.experiments.table import Arm, Table
from fedmed.jobs.job import Job
from fedmed.jobs.plan import TRAINING_ROLES
from fedmed.jobs.study import Study

JOB_NAME = "arm"  # the same for all, so that equal arms of two tables are one run
# What an arm says in its own words; the rest of a job's arguments is free for its 'job'.
OWN = {"name", "sites", "overlays", "overrides", "user_weights", "evaluate_last", "seed"}
OWN |= {"steps", "rounds", "validate_every"}
METHOD = {"path": "fedmed.methods.consistency.Consistency"}


def job_of(arm: Arm, table: Table, federation: Federation, seed: int) -> Job:
    """The job of one arm and seed.

    Raises:
        JobError: the federation lacks a site or network that the arm names.
    """
    overlays = list(_known(federation.networks, arm.network, "network", arm, federation))
    settings = {"bundle": "covid_ct_segmentation", **federation.job, **arm.job}
    known = set(Study.model_fields) - OWN
    if unknown := sorted(set(settings) - known):
        raise JobError(f"arm '{arm.name}': 'job' may not set '{unknown[0]}'; it may set: {', '.join(sorted(known))}")
    if lender := settings.get("release_from"):
        settings["release_from"] = site_name(lender, arm, federation)
    schedule = _schedule(arm, federation.budget)
    schedule["warm_start"] = {**schedule["warm_start"], **settings.pop("warm_start", {})}
    return Job.of(
        {
            "name": JOB_NAME,
            "method": METHOD,
            "sites": roles_of(arm, table, federation),
            "overlays": overlays,
            "overrides": _overrides(arm, federation, settings["bundle"], overlays),
            "user_weights": {site_name(site, arm, federation): w for site, w in arm.weights.items()},
            "evaluate_last": True,
            "seed": seed,
            **schedule,
            **settings,
        }
    )


def roles_of(arm: Arm, table: Table, federation: Federation) -> dict[str, str]:
    """Site of the federation -> role."""
    roles = {site_name(site, arm, federation): "evaluate" for site in table.test}
    roles |= {POOL: "supervised"} if arm.pool else {}
    return roles | {site_name(site, arm, federation): role for site, role in arm.train.items()}


def site_name(site: str, arm: Arm, federation: Federation) -> str:
    """What the federation calls a site of the table."""
    return _known(federation.sites, site, "site", arm, federation)


def lacking(arm: Arm, federation: Federation) -> str | None:
    """What an arm needs and the federation has not, in words; None = nothing."""
    for site in (*arm.train, *arm.pool):
        if site not in federation.sites:
            return f"the site '{site}'"
    return None if arm.network in federation.networks else f"the network '{arm.network}'"


def _known(mapping: Any, key: str, what: str, arm: Arm, federation: Federation) -> Any:
    if key not in mapping:
        raise JobError(
            f"arm '{arm.name}' needs the {what} '{key}', which the federation '{federation.name}' does not name; it "
            f"has: {', '.join(mapping)}"
        )
    return mapping[key]


def _schedule(arm: Arm, budget: Budget) -> dict[str, Any]:
    """Rounds of the budget. When the interval does not divide it, the last round makes the run a little longer."""
    steps = max(1, round(budget.interval * arm.interval))
    late = arm.warm_start and "unsupervised" in arm.train.values()
    return {
        "steps": steps,
        "rounds": math.ceil(budget.steps / steps),
        "warm_start": {"rounds": math.ceil(budget.warm_start / steps) if late else 0},
        "validate_every": max(1, round(budget.validate / steps)),
    }


def _overrides(arm: Arm, federation: Federation, bundle: str, overlays: list[str]) -> dict[str, dict[str, Any]]:
    roles = [role for role in TRAINING_ROLES if role in arm.train.values() or (arm.pool and role == "supervised")]
    overrides = {role: {**federation.overrides.get(role, {}), **arm.overrides.get(role, {})} for role in roles}
    if arm.batch == 1 and arm.learning_rate is None:
        return overrides  # most arms: the bundle need not be read
    config = Bundle(bundle, overlays).parser()
    if arm.batch != 1:
        for role in roles:
            overrides[role]["batch_size"] = overrides[role].get("batch_size", config["batch_size"]) * arm.batch
    if arm.learning_rate is not None:
        rate = overrides.get("supervised", {}).get("learning_rate", config["learning_rate"])
        overrides["unsupervised"]["unsupervised_learning_rate"] = rate * arm.learning_rate
    return overrides
