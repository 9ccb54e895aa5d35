"""Fingerprints at the server: asked for once before the first round, compared, and kept in ``fingerprint.json``.

A site that forbids it, fails, or answers something else is left out with a reason, and the run goes on.
"""

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedmed.bundles.bundle import Bundle
from fedmed.durable_files import save_json
from fedmed.federation.compared_sites import Expected, compare
from fedmed.jobs.job import Job
from fedmed.kinds.find_kind import kind_of
from fedmed.kinds.kind import MASKS
from fedmed.messages.answers import Extras
from fedmed.messages.fingerprint import FORBIDDEN, NAME, fault
from fedmed.messages.task import Task
from fedmed.recovery.checkpoint import FINGERPRINT as FILE

log = logging.getLogger("fedmed.server")


class Fingerprints:
    """The sites' fingerprints and what does not fit among them.

    Args:
        bundle: of the model, whose classes and preparation the sites are held against.
        folder: the server's folder of the run.

    Attributes:
        sites: site -> its fingerprint; ``missing``: site -> why there is none.
        findings: (site, what does not fit).
    """

    def __init__(self, job: Job, bundle: Bundle, folder: Path) -> None:
        self.job, self.study, self.bundle, self.path = job, job.study, bundle, Path(folder) / FILE
        self.sites: dict[str, dict[str, Any]] = {}
        self.missing: dict[str, str] = {}
        self.findings: list[tuple[str, str]] = []
        self._open = False
        self.path.unlink(missing_ok=True)  # of an earlier run in the same folder

    def gather(self, ask: Callable[[Mapping[str, Task]], Mapping[str, Any]], round: int) -> None:
        """Ask the sites that were not asked yet, in this run or the one that it continues, and compare all.

        Args:
            ask: sends each site its task and returns the answers.
            round: that is trained next, counted from 0.
        """
        new = [site for site in self.study.sites if site not in self.sites and site not in self.missing]
        if not self.study.fingerprint or not new:
            return
        self._open = True
        answers = ask({site: Task(NAME, round, self.study.rounds, {}, study=self.job.digest) for site in new})
        self._open = False
        for site in new:
            self._take(site, answers.get(site))
        self.findings = compare(self.sites, expected(self.bundle))
        for site, reason in sorted(self.missing.items()):
            # What no site allows by itself is no fault.
            level = logging.INFO if reason == FORBIDDEN else logging.WARNING
            log.log(level, "before round %d: no fingerprint of site '%s': %s", round + 1, site, reason)
        for site, text in self.findings:
            log.warning("before round %d: site '%s': %s", round + 1, site, text)
        save_json(self.path, self.record())

    def _take(self, site: str, answer: Any) -> None:
        if not isinstance(answer, Extras):
            self.missing.setdefault(site, "it did not answer")
        elif not answer.values:
            self.missing[site] = FORBIDDEN if answer.round >= 0 else "its answer is malformed"
        elif wrong := fault(answer.values.get(NAME)):
            self.missing[site] = f"its answer is refused: {wrong}"
        else:
            self.sites[site] = dict(answer.values[NAME])

    def fail(self, site: str, reason: str) -> bool:
        """Note why a site did not answer; False where nobody asked for a fingerprint just now."""
        if self._open:
            self.missing[site] = reason
        return self._open

    def record(self) -> dict[str, Any]:
        """Plain values of ``fingerprint.json``."""
        findings = [{"site": site, "message": text} for site, text in self.findings]
        return {"sites": dict(sorted(self.sites.items())), "missing": self.missing, "findings": findings}

    def take_over(self, folder: Path) -> None:
        """Go on with what an earlier job of the run was told; where its record is lost, sites are asked again."""
        try:
            kept = json.loads((Path(folder) / FILE).read_text(encoding="utf-8"))
            self.sites = {s: dict(v) for s, v in kept["sites"].items() if s in self.study.sites and not fault(v)}
            self.missing = {s: str(reason) for s, reason in kept["missing"].items() if s in self.study.sites}
            self.findings = [(str(one["site"]), str(one["message"])) for one in kept["findings"]]
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return
        save_json(self.path, self.record())


def expected(bundle: Bundle) -> Expected:
    """Demands of a bundle, with the study's classes, on its sites' images."""
    kind, config = kind_of(bundle), bundle.parser_without_site(device="cpu").get()
    classes = [one.name for one in bundle.classes]
    return Expected(classes, kind.proposal == MASKS, "Orientation" in json.dumps(config, default=str))
