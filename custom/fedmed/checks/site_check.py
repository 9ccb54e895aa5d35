"""Everything that a hospital checks before it joins, in one call."""

import ipaddress
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from fedmed.checks.bundle_demands import check_exchange, check_share, read_demands
from fedmed.checks.checked_site import CheckedSite
from fedmed.checks.entries import LISTS, USED, Entry, check_lists, count_lists, read_entries
from fedmed.checks.machine import Connection, check_disk, check_machine, state_bytes, tls_connect
from fedmed.checks.measurement import measure
from fedmed.checks.part_in_job import PartInJob, find_work
from fedmed.checks.site_findings import AREAS, PROBLEM, SiteFinding, data_finding, link_finding
from fedmed.checks.startup_kit import SITE_FILE, Kit, check_kit, client_app, read_kit
from fedmed.data.datalist import UNLABELED
from fedmed.data.image_size import PICTURES
from fedmed.data.prepare.pool import Track
from fedmed.errors import JobError, SiteConfigError
from fedmed.kinds.find_kind import kind_by_look, made
from fedmed.reports.words import count
from fedmed.settings.site import SiteConfig, load_file, load_named

PARTS = (*AREAS, "preflight", "scoring")  # what --skip may name
RUN_TIMEOUT = 120.0  # seconds; it takes about 6
Row = tuple[str, str, str]  # of NVFlare's report: check, problem, remedy
SITE_MODULE = "fed.app.client.client_train"  # end of the module's name that a kit's startup/sub_start.sh runs
PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
EXCEPTIONS = ("no_grpc_proxy", "no_proxy")


class Silent:
    """Display of a check while it works: nothing."""

    def track(self) -> Track:
        """Return what shows the progress of the images."""
        return lambda cases, total: cases

    def doing(self, text: str) -> AbstractContextManager[Any]:
        """Show ``text`` as long as a longer step takes."""
        return nullcontext()


@dataclass
class Options:
    """Options of a check; see ``fedmed site check``."""

    job: str | None = None
    role: str | None = None
    overlays: Sequence[str] = ()
    kit: Path | None = None
    workers: int = 1
    steps: int = 3
    timeout: float = 1800
    skip: Collection[str] = ()


def find_site(name: str | None, kit: Kit | None) -> SiteConfig:
    """Read the settings of the site to check.

    Args:
        name: a site's YAML, or its name, looked up as in a federation; None = the one in the kit.
        kit: the site's startup kit, if there is one.

    Raises:
        SiteConfigError: neither is given, or the YAML is missing or wrong.
    """
    if name is not None:
        return load_named(name, *((kit.folder, kit.site) if kit else ()))
    if kit is None:
        raise SiteConfigError("name the site's YAML, its name in the federation, or its startup kit (--kit)")
    return load_file(kit.folder / SITE_FILE, kit.site)


def check_site(name: str | None, options: Options, show: Silent | None = None) -> CheckedSite:
    """Check a site: data, training, disk, device, connection.

    Raises:
        FedMedError: the site's settings, its datalist, the job or the kit cannot be read at all.
    """
    skip, show = set(options.skip), show or Silent()
    if unknown := sorted(skip - set(PARTS)):
        raise JobError(f"--skip {unknown[0]} is unknown; use {', '.join(PARTS)}")
    kit = read_kit(options.kit) if options.kit else None
    checked = CheckedSite(find_site(name, kit))
    check_data(checked, options, show)
    skip |= set() if checked.work else {"training"}
    skip |= set() if kit else {"connection"}
    if checked.work and "training" not in skip:
        _check_training(checked, checked.work, options, show)
    if "disk" not in skip:
        _check_disk(checked, kit)
    if "device" not in skip:
        checked.machine, findings = check_machine(checked.site)
        checked.findings += findings
    if kit and "connection" not in skip:
        _check_connection(checked, kit, options, show)
    checked.left_out = sorted(skip, key=PARTS.index)
    checked.findings.sort(key=lambda finding: (AREAS.index(finding.area), finding.level != PROBLEM))
    return checked


