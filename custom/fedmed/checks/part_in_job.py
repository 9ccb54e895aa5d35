"""Part of a site in a job: its role there, with which bundle and settings."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmed.bundles.bundle import Bundle
from fedmed.errors import BundleError, JobError
from fedmed.jobs.given_path import described, kind_of
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import read_job
from fedmed.jobs.study import Named, Study
from fedmed.messages.fingerprint import NAME as FINGERPRINT
from fedmed.methods.declarations import ROLES
from fedmed.methods.find_method import installed
from fedmed.methods.method import Method
from fedmed.methods.supervised_fedavg import SupervisedFedAvg


@dataclass(frozen=True)
class PartInJob:
    """A site's part in a job, or what it would do with a bundle, of which no folder is known.

    Attributes:
        name: of the job or bundle.
        role: ``supervised``, ``unsupervised`` or ``evaluate``.
        job: the job, or one that says nothing but the bundle, see :func:`job_of_bundle`.
        folder: of the job.
        part: the site in the job whose part this is; another one when only the role was known.
        by_lists: whether nothing but the site's own lists tells its role.
    """

    name: str
    role: str
    job: Job
    folder: Path | None = None
    part: str = ""
    by_lists: bool = False

    @property
    def study(self) -> Study | None:
        """Study of a job; None of a bundle alone, for which nobody says how long it trains."""
        return self.job.study if self.folder else None

    @property
    def chooses(self) -> bool:
        """True where labelled sites score models on their validation lists, by which one is chosen."""
        return self.study is None or self.study.select != "last"

    @property
    def scores(self) -> bool:
        """True where the result is scored on the testing lists."""
        return self.study is None or self.study.evaluate

    @property
    def exchanged(self) -> tuple[str, ...]:
        """Values that the site sends of its images before it trains (a ``metadata`` task)."""
        return self.job.exchange.names if self.folder and self.job.exchange.sends(self.role) else ()

    @property
    def extras(self) -> list[str]:
        """All that the job asks for beside updates and scores; a site sends what its own settings allow."""
        if self.folder is None:
            return []
        method = [] if self.role == "evaluate" else [*self.exchanged, *self.job.method.with_update(needed=True)]
        return sorted([*method, *([FINGERPRINT] if self.job.study.fingerprint else [])])

    def request(self) -> dict[str, Any]:
        """Plain values, of which :func:`requested_job` makes the job again, in another process."""
        study = self.job.study
        said = {"study": self.job.text} if self.job.text else {"bundle": study.bundle, "overlays": study.overlays}
        return {"role": self.role, **said}


def requested_job(request: Mapping[str, Any], allowed: Collection[str] = ()) -> Job:
    """The job of :meth:`PartInJob.request`; JobError: its study has mistakes."""
    if "study" in request:
        return Job.parse(request["study"], allowed=allowed)
    return job_of_bundle(request["bundle"], request["role"], request["overlays"])


def job_of_bundle(bundle: str, role: str, overlays: Sequence[str] = (), **overrides: Any) -> Job:
    """A job of one site that says nothing but the bundle, its overlays and settings; nobody could run it."""
    method = Named(path=f"{SupervisedFedAvg.__module__}.{SupervisedFedAvg.__name__}")
    said: dict[str, Any] = {"name": bundle, "bundle": bundle, "overlays": list(overlays), "method": method}
    said |= {"overrides": {role: overrides}, "sites": {"site": role}, "rounds": 1, "steps": 1}
    return Job(Study(**said), Method(), "")


def find_work(
    job: str,
    site: str,
    role: str | None = None,
    overlays: Sequence[str] = (),
    lists: Mapping[str, int] | None = None,
    bundles: Path | None = None,
    allowed: Collection[str] = (),
) -> PartInJob:
    """Return what ``site`` does in a job, or would do with a bundle.

    Args:
        job, overlays: a job folder, or the YAML of a study; or the name of an installed bundle, and overlays of it.
        site: the site's name in the job.
        role: take this role's part, when the job does not name the site.
        lists: list -> number of entries; tells the role when neither ``role`` nor the job does.
        bundles, allowed: the site's own folder of bundles, and class paths that its settings let jobs name.

    Raises:
        JobError: no such job or bundle, a damaged job, or one without this site and role.
    """
    if role is not None and role not in ROLES:
        raise JobError(f"--role {role} is unknown; use {', '.join(ROLES)}")
    folder = Path(job).expanduser()
    if folder.is_file() or (folder / "meta.json").is_file():
        if overlays:
            raise JobError(f"--overlay is for a bundle; the job {folder} names its overlays itself")
        return _of_job(folder, site, role, lists or {}, allowed)
    if folder.is_dir() or "/" in job:
        if folder.exists() and kind_of(folder) != "other folder":
            raise JobError(f"a study or a job folder is needed here: {described(folder)}")
        raise JobError(f"{folder} is not a job folder (meta.json is missing); give the folder that the study lead sent")
    try:
        bundle = Bundle(job, site_bundles=bundles)
    except BundleError as error:
        raise JobError(f"--job {job}: there is no such job folder, and {error}") from error
    role = role or _role_of(lists or {})
    return PartInJob(job, role, job_of_bundle(job, role, [*overlays, *_usual_overlays(bundle, role)]))


def _role_of(lists: Mapping[str, int]) -> str:
    return "supervised" if lists.get("training") else "unsupervised" if lists.get("unlabeled") else "evaluate"


def _usual_overlays(bundle: Bundle, role: str) -> list[str]:
    """Overlays of a role in the installed methods that the bundle has all of; the fewest, where methods differ."""
    methods = [kind() for kind in installed().values()]
    known = [list(method.role(role).overlays) for method in methods if role in method.roles()]
    fitting = [overlays for overlays in known if all(_has_overlay(bundle, name) for name in overlays)]
    return min(fitting, key=len, default=[])


def _has_overlay(bundle: Bundle, name: str) -> bool:
    try:
        return bundle.config_file(name).is_file()
    except BundleError:
        return False


def _of_job(folder: Path, site: str, role: str | None, lists: Mapping[str, int], allowed: Collection[str]) -> PartInJob:
    job = read_job(folder, allowed)
    named = job.study.sites
    by_lists = site not in named and role is None and any(lists.values())
    role = _role_of(lists) if by_lists else role
    match = site if site in named else next((name for name in named if role and named[name] == role), None)
    if match is None:
        lacks = f"site '{site}'{f' and no role {role!r}' if role else ''}"
        known = ", ".join(f"{name} ({its})" for name, its in named.items())
        hint = "say which part it takes with --role, or ask the study lead to name it"
        raise JobError(f"the job {folder} has no {lacks}: it has {known}; {hint}")
    if role and named[match] != role:
        raise JobError(
            f"the job {folder} gives site '{site}' the role '{named[match]}', not '{role}'; leave --role out"
        )
    return PartInJob(job.name, named[match], job, folder, match, by_lists)
