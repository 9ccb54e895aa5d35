"""The gate through which every answer leaves a site, by the site's own settings, and the ledger of what left."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedmed.durable_files import append_json
from fedmed.errors import JobError, PrivacyError
from fedmed.messages.answers import Answer, Extras, Release, Update, map_tensors
from fedmed.messages.fingerprint import NAME, fault
from fedmed.privacy.allow_lists import Allowed
from fedmed.privacy.payload import describe, kind, payload_bytes, payload_digest
from fedmed.privacy.protection import Facts, PrivacyAccount, Protection
from fedmed.reports.run_files import read_lines
from fedmed.settings.site import SiteConfig

log = logging.getLogger("fedmed.site")
FILE = "ledger.jsonl"
GAIN_PATIENTS = "gain_patients"


class SiteLimits:
    """Checks, changes and records what a site sends.

    Raises:
        PrivacyError: by each method: an answer goes beyond the limits, or the account or the ledger cannot be written.
            Nothing may be sent, and the text stays at the site.
    """

    def __init__(self, site: SiteConfig, folder: Path) -> None:
        self.site, self.privacy, self.folder = site, site.privacy, Path(folder)
        self.allowed, self.account = Allowed(site), PrivacyAccount(site.privacy)
        self.protection, self.ledger = Protection(self.allowed), Ledger(folder, site.site)

    def answer(self, task: str, round: int | None, answer: Answer) -> Answer:
        """Return what may leave of any kind of answer: see the methods below."""
        if isinstance(answer, Update):
            return self.apply(answer)
        if isinstance(answer, Extras):
            return self.fingerprint(answer) if task == NAME else self.metadata(answer)
        return self.release(answer) if isinstance(answer, Release) else self.metrics(task, round, answer)

    def apply(self, update: Update) -> Update:
        """Return what may leave of an update: allowed scalars and extras, clipped, with noise; write the ledger."""
        self.allowed.check_update(update.tensors)
        metrics = self.allowed.metrics({**update.metrics, "n_samples": update.n_samples})
        update = replace(update, n_samples=int(metrics.pop("n_samples", 0)), metrics=metrics)
        tensors, facts = self.protection.clipped(update.tensors)
        extras, more = self._extras(update.extras, update.round)
        update, facts = replace(update, extras=extras), facts | more
        size = payload_bytes(_content(replace(update, tensors=tensors)))
        self.allowed.check_size(size)  # what is too large must not cost anything
        if self.privacy.noise_std is not None:
            facts |= {"epsilon": self.account.spend(), "delta": self.privacy.delta}
            tensors, more = self.protection.noised(tensors, update.round, self.privacy.noise_std)
            facts |= more
        known = self.allowed.protection(facts.get("epsilon"))
        update = replace(update, tensors=tensors, metrics={**update.metrics, **known})
        self._write("update", "train", update.round, _content(update), **facts)
        return update

    def metadata(self, extras: Extras) -> Extras:
        """Return what may leave of an answer to a ``metadata`` task: listed values, with noise; write the ledger."""
        values, facts = self._extras(extras.values, extras.round)
        self._write("metadata", "metadata", extras.round, {"extras": values}, **facts)
        return replace(extras, values=values)

    def fingerprint(self, extras: Extras) -> Extras:
        """Return a site's fingerprint if its settings list it and it holds nothing else; write the ledger."""
        values = self.allowed.extras({name: value for name, value in extras.values.items() if name == NAME})
        if values and (wrong := fault(values[NAME])):
            raise PrivacyError(f"the fingerprint does not leave: {wrong}")
        self._write(NAME, NAME, extras.round, {"extras": values})
        return replace(extras, values=values)

    def release(self, release: Release) -> Release:
        """Return an answer to a ``release`` task if its tensors may leave; write the ledger."""
        self.allowed.check_release(release.tensors)
        content = {"tensors": release.tensors, "allowed": release.allowed, **({"keep": True} if release.keep else {})}
        self._write("release", "release", release.round, content)
        return release

    def metrics(self, task: str, round: int | None, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Return the scalars of a validation or evaluation that may leave; write the ledger."""
        passed = self.allowed.metrics(self._of_enough(metrics))
        self._write("scores", task, round, {"metrics": passed})
        return passed

    def _of_enough(self, metrics: Mapping[str, Any]) -> Mapping[str, Any]:
        """Scores and gain as they are, or of too few test cases or patients none, with the least number that the site
        asks for.
        """
        cases, patients = metrics.get("n_cases"), metrics.get(GAIN_PATIENTS)
        if isinstance(cases, int) and 0 < cases < self.privacy.min_cases:
            return self._withheld(f"scores of {cases} test cases stay", "min_cases")
        if isinstance(patients, int) and patients < self.privacy.min_gain_cases:
            return self._withheld(f"the gain of {patients} test patients stays", "min_gain_cases")
        return metrics

    def _withheld(self, what: str, key: str) -> dict[str, int]:
        least: int = getattr(self.privacy, key)
        log.warning("%s: %s here: fewer than the %d of 'privacy.%s'", self.site.site, what, least, key)
        return {"n_cases": 0, "min_cases": least}

    def live(self, tag: str, value: float, step: int) -> bool:
        """Tell whether a scalar may leave while the site works; if so, it is in the ledger.

        Args:
            tag: its name on TensorBoard, ``train/loss``; it is the metric ``train_loss`` of the limits.
        """
        name = self.allowed.streamed(tag)
        if name is not None:
            self.ledger.write("live", "train", None, metrics={name: value}, step=step)
        return name is not None

    def refused(self, task: str, round: int | None, reason: str) -> None:
        """Note that only an error code leaves; ``reason`` stays at the site. On a full disk the task fails without."""
        with suppress(PrivacyError):
            self.ledger.write("refused", task, round, reason=reason)

    def _extras(self, extras: Mapping[str, Any], round: int) -> tuple[dict[str, Any], Facts]:
        return self.protection.noised_extras(self.allowed.extras(extras), round)

    def _write(self, answer: str, task: str, round: int | None, content: Mapping[str, Any], **facts: Any) -> None:
        self.allowed.check_size(payload_bytes(content))
        self.ledger.write_content(answer, task, round, content, **facts)


def _content(update: Update) -> dict[str, Any]:
    facts = {"n_steps": update.n_steps, "n_samples": update.n_samples, "metrics": update.metrics}
    return {"tensors": update.tensors, **facts, "extras": update.extras}


class Ledger:
    """Writes ``ledger.jsonl`` in the job's folder at a site."""

    def __init__(self, folder: Path, site: str) -> None:
        self.path, self.site = Path(folder) / FILE, site

    def write(self, answer: str, task: str, round: int | None, **facts: Any) -> None:
        """Add one line, on the disk before this returns.

        Args:
            answer: ``update``, ``metadata``, ``fingerprint``, ``scores``, ``release``, ``live`` (a scalar for
                TensorBoard) or ``refused`` (only an error code was sent).
            round: of the task; None if unknown.

        Raises:
            PrivacyError: it cannot be written; then nothing may be sent.
        """
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "site": self.site, "answer": answer, "task": task, "round": round, **facts}
        try:
            append_json(self.path, line, durable=answer != "live")  # a training step need not wait for the disk
        except (OSError, TypeError, ValueError) as error:
            raise PrivacyError(f"the ledger {self.path} cannot be written ({error}); nothing is sent") from error

    def write_content(
        self, answer: str, task: str, round: int | None, content: Mapping[str, Any], **facts: Any
    ) -> None:
        """:meth:`write` what leaves, with size and digest: here alone an answer is hashed, as it leaves.

        Raises:
            PrivacyError: as there, or the answer holds what nothing may send.
        """
        facts = {"bytes": payload_bytes(content), "sha256": payload_digest(content), **facts}
        plain = {key: value for key, value in content.items() if key not in ("tensors", "extras")}
        extras = {name: map_tensors(value, kind) for name, value in sorted(content.get("extras", {}).items())}
        described = {"tensors": describe(content.get("tensors", {})), "extras": extras}
        self.write(answer, task, round, **plain, **described, **facts)


def read_ledger(run: Path) -> list[dict[str, Any]]:
    """Return the lines of a ledger.

    Args:
        run: the file, or a site's folder of a job: ``<kit>/<job>``, its ``fedmed`` folder, or
            ``<workspace>/<site>/simulate_job``.

    Raises:
        FedMedError: no ledger there, or a damaged one.
    """
    run = Path(run)
    places = [run] if run.is_file() else [run / FILE, run / "fedmed" / FILE, run / "simulate_job" / "fedmed" / FILE]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        looked = ", ".join(map(str, places))
        raise JobError(f"no ledger at {run}; looked at {looked}. Give a site's own folder of a job, not the server's")
    return read_lines(path)