def check_data(checked: CheckedSite, options: Options, show: Silent) -> None:
    """Check the datalist against job and bundle, and the images unless ``data`` is skipped; adds to ``checked``.

    Raises:
        FedMedError: the datalist or the job cannot be read at all.
    """
    site = checked.site
    content, checked.counts = count_lists(site)
    if options.job:
        known = (options.job, site.site, options.role, options.overlays, checked.counts, site.bundles)
        checked.work = find_work(*known, site.allowed_classes)
        if checked.work.by_lists:
            text = (
                f"the job {checked.work.name} does not name '{site.site}': checked as {checked.work.role}, the role "
                "that its lists fit; say another with --role, and ask the study lead to name the site before it joins"
            )
            checked.findings.append(SiteFinding("training", "not_named", text))
    checked.role = checked.work.role if checked.work else options.role
    checked.demands, unusable = read_demands(checked.work, site)
    checked.kind = checked.demands.kind or kind_by_look(content)
    checked.entries, findings = read_entries(site, checked.kind.form(checked.demands.classes))
    checked.findings += [] if "training" in options.skip else unusable
    checked.findings += _other_kind(checked, content)
    checked.findings += [*_lists(checked), *findings]
    checked.findings += checked.inspection.judge_patients(checked.entries)
    if "data" not in options.skip:
        bundle = checked.demands.bundle.name if checked.demands.bundle else None
        checked.cases = checked.inspection.open(checked.entries, options.workers, show.track(), bundle, site.bundles)
        checked.findings += checked.inspection.judge(checked.cases, checked.demands.size)
        checked.findings += checked.inspection.judge_rate(checked.cases, checked.demands.rate)
    checked.findings += checked.inspection.judge_times(_with_labels(checked), checked.demands.rate)


def _other_kind(checked: CheckedSite, content: Mapping[str, Any]) -> list[SiteFinding]:
    """One sentence for lists that hold something else than the job reads, such as videos where it trains on CT."""
    looks, reads = kind_by_look(content), checked.inspection.noun
    images = {entry.image.suffix.lower() for entry in checked.entries}
    pictures = bool(images) and images <= {*PICTURES}
    has = made(looks.inspects).noun if not checked.entries else "image" if pictures else reads
    if has == reads or (pictures and reads != "scan"):
        return []
    held = "pictures" if has == "image" else f"{has}s"
    text = f"its lists hold {held}, and the job trains on {reads}s; name the site, or the job, that you mean"
    return [data_finding("other_kind", f"{checked.site.datalist}: {text}")]


def _with_labels(checked: CheckedSite) -> list[Entry]:
    """Entries whose labels the job reads, without those that were opened and cannot be used."""
    work, cases = checked.work, checked.cases
    labelled = work is not None and work.role == "supervised"
    reads = {
        "training": labelled and checked.kind.labelled,
        "validation": labelled and work is not None and work.chooses,
        "testing": work is not None and work.scores,
    }
    return [one for one in checked.entries if reads.get(one.list) and (one not in cases or cases[one].usable)]


def _lists(checked: CheckedSite) -> Iterator[SiteFinding]:
    work, kind, role = checked.work, checked.kind, checked.role
    chooses, scores = (work.chooses, work.scores) if work else (True, True)
    yield from check_lists(checked.counts, role, checked.site.datalist, kind, chooses, scores)
    tested, least = checked.counts.get("testing", 0), checked.site.privacy.min_cases
    if work and scores and 0 < tested < least:
        text = f"its score stays here: {count(tested, 'test case')}, and 'privacy.min_cases' is {least}"
        yield data_finding("few_tested", f"{checked.site.datalist}: {text}; list more, or lower it", "testing")
    listed = {entry.list for entry in checked.entries} & {UNLABELED, "training"}
    if role == "unsupervised" and listed and not (checked.trains_on.labelled or checked.trains_on.unlabelled):
        text = "all that this site could train on is listed for validation or testing too; list some for training alone"
        yield data_finding("list", f"{checked.site.datalist}: {text}", UNLABELED)
    if kind.labelled:
        yield from checked.inspection.judge_labels(checked.entries, checked.demands.classes, role, chooses)


