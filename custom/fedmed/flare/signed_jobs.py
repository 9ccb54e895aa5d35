"""A participant's record of the signed jobs that it has taken: each submission is deployed once, and started once.

A signature says nothing of the job's id, which the server makes after the lead has signed. Without a record, a server
could have a job run as often as it likes, under whatever id.
"""

import json
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nvflare.lighter.tool_consts import NVFLARE_SIG_FILE

from fedmed.errors import JobError, StateError
from fedmed.flare.app_signatures import Signed, signatures_below
from fedmed.flare.job_ids import is_job_id

RECORD = "signed_jobs.jsonl"  # in the kit's folder
AGAIN = "submit the job again: NVFlare then signs it anew"
_TURN = threading.Lock()  # NVFlare answers several commands at a time


class SignedJobs:
    """The record of one kit.

    Args:
        kit: the kit's folder, in which NVFlare makes a folder for each job.
    """

    def __init__(self, kit: Path) -> None:
        self.kit, self.path = kit, kit / RECORD

    def deploy(self, job_id: str, signed: Signed) -> None:
        """Enter a job that is about to be unpacked, durably.

        Raises:
            JobError: this id, or one of the signatures, has been entered before.
            StateError: the record is damaged or cannot be written; nothing may be unpacked.
        """
        with _TURN:
            for entry in self._entries():
                if entry["job"] == job_id:
                    raise JobError(f"job {job_id} was taken here before; {AGAIN}")
                if signed.signatures & set(entry.get("signatures", ())):
                    raise JobError(f"what was signed for this job was taken here as job {entry['job']}; {AGAIN}")
            self._enter({"job": job_id, "signatures": sorted(signed.signatures)})

    def start(self, job_id: str) -> None:
        """Enter the start of a job, durably.

        Raises:
            JobError: the job was not deployed here, or it was started before.
            StateError: as for :meth:`deploy`.
        """
        with _TURN:
            mine = [entry for entry in self._entries() if entry["job"] == job_id]
            if not mine:
                raise JobError(f"job {job_id} was not deployed here; {AGAIN}")
            if any("started" in entry for entry in mine):
                raise JobError(f"job {job_id} was started here before; {AGAIN}")
            self._enter({"job": job_id, "started": True})

    def _entries(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            for entry in self._of_earlier_jobs():
                self._enter(entry)
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
            entries = [json.loads(line) for line in lines]
            if not all(isinstance(entry, dict) and isinstance(entry["job"], str) for entry in entries):
                raise ValueError("a line is of another kind")
        except (OSError, ValueError, KeyError) as error:
            raise StateError(
                f"{self.path} is damaged ({error}), so it is not known which signed jobs have run here; restore it "
                "from a backup, or move it away: what is still in the folders of jobs is then entered anew"
            ) from error
        return entries

    def _of_earlier_jobs(self) -> Iterator[dict[str, Any]]:
        """Jobs of before there was a record, as far as their folders are still there."""
        for app in sorted(path.parent for path in self.kit.glob(f"*/app_*/{NVFLARE_SIG_FILE}")):
            if is_job_id(app.parent.name):
                yield {"job": app.parent.name, "signatures": sorted(signatures_below(app)), "started": True}

    def _enter(self, entry: Mapping[str, Any]) -> None:
        try:  # as fedmed.durable_files.append_json does, which would bring PyTorch into the process that waits for jobs
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(entry) + "\n")
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise StateError(f"cannot write {self.path}: {error}. Free space or correct its permissions") from error
