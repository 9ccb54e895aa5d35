"""A job and its controls on this machine: written and checked before any run begins."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from fedmed.checks.checked_site import CheckedSite
from fedmed.checks.site_check import Options, Silent, check_data
from fedmed.checks.site_findings import PROBLEM
from fedmed.data.datalist import list_entries
from fedmed.errors import FedMedError, JobError
from fedmed.jobs.control_study import control_job, kinds_for, trains_as_left_out
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import read_job, write_job
from fedmed.methods.control_kinds import FOLDERS, LEFT_OUT, OPTIONS, kind_of_control
from fedmed.methods.declarations import TRAINING_ROLES
from fedmed.recovery.checkpoint import RESULT
from fedmed.recovery.interrupted_workspace import records
from fedmed.recovery.model_store import ModelStore
from fedmed.reports.control_run import check_control, differences
from fedmed.reports.run import read_run
from fedmed.reports.words import count, join
from fedmed.settings.server import load_server
from fedmed.settings.site import load_site

SHOWN = 3  # of a site's problems: a class that the study does not name is one at every image of it


def write_controls(job: Path, scratch: Path, kind: str = LEFT_OUT) -> dict[str, Path]:
    """Write the controls of a job folder: kind -> its folder, in the order in which they are compared.

    Args:
        job, scratch: job folder, and folder in which each control gets a folder of its own.
        kind: the one that was asked for, see :func:`fedmed.jobs.control_study.kinds_for`.

    Raises:
        JobError: as :func:`write_control`.
    """
    kinds = kinds_for(read_job(job, load_server().allowed_classes), kind)
    return {kind: write_control(job, scratch / FOLDERS[kind], kind) for kind in kinds}


def is_only_scored(job: Path) -> bool:
    """Tell whether of a job folder the control that adapts has nothing to train: it takes the other one's rounds."""
    return trains_as_left_out(read_job(job, load_server().allowed_classes))


def write_control(job: Path, scratch: Path, kind: str = LEFT_OUT) -> Path:
    """Write a control of a job, and check it as :func:`fedmed.checks.control_check.check_study` does.

    Args:
        job, scratch: job folder, and folder in which the control's gets the name of the job's.
        kind: of the control, see :func:`fedmed.jobs.control_study.control_job`.

    Raises:
        JobError: the job has no control, see :func:`fedmed.jobs.control_study.control_job`, or no site with a test
            list, or none whose scores would leave it, or a site whose folder the control needs; or the control could
            not begin.
    """
    read = read_job(job, load_server().allowed_classes)
    cases = _test_cases(read)
    if not (scored := {site for site, (n, _) in cases.items() if n}):
        raise JobError(f"{read.name} has no control: no site has a list 'testing', which both runs would score")
    if not any(n >= least for n, least in cases.values()):
        raise JobError(f"{read.name} has no control: nobody would see a test score. {_withheld(cases)}")
    if (place := FOLDERS[kind]) in read.study.sites:
        raise JobError(f"{read.name} has no control: its folder would be that of the site '{place}'; rename the site")
    control = control_job(read, unscored=set(read.study.sites) - scored, kind=kind)
    try:
        folder = write_job(control, scratch / job.name)
        check_study(folder)
    except FedMedError as error:
        raise JobError(f"{read.name} has no control that could run: {error}") from error
    return folder


def unmeasured(job: Path) -> str:
    """Of which sites no control can say what they gain, in words; empty where there are none.

    Raises:
        JobError: as :func:`write_control`.
    """
    read = read_job(job, load_server().allowed_classes)
    cases = _test_cases(read)
    few = _withheld(cases)
    if not (missing := sorted(site for site in read.study.of_role("unsupervised") if not cases[site][0])):
        return few
    have, gain = ("has", "it gains") if len(missing) == 1 else ("have", "they gain")
    return (f"{few}. " if few else "") + (
        f"{join(missing)} {have} no list 'testing', so neither run is scored there, and what {gain} stays unknown. "
        "Labels of a few cases, used for this test alone, would tell: prepare the site with them and '--split 0 0 1'"
    )


def withheld_scores(job: Path) -> str:
    """Of a job folder, which sites keep their test scores to themselves, and the remedy; empty where none does."""
    read = read_job(job, load_server().allowed_classes)
    return _withheld(_test_cases(read)) if read.study.evaluate else ""