def _check_training(checked: CheckedSite, work: PartInJob, options: Options, show: Silent) -> None:
    if checked.demands.bundle is None or any(finding.kind == "words" for finding in checked.findings):
        return
    checked.findings += check_share(checked.trains_on, checked.demands)
    checked.findings += check_exchange(work, checked.demands, checked.site, checked.trained_on)
    if not (sample := checked.sample):
        text = f"the role '{work.role}' has no usable case here to measure with; solve the problems of the data first"
        checked.findings.append(SiteFinding("training", "cannot_train", text))
        return
    score, steps, timeout = "scoring" not in options.skip, options.steps, options.timeout
    with show.doing(f"Measuring {steps + 1} steps of {work.name} as {work.role}"):
        checked.measured, findings = measure(checked.site, work, sample, checked.demands.batch, steps, score, timeout)
    checked.findings += findings


def _check_disk(checked: CheckedSite, kit: Kit | None) -> None:
    measured, used = checked.measured, USED.get(checked.role or "", LISTS)
    sample, mean = (checked.sample, measured.cache_bytes) if measured else ([], None)
    entries = [entry for entry in checked.entries if entry.list in used]
    cache = checked.inspection.cache_bytes(entries, checked.cases, sample, mean)
    state = state_bytes(measured.model_bytes if measured else None)
    checked.spaces, findings = check_disk(checked.site, kit.folder if kit else None, cache, state)
    checked.findings += findings


def _check_connection(checked: CheckedSite, kit: Kit, options: Options, show: Silent) -> None:
    checked.connection = connection = Connection(days=kit.days)
    faults = list(check_kit(kit, checked.site.site, *(client_app(checked.work) if checked.work else ())))
    checked.findings += [*faults, *check_proxy(kit.host, kit.port, os.environ)]
    if any(fault.kind in ("kit", "certificate") for fault in faults):
        return
    with show.doing(f"Connecting to {kit.host}, port {kit.port}"):
        refused = tls_connect(kit, connection)
    if not refused and "preflight" not in options.skip:
        with show.doing("NVFlare's preflight check: starts the site for five seconds"):
            refused = preflight(kit, connection)
    checked.findings += [refused] if refused else []


def preflight(kit: Kit, connection: Connection) -> SiteFinding | None:
    """Run ``nvflare preflight-check``, which also starts the site for five seconds, and fill in what was seen.

    It runs on a view of the kit, a folder of links: NVFlare would write its logs into the kit, and would kill every
    process whose command line is that of the site started from there.

    Returns:
        Why it failed, or that it was left out because the site is running. A second registration would take the
        running site's token.
    """
    if pid := running(kit):
        text = f"the site is already running from this kit (process {pid}), so NVFlare's preflight check was left out"
        return link_finding("running", f"{text}; that it is running tells more")
    with tempfile.TemporaryDirectory(prefix="fedmed-preflight-") as name:
        view = _view(kit, Path(name))
        passed, rows = _run(view)
        if not passed and any(problem == "Can't start successfully:" for _, problem, _ in rows):
            passed, rows = _run(view)  # NVFlare forks while gRPC has threads: now and then its process dies silently
        connection.preflight, connection.registered = passed, _registered(view)
    if passed:
        return None
    failed = "; ".join(f"{check}: {problem} ({fix})" if fix else f"{check}: {problem}" for check, problem, fix in rows)
    return link_finding("preflight", f"NVFlare's preflight check fails: {failed}")


