"""Controls of a study: the same study in which the sites without labels are left out, or learn nothing."""

from collections.abc import Collection
from typing import Any

from fedmed.aggregation.sharing import FULL
from fedmed.bundles.bundle import Bundle
from fedmed.errors import JobError
from fedmed.jobs.job import Job
from fedmed.jobs.study import Study, WarmStart
from fedmed.methods.control_kinds import ADAPTED, LEFT_OUT, SILENT, SUFFIXES
from fedmed.methods.declarations import Role
from fedmed.methods.method import Buffers, Method, of_role

LENGTH = 200  # of a name, at most


def left_out(study: Study, unscored: Collection[str] = ()) -> Study:
    """Return a study in which the sites that train without labels are only scored, and no site adapts.

    All else is equal. They see their images at the same size and spacing as before. ``min_clients`` is lowered where
    fewer sites are left to train than it asks for.

    Args:
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
    return study.unadapted().model_copy(update=made)


def silent(study: Study, method: Method) -> Study:
    """Return a study in which the sites that train without labels take part in every round and learn nothing.

    Nor does any site adapt. All else is equal, also statistics that they keep to themselves.

    Raises:
        JobError: as :func:`left_out`.
    """
    return adapted(study, method).unadapted()


def adapted(study: Study, method: Method) -> Study:
    """Return a study as that of :func:`silent` in which sites adapt: what a run has over it was learned.

    Raises:
        JobError: as :func:`left_out`.
    """
    _trained_by(study)
    values = study.overrides.get("unsupervised", {}) | nothing_learned(method.role("unsupervised"), study.buffers)
    return study.model_copy(update={"overrides": {**study.overrides, "unsupervised": values}})


def nothing_learned(without: Role, buffers: Buffers) -> dict[str, Any]:
    """Settings of the bundle with which sites without labels take part and learn nothing.

    Statistics of normalisation that stay at home move nobody's model and need no labels, so a site goes on with them.
    """
    still = dict(without.silent)
    if of_role(buffers, "unsupervised") == "local":
        still.pop("statistics_momentum", None)
    return still


def trains_as_left_out(job: Job) -> bool:
    """Tell whether a job's control that adapts trains as the one that leaves sites out, and is only scored otherwise.

    So it is where the silent sites' updates change nothing, they keep nothing of their own training either, and adapt
    by what others tell once. Then labelled sites train alone in all rounds, each of which is that of the other control.
    """
    study, role = job.study, "unsupervised"
    exchanged_once = len(study.adaptation) == 1 and job.exchange.once
    keeps = of_role(study.buffers, role) == "local" or job.group(role) != FULL
    counted = study.select == "mean" or study.warm_start.sharing is not None  # rounds after the warm start
    return exchanged_once and not (keeps or counted or job.method.moved_by_silent(job.rule))


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


def kinds_for(job: Job, kind: str = LEFT_OUT) -> tuple[str, ...]:
    """The controls that are made where one of a kind is asked for, in their order.

    Beside the one that leaves sites out, the one in which they adapt, where the study has an adaptation: it tells apart
    what adaptation and what learning brings.
    """
    return (kind, ADAPTED) if kind == LEFT_OUT and job.study.adapts else (kind,)


def control_job(job: Job, unscored: Collection[str] = (), kind: str = LEFT_OUT) -> Job:
    """The job of a control, under a name of its own, with the study's text where it is equal.

    Args:
        kind: one of :mod:`fedmed.methods.control_kinds`.

    Raises:
        JobError: as :func:`left_out`; nobody is tested or, in the control that adapts, nobody adapts; or the method or
            the server's rule cannot do without those sites, or the study says of one of them what only a site that
            trains can do.
    """
    made = {SILENT: silent, ADAPTED: adapted}
    study = made[kind](job.study, job.method) if kind in made else left_out(job.study, unscored)
    if kind == ADAPTED and trains_as_left_out(job):
        study = study.model_copy(update={"warm_start": WarmStart(rounds=study.rounds)})
    # The run itself has trained the models of single sites, and has the sites' fingerprints.
    study = study.model_copy(update={"gain": False, "fingerprint": False})
    if kind == ADAPTED and not study.adapts:
        raise JobError(f"{job.name} has no control that adapts: its study has no 'adaptation'")
    if not study.evaluate:
        raise JobError(f"{job.name} has no control: its 'evaluate' is false, so there are no scores to compare")
    was, now = job.study.model_dump(), study.model_dump()
    changed: dict[str, Any] = {key: value for key, value in now.items() if value != was[key]}
    changed["name"] = job.name[: LENGTH - len(SUFFIXES[kind])] + SUFFIXES[kind]
    try:
        return job.changed(changed)
    except JobError as error:
        raise JobError(f"{job.name} has no control: it cannot run without its unlabelled sites: {error}") from error