def _test_cases(read: Job) -> dict[str, tuple[int, int]]:
    """Site -> cases of its test list, and the fewest whose scores it lets go."""
    sites = [load_site(site) for site in read.study.sites]
    return {one.site: (len(list_entries(one.datalist, "testing")), one.privacy.min_cases) for one in sites}


def _withheld(cases: Mapping[str, tuple[int, int]]) -> str:
    """Say which sites keep their test scores to themselves; empty where none does."""
    few = {site: (n, least) for site, (n, least) in sorted(cases.items()) if 0 < n < least}
    if not few:
        return ""
    said = [
        f"{site} has {count(n, 'test case')} and lets scores of {least} or more leave"
        for site, (n, least) in few.items()
    ]
    lowest = min(2, *(n for n, _ in few.values()))
    tells = ", with which a score is that of one case" if lowest == 1 else ""
    written = f"or write 'privacy: {{min_cases: {lowest}}}' into its YAML{tells}"
    return f"{join(said)}; give it more test cases ('--split'), {written}"


def held_back(folder: Path, given: Path) -> str:
    """Name what the method works with and sites keep to themselves, in words; empty where nothing is kept.

    Args:
        folder, given: job folder, and the path of the job or study that a person named.
    """
    job = read_job(folder, load_server().allowed_classes)
    wanted = {*job.method.with_update(needed=True), *job.exchange.names}
    training = [load_site(site) for site, role in job.study.sites.items() if role in TRAINING_ROLES]
    kept = {site.site: names for site in training if (names := wanted.difference(site.privacy.allowed_extras))}
    if not kept:
        return ""
    do = "does" if len(kept) == 1 else "do"
    command = shlex.join(["fedmed", "site", "approve", str(load_site(min(kept)).source), "--job", str(given)])
    return (
        f"{join(sorted(kept))} {do} not let {join(sorted(set().union(*kept.values())))} leave, which "
        f"{job.method.title} asks for; it trains without. What that is, a site sees and allows by: {command}"
    )


def is_done(job: Path, workspace: Path) -> bool:
    """True where a workspace holds a finished run, and that is one of a job.

    Raises:
        JobError: a finished run of another job.
    """
    if not (records(workspace) / RESULT).is_file():
        return False
    run = read_run(workspace)
    if problems := differences(run.config, {"study": read_job(job, load_server().allowed_classes).recorded}):
        raise JobError(f"{workspace} holds a finished run of another job than {job}: {'; '.join(problems)}")
    return True


def is_made(control: Path, kind: str, workspace: Path) -> bool:
    """True where a folder holds the finished control of a kind of the run in a workspace.

    Raises:
        JobError: a finished run that is none.
    """
    if not (records(control) / RESULT).is_file():
        return False
    run = read_run(control)
    if (held := kind_of_control(run.job)) != kind:
        raise JobError(
            f"{control} holds another kind of control, of '{OPTIONS[held]}', in '{run.job}'; use '{OPTIONS[kind]}' "
            "with another --workspace"
        )
    check_control(read_run(workspace), run)
    return True


def check_study(folder: Path, given: Path | None = None) -> None:
    """Read a job folder's sites, with settings, datalists and classes, its bundle, and the file the server starts from.

    No image is opened: this takes seconds, and what it finds would otherwise end the run in its first round.

    Args:
        given: path of the job or study that a person named, for the message.

    Raises:
        JobError: the job cannot be read; or the server or a site could not begin: names all of them, and why.
    """
    job = read_job(folder, load_server().allowed_classes)
    faults = [f"server: {text}" for text in _at_server(job, folder)]
    for site in job.study.sites:
        faults += [f"{site}: {text}" for text in _at_site(site, folder)]
    if faults:
        lines = "".join(f"\n- {text}" for text in faults)
        raise JobError(f"{job.name} cannot start; fedmed site check SITE --job {given or folder} says more:{lines}")


def _at_server(job: Job, folder: Path) -> Iterator[str]:
    try:
        store = ModelStore(job, folder)
        if store.checkpoint or store.encoder:
            _ = store.initial
    except FedMedError as error:
        yield str(error)


def _at_site(site: str, folder: Path) -> Iterator[str]:
    try:
        checked = CheckedSite(load_site(site))
        check_data(checked, Options(job=str(folder), skip=("data",)), Silent())
    except FedMedError as error:
        yield str(error)
        return
    problems = [finding.text for finding in checked.findings if finding.level == PROBLEM]
    yield from problems[:SHOWN]
    if more := problems[SHOWN:]:
        yield f"and {len(more)} more"
