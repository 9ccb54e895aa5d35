"""Everything that a hospital checks before it joins, in one call."""

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fedmed.checks.checked_site import CheckedSite
from fedmed.checks.connection import Connection, preflight, shake_hands
from fedmed.checks.disk import check_disk, state_bytes
from fedmed.checks.entries import LISTS, USED, Entry, count_lists, needs, read_entries
from fedmed.checks.inspection import Reading
from fedmed.checks.machine import look_at_machine
from fedmed.checks.part_in_job import client_app, find_work
from fedmed.checks.site_findings import AREAS, SiteFinding
from fedmed.checks.startup_kit import SITE_FILE, Kit, check_kit, read_kit
from fedmed.checks.training import CONTRASTED, SAMPLE, choose_sample, measure
from fedmed.checks.wanted import look_at_exchange, what_is_wanted
from fedmed.data.prepare.pool import Track
from fedmed.errors import JobError, SiteConfigError
from fedmed.kinds.find_kind import kind_by_look
from fedmed.settings.site import SiteConfig, load_file, load_site

log = logging.getLogger("fedmed.checks")
PARTS = (*AREAS, "preflight", "scoring")  # what --skip may name


class Show(Protocol):
    """What a check shows while it works."""

    def track(self) -> Track:
        """Return what shows the progress of the images."""

    def doing(self, text: str) -> AbstractContextManager[Any]:
        """Show ``text`` as long as a longer step takes."""


class Silent:
    """Shows nothing."""

    def track(self) -> Track:
        return lambda cases, total: cases

    def doing(self, text: str) -> AbstractContextManager[Any]:
        return nullcontext()


@dataclass
class Options:
    """What is asked for; see ``scripts/check_site.py``."""

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
    if name is None and kit is None:
        raise SiteConfigError("name the site's YAML, its name in the federation, or its startup kit (--kit)")
    path = kit.folder / SITE_FILE if name is None else Path(name).expanduser()
    if name is not None and path.suffix.lower() not in (".yaml", ".yml") and not path.is_file():
        return load_site(name, kit.folder if kit else None)
    return load_file(path, kit.site if kit else None)


def check_site(name: str | None, options: Options, show: Show | None = None) -> CheckedSite:
    """Check a site: data, training, disk, device, connection.

    Raises:
        FedMedError: the site's settings, its datalist, the job or the kit cannot be read at all.
    """
    unknown = sorted(set(options.skip) - set(PARTS))
    if unknown:
        raise JobError(f"--skip {unknown[0]} is unknown; use {', '.join(PARTS)}")
    show = show or Silent()
    kit = read_kit(options.kit) if options.kit else None
    checked = CheckedSite(find_site(name, kit), left_out=sorted(set(options.skip), key=PARTS.index))
    _check_data(checked, options, show)
    if "training" not in options.skip and checked.work:
        _check_training(checked, options, show)
    elif "training" not in options.skip:
        checked.left_out.append("training")
    if "disk" not in options.skip:
        _check_disk(checked, kit)
    if "device" not in options.skip:
        checked.machine, found = look_at_machine(checked.site)
        checked.findings += found
    if kit and "connection" not in options.skip:
        _check_connection(checked, kit, options, show)
    elif "connection" not in options.skip:
        checked.left_out.append("connection")
    checked.findings.sort(key=lambda finding: (AREAS.index(finding.area), finding.level != "problem"))
    return checked


def _check_data(checked: CheckedSite, options: Options, show: Show) -> None:
    site = checked.site
    content, checked.counts = count_lists(site)
    if options.job:
        asked = (options.job, site.site, options.role, options.overlays, checked.counts, site.bundles)
        checked.work = find_work(*asked, site.allowed_classes)
    checked.role = checked.work.role if checked.work else options.role
    checked.wanted, unusable = what_is_wanted(checked.work, site)
    checked.kind = checked.wanted.kind or kind_by_look(content)
    checked.entries, found = read_entries(site, checked.kind.form(checked.wanted.classes))
    checked.findings += [] if "training" in options.skip else unusable
    checked.findings += [*_lists(checked), *found]
    if "data" not in options.skip:
        _inspect(checked, options.workers, show.track())


def _lists(checked: CheckedSite) -> Iterator[SiteFinding]:
    work, kind = checked.work, checked.kind
    told = {"chooses": work.chooses, "scores": work.scores} if work else {}
    yield from needs(checked.counts, checked.role, checked.site.datalist, kind=kind, **told)
    if kind.labelled:
        asked = (checked.wanted.classes, checked.role, work.chooses if work else True)
        yield from checked.inspection.judge_labels(checked.entries, *asked)


def _inspect(checked: CheckedSite, workers: int, track: Track) -> None:
    how = Reading(checked.wanted.name, checked.site.bundles, workers, track)
    checked.cases = checked.inspection.open(checked.entries, how)
    checked.findings += checked.inspection.judge(checked.cases, checked.wanted.size)


def _check_training(checked: CheckedSite, options: Options, show: Show) -> None:
    work, site = checked.work, checked.site
    if checked.digest is None:
        return
    checked.findings += look_at_exchange(work, checked.wanted, site, checked.trained_on)
    sample = _sample(checked)
    if not sample:
        text = f"the role '{work.role}' has no usable case here to measure with; solve the problems of the data first"
        checked.findings.append(SiteFinding("training", "cannot_train", text))
        return
    score = "scoring" not in options.skip
    with show.doing(f"Measuring {options.steps + 1} steps of {work.name} as {work.role}"):
        checked.measured, found = measure(site, work, sample, steps=options.steps, score=score, timeout=options.timeout)
    checked.findings += found


def _sample(checked: CheckedSite) -> list[Entry]:
    most = SAMPLE if checked.kind.labelled else CONTRASTED
    return choose_sample(checked.entries, checked.cases, checked.work.role, most)


def _check_disk(checked: CheckedSite, kit: Kit | None) -> None:
    sample = _sample(checked) if checked.measured else []
    used = [entry for entry in checked.entries if entry.list in USED.get(checked.role or "", LISTS)]
    cache = checked.inspection.cache_bytes(used, checked.cases, sample, checked.measured)
    folder = kit.folder if kit else None
    checked.spaces, found = check_disk(checked.site, folder, cache, state_bytes(checked.measured))
    checked.findings += found


def _check_connection(checked: CheckedSite, kit: Kit, options: Options, show: Show) -> None:
    checked.connection = found = Connection(days=kit.days)
    faults = list(check_kit(kit, checked.site.site, *(client_app(checked.work) if checked.work else ())))
    checked.findings += faults
    if any(fault.kind in ("kit", "certificate") for fault in faults):
        return
    with show.doing(f"Connecting to {kit.host}, port {kit.port}"):
        refused = shake_hands(kit, found)
    if not refused and "preflight" not in options.skip:
        with show.doing("NVFlare's preflight check: starts the site for five seconds"):
            refused = preflight(kit, found)
    checked.findings += [refused] if refused else []
