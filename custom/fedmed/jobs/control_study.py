"""Controls of a study: the same study in which the sites without labels are left out, or learn nothing."""

from collections.abc import Collection
from typing import Any

from fedmed.bundles.bundle import Bundle
from fedmed.errors import JobError
from fedmed.jobs.job import Job
from fedmed.jobs.study import Study
from fedmed.methods.control_kinds import LEFT_OUT, SILENT, SUFFIXES
from fedmed.methods.kept_statistics import of_role
from fedmed.methods.method import Method

LENGTH = 200  # of a name, at most


def left_out(study: Study, unscored: Collection[str] = ()) -> Study:
    """Return a study in which the sites that train without labels are only scored. All else is equal.

    They see their images as they did before, at the same size and spacing. ``min_clients`` is lowered where fewer sites
    are left to train than it asks for.

    Args:
        study: the study.
        unscored: those of them that cannot be scored either, for they have no test list; they are taken out altogether.

    Raises:
        JobError: nobody trains without labels, nobody would be left to train, or the study continues another job.
    """
    labelled, without = _trained_by(study)
    gone = set(unscored) & set(without)
    needed = study.min_clients and min(study.min_clients, len(labelled))
    sites = {site: "evaluate" if site in without else role for site, role in study.sites.items() if site not in gone}
    weights = {site: weight for site, weight in study.user_weights.items() if site not in gone}
    made = {"sites": sites, "user_weights": weights, "min_clients": needed, "overrides": _as_seen(study)}
    return study.model_copy(update=made)


def silent(study: Study, method: Method) -> Study:
    """Return a study in which the sites that train without labels take part in every round and learn nothing.

    All else is equal, also what an algorithm does to their images, and statistics that they keep to themselves. So what
    a run has over this control was learned.

    Args:
        study: the study.
        method: its method, which says with what settings of the bundle nothing is learned.

    Raises:
        JobError: as :func:`left_out`.
    """
    _trained_by(study)
    still = dict(method.role("unsupervised").silent)
    if of_role(study.buffers, "unsupervised") == "local":  # what stays at home moves nobody's model, and is not learned
        still.pop("statistics_momentum", None)
    own = {**study.overrides.get("unsupervised", {}), **still}
    return study.model_copy(update={"overrides": {**study.overrides, "unsupervised": own}})


def _trained_by(study: Study) -> tuple[list[str], list[str]]:
    """The sites that train with labels, and without."""
    labelled, without = study.of_role("supervised"), study.of_role("unsupervised")
    if not without:
        raise JobError(f"{study.name} has no control: none of its sites trains without labels, so none can be left out")
    if not labelled:
        raise JobError(f"{study.name} has no control: no site has labels, so nobody would train without the others")
    if study.resume:
        raise JobError(
            f"{study.name} has no control: it continues the job '{study.resume.job}', in which those sites trained "
            "already; make the control of the job that the run began with"
        )
    return labelled, without


def _as_seen(study: Study) -> dict[Any, dict[str, Any]]:
    """The study's overrides, in which sites that are only scored see images as those without labels did."""
    before, scored = (study.overrides.get(role, {}) for role in ("unsupervised", "evaluate"))
    seen = {key: before[key] for key in Bundle(study.bundle).alike if key in before and key not in scored}
    return {**study.overrides, **({"evaluate": {**scored, **seen}} if seen else {})}


def control_job(job: Job, unscored: Collection[str] = (), kind: str = LEFT_OUT) -> Job:
    """The job of :func:`left_out` or :func:`silent`, under a name of its own, with the study's text where it is equal.

    Args:
        job: the job whose control it is.
        unscored: see :func:`left_out`.
        kind: ``left_out`` or ``silent``.

    Raises:
        JobError: as :func:`left_out`; nobody is tested; or the method or the server's rule cannot do without those
            sites, or the study says of one of them what only a site that trains can do.
    """
    study = silent(job.study, job.method) if kind == SILENT else left_out(job.study, unscored)
    if not study.evaluate:
        raise JobError(f"{job.name} has no control: its 'evaluate' is false, so there are no scores to compare")
    was, now = job.study.model_dump(), study.model_dump()
    changed: dict[str, Any] = {key: value for key, value in now.items() if value != was[key]}
    changed["name"] = job.name[: LENGTH - len(SUFFIXES[kind])] + SUFFIXES[kind]
    try:
        return job.changed(changed)
    except JobError as error:
        raise JobError(f"{job.name} has no control: it cannot run without its unlabelled sites: {error}") from error
