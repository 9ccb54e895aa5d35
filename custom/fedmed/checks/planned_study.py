"""The plan of a study or run: where the sites' fingerprints come from, and how the plan is written into a study."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmed.checks.training_plan import Plan, make_plan
from fedmed.errors import DataError, JobError, SiteConfigError
from fedmed.federation.site_fingerprint import site_fingerprint
from fedmed.files import write_atomically
from fedmed.jobs.given_path import demand
from fedmed.jobs.job import Job
from fedmed.jobs.named_job import named_job
from fedmed.jobs.study_settings import text_of
from fedmed.jobs.study_text import changed_text
from fedmed.kinds.find_kind import kind_of
from fedmed.messages.fingerprint import NAME, fault
from fedmed.methods.declarations import TRAINING_ROLES
from fedmed.recovery.checkpoint import FINGERPRINT
from fedmed.reports.run import server_folder
from fedmed.reports.run_files import read_record
from fedmed.settings.site import load_site

HOW = (
    f"write '{NAME}: true' into its study, let each site list '{NAME}' under 'privacy.allowed_extras', and run it again"
)


@dataclass(frozen=True)
class Planned:
    """A plan, and what it is of.

    Attributes:
        missing: site -> why there is no fingerprint of it.
    """

    job: Job
    plan: Plan
    missing: Mapping[str, str]


def plan_of(path: Path, memory: float | None = None, allowed: Collection[str] = ()) -> Planned:
    """Plan for a run by what its sites told, or for a study whose sites are all on this machine.

    Args:
        path: a run's folder, a study's YAML, or a job folder.
        memory: GiB that a step may take; by default what the sites have told.

    Raises:
        JobError: it is none of these, or there is no fingerprint yet; says what to do.
    """
    place = named_job(path)
    if demand(place, "run", "study", "job") == "run":
        job, sites, missing = _of_run(place, allowed)
    else:
        job = Job.parse(text_of(place, tuple(allowed)), str(path), allowed)
        sites, missing = _of_sites_here(job)
    trained = {site: values for site, values in sites.items() if job.study.sites.get(site) in TRAINING_ROLES}
    return Planned(job, make_plan(trained, job.bundle(job.model_role), memory), missing)


def _of_run(folder: Path, allowed: Collection[str]) -> tuple[Job, dict[str, Any], dict[str, str]]:
    records = server_folder(folder.absolute())
    if not (records / FINGERPRINT).is_file():
        raise JobError(f"the run at {folder} has no fingerprint of its sites; {HOW}, one round is enough")
    facts, fingerprints = read_record(records / "run.json"), read_record(records / FINGERPRINT)
    try:
        job = Job.of(facts["config"]["study"], allowed)
        sites = {site: values for site, values in fingerprints["sites"].items() if not fault(values)}
        return job, sites, dict(fingerprints["missing"])
    except (KeyError, TypeError, AttributeError) as error:
        raise JobError(f"the record of the run at {folder} is damaged ({error!r}); run its study again") from error


def _of_sites_here(job: Job) -> tuple[dict[str, Any], dict[str, str]]:
    """Fingerprints of a study's sites, each only if its own settings allow it, as in a simulation."""
    sites, missing = {}, {}
    for name, role in job.study.sites.items():
        try:
            site = load_site(name)
        except SiteConfigError as error:
            text = (
                f"there is no fingerprint yet: site '{name}' is not on this machine. Run the study with '{NAME}: true'"
            )
            raise JobError(f"{text} (one round is enough), then: fedmed study plan RUN") from error
        if NAME not in site.privacy.allowed_extras:
            missing[name] = f"'privacy.allowed_extras' in {site.source} does not list '{NAME}'"
            continue
        bundle = job.bundle(role, site.bundles)
        try:
            sites[name] = site_fingerprint(site, kind_of(bundle), bundle, role, job.study.seed)
        except DataError as error:
            missing[name] = str(error)
    return sites, missing


def written(planned: Planned, path: Path, allowed: Collection[str] = ()) -> str:
    """Write the plan into a study's ``overrides``, for all its roles; all else of the text stays. Return the text.

    Raises:
        JobError: it is not a study, or with these settings it would not be sound; it is as it was then.
    """
    demand(path, "study")
    text = text_of(path)
    study = Job.parse(text, str(path), allowed).study
    overrides: dict[str, dict[str, Any]] = {str(role): dict(values) for role, values in study.overrides.items()}
    for role in dict.fromkeys(study.sites.values()):
        overrides[role] = {**overrides.get(role, {}), **planned.plan.settings}
    text = changed_text(text, {"overrides": overrides}, str(path))
    job = Job.parse(text, str(path), allowed)
    for role in {*study.sites.values()}:
        job.bundle(role)
    write_atomically(path, lambda stream: stream.write(text.encode()))
    return text


def plan_lines(planned: Planned) -> list[str]:
    """The plan as lines: each setting with its reason, as a study's overrides."""
    plan = planned.plan
    lines = [f"plan of {planned.job.name}"]
    for name, value in plan.settings.items():
        lines += [f"  {name}: {json.dumps(value)}", f"    {plan.reasons[name]}"]
    lines += [f"without {site}: {reason}" for site, reason in sorted(planned.missing.items())]
    return lines
