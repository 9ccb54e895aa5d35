"""The record of everything that leaves a site: one JSON line an answer, written before it is sent."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedmed.durable_files import append_json
from fedmed.errors import JobError, PrivacyError
from fedmed.messages.values import map_tensors
from fedmed.privacy.payload import describe, kind, payload_bytes, payload_digest
from fedmed.reports.run_files import read_lines

FILE = "ledger.jsonl"


class Ledger:
    """Writes ``ledger.jsonl`` in the job's folder at a site.

    Args:
        folder: the job's folder at the site.
        site: its name.
    """

    def __init__(self, folder: Path, site: str) -> None:
        self.path, self.site = Path(folder) / FILE, site

    def write(self, answer: str, task: str, round: int | None, **facts: Any) -> None:
        """Add one line, on the disk before this returns.

        Args:
            answer: ``update``, ``metadata``, ``scores``, ``release``, ``live`` (a scalar for TensorBoard) or
                ``refused`` (only an error code was sent).
            task: what was asked for.
            round: of the task; None if unknown.
            facts: what else is known of the answer, plain values.

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

        Args:
            answer, task, round, facts: as there.
            content: the answer; of ``tensors`` and ``extras`` dtypes and shapes are written down.

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
