"""Everything that a hospital checks before it joins, in one call."""

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmed.checks.bundle_demands import check_exchange, check_share, read_demands
from fedmed.checks.checked_site import CheckedSite
from fedmed.checks.disk import check_disk, state_bytes
from fedmed.checks.entries import LISTS, USED, check_lists, count_lists, read_entries
from fedmed.checks.grpc_proxy import check_proxy
from fedmed.checks.kit_findings import check_kit, client_app
from fedmed.checks.machine import check_machine
from fedmed.checks.measurement import measure
from fedmed.checks.part_in_job import PartInJob, find_work
from fedmed.checks.preflight import preflight
from fedmed.checks.server_connection import Connection, shake_hands
from fedmed.checks.site_findings import AREAS, PROBLEM, SiteFinding
from fedmed.checks.startup_kit import SITE_FILE, Kit, read_kit
from fedmed.data.prepare.pool import Track
from fedmed.errors import JobError, SiteConfigError
from fedmed.kinds.find_kind import kind_by_look
from fedmed.settings.site import SiteConfig, load_file, load_named

PARTS = (*AREAS, "preflight", "scoring")  # what --skip may name


class Silent:
    """What a check shows while it works: nothing."""

    def track(self) -> Track:
        """Return what shows the progress of the images."""
        return lambda cases, total: cases

    def doing(self, text: str) -> AbstractContextManager[Any]:
        """Show ``text`` as long as a longer step takes."""
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
        checked.machine, found = check_machine(checked.site)
        checked.findings += found
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
        checked.findings += _not_named(site.site, checked.work)
    checked.role = checked.work.role if checked.work else options.role
    checked.demands, unusable = read_demands(checked.work, site)
    checked.kind = checked.demands.kind or kind_by_look(content)
    checked.entries, found = read_entries(site, checked.kind.form(checked.demands.classes))
    checked.findings += [] if "training" in options.skip else unusable
    checked.findings += [*_lists(checked), *found]
    checked.findings += checked.inspection.judge_patients(checked.entries)
    if "data" not in options.skip:
        bundle = checked.demands.bundle.name if checked.demands.bundle else None
        checked.cases = checked.inspection.open(checked.entries, options.workers, show.track(), bundle, site.bundles)
        checked.findings += checked.inspection.judge(checked.cases, checked.demands.size)
        checked.findings += checked.inspection.judge_rate(checked.cases, checked.demands.rate)


def _not_named(site: str, work: PartInJob) -> Iterator[SiteFinding]:
    if work.by_lists:
        text = f"the job {work.name} does not name '{site}': checked as {work.role}, the role that its lists fit"
        hint = "say another with --role, and ask the study lead to name the site before it joins"
        yield SiteFinding("training", "not_named", f"{text}; {hint}")


def _lists(checked: CheckedSite) -> Iterator[SiteFinding]:
    work, kind, role = checked.work, checked.kind, checked.role
    chooses, scores = (work.chooses, work.scores) if work else (True, True)
    yield from check_lists(checked.counts, role, checked.site.datalist, kind, chooses, scores)
    if kind.labelled:
        yield from checked.inspection.judge_labels(checked.entries, checked.demands.classes, role, chooses)


def _check_training(checked: CheckedSite, work: PartInJob, options: Options, show: Silent) -> None:
    if checked.demands.bundle is None or any(found.kind == "words" for found in checked.findings):
        return
    checked.findings += check_share(checked.trains_on, checked.demands)
    checked.findings += check_exchange(work, checked.demands, checked.site, checked.trained_on)
    if not (sample := checked.sample):
        text = f"the role '{work.role}' has no usable case here to measure with; solve the problems of the data first"
        checked.findings.append(SiteFinding("training", "cannot_train", text))
        return
    score, steps, timeout = "scoring" not in options.skip, options.steps, options.timeout
    with show.doing(f"Measuring {steps + 1} steps of {work.name} as {work.role}"):
        checked.measured, found = measure(checked.site, work, sample, checked.demands.batch, steps, score, timeout)
    checked.findings += found


def _check_disk(checked: CheckedSite, kit: Kit | None) -> None:
    measured, used = checked.measured, USED.get(checked.role or "", LISTS)
    sample, mean = (checked.sample, measured.cache_bytes) if measured else ([], None)
    entries = [entry for entry in checked.entries if entry.list in used]
    cache = checked.inspection.cache_bytes(entries, checked.cases, sample, mean)
    state = state_bytes(measured.model_bytes if measured else None)
    checked.spaces, found = check_disk(checked.site, kit.folder if kit else None, cache, state)
    checked.findings += found


def _check_connection(checked: CheckedSite, kit: Kit, options: Options, show: Silent) -> None:
    checked.connection = found = Connection(days=kit.days)
    faults = list(check_kit(kit, checked.site.site, *(client_app(checked.work) if checked.work else ())))
    checked.findings += [*faults, *check_proxy(kit.host, kit.port, os.environ)]
    if any(fault.kind in ("kit", "certificate") for fault in faults):
        return
    with show.doing(f"Connecting to {kit.host}, port {kit.port}"):
        refused = shake_hands(kit, found)
    if not refused and "preflight" not in options.skip:
        with show.doing("NVFlare's preflight check: starts the site for five seconds"):
            refused = preflight(kit, found)
    checked.findings += [refused] if refused else []