def running(kit: Kit) -> int | None:
    """Process id of the site, if it was started from this kit."""
    for name in ("pid.fl", "daemon_pid.fl"):
        try:
            pid = int((kit.folder / name).read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        if psutil.pid_exists(pid):
            return pid
    return _without_pid_file(kit)


def _without_pid_file(kit: Kit) -> int | None:
    """The same for a site that was started with ``--once``, as in a container: NVFlare then notes no process."""
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []  # None: of a process that may not be looked at
        started = next((place for place, word in enumerate(line) if word.endswith(SITE_MODULE)), len(line))
        options = line[started + 1 :]
        if options[:1] == ["-m"] and Path(*options[1:2]).resolve() == kit.folder.resolve():
            return int(process.pid)
    return None


def _view(kit: Kit, folder: Path) -> Path:
    view = folder / "kit"
    for part in ("transfer", "startup", "local"):
        (view / part).mkdir(parents=True)  # the folders are real: NVFlare does not look into linked ones
        for path in (kit.folder / part).iterdir() if part != "transfer" and (kit.folder / part).is_dir() else ():
            (view / part / path.name).symlink_to(path)
    return view


def _run(view: Path) -> tuple[bool, list[Row]]:
    program, home = Path(sys.executable).parent / "nvflare", view.parent / "home"
    home.mkdir(exist_ok=True)
    environment = {**os.environ, "HOME": str(home), "GRPC_ENABLE_FORK_SUPPORT": "0"}
    line = [str(program), "preflight-check", "--format", "json", "-p", str(view)]
    try:
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=RUN_TIMEOUT)
        return parse(done.stdout, done.stderr)
    except subprocess.TimeoutExpired:
        return False, [("nvflare", f"no result in {RUN_TIMEOUT:.0f} s", "")]
    except OSError as error:
        return False, [("nvflare", f"{program} cannot be started ({error.strerror})", "run scripts/setup.sh")]
    finally:
        _end_all(view)


def _end_all(view: Path) -> None:
    """NVFlare ends the site that it started by ``pkill``, which not every machine has."""
    for process in psutil.process_iter(["cmdline"]):
        if str(view) in (process.info["cmdline"] or []):
            try:
                process.kill()
            except psutil.Error:
                continue


def parse(stdout: str, stderr: str) -> tuple[bool, list[Row]]:
    """Return whether NVFlare's check passed, and the rows (check, problem, remedy) that did not.

    Args:
        stdout: one JSON object with ``data.overall``.
        stderr: a table ``| check | problem | remedy |`` whose longer problems are broken into lines.
    """
    rows: list[list[str]] = []
    for line in stderr.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 3 and cells[0] not in ("", "Checks"):
            rows.append(cells)
        elif len(cells) == 3 and rows and not cells[0]:
            rows[-1][1] += cells[1]
    if _overall(stdout) == "pass":
        return True, []
    last = next((line for line in reversed(stderr.splitlines()) if line.strip()), "it gave no output")
    failed = [(check, problem, fix) for check, problem, fix in rows if problem != "PASSED"]
    return False, failed or [("nvflare", last, "")]


def _overall(stdout: str) -> object:
    for line in reversed(stdout.splitlines()):
        try:
            return json.loads(line)["data"]["overall"]
        except (ValueError, KeyError, TypeError):
            continue
    return None


def _registered(view: Path) -> bool:
    """A dry run passes when the site still runs after five seconds; its log tells whether it got in."""
    try:
        return "Successfully registered client" in (view / "log.txt").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def check_proxy(host: str, port: int, environment: Mapping[str, str]) -> Iterator[SiteFinding]:
    """Say which proxy gRPC takes to the server, and how to except it; nothing where it takes none.

    As gRPC itself reads the variables, in small letters alone: the first of each kind that is set counts, empty or not;
    an exception is the end of a name, or a network of addresses, and neither ``*`` nor one with a port is any.
    """
    variable = next((name for name in PROXIES if name in environment), None)
    if variable is None or not environment[variable]:
        return
    listed = next((environment[name] for name in EXCEPTIONS if name in environment), "")
    if any(_excepts(entry.strip(), host) for entry in listed.split(",")):
        return
    text = (
        f"{variable} is set, so gRPC goes to {host}, port {port}, through the proxy {_shown(environment[variable])}, "
    )
    text += "where this check's handshake went directly; a proxy that opens TLS on the way breaks the connection. To "
    text += f"except the server, write where the site is started: export no_grpc_proxy={host}"
    yield link_finding("proxy", text)


def _excepts(entry: str, host: str) -> bool:
    if not entry:
        return False
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:  # one of the two is a name
        return host.lower().endswith(entry.lower())


def _shown(proxy: str) -> str:
    """The address without the name and password that it may hold."""
    return proxy.rpartition("@")[2] if "@" in proxy else (urlsplit(proxy).netloc or proxy)
