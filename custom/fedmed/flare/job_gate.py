"""Look at every job before NVFlare parses anything of it: at the server when it is submitted, everywhere when deployed.

NVFlare has no place of its own for this: a server's checks run on a configuration that has been parsed, and so do an
``app_validator``'s. The component replaces the two methods through which every job comes. What goes wrong travels as a
code: NVFlare's texts may quote files.
"""

import functools
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nvflare.apis.fl_component import FLComponent
from nvflare.apis.workspace import Workspace
from nvflare.lighter.tool_consts import NVFLARE_SIG_FILE

from fedmed.errors import JobError, StateError
from fedmed.flare.job_archive import WRONG_ID, KnownJobs, check_app, check_job, check_job_id, check_new, is_job_id
from fedmed.flare.job_description import (
    Signed,
    check_deployed,
    check_started,
    check_submitted,
    read_signatures,
    signatures_below,
)
from fedmed.flare.private_flare import (
    ERROR_MSG_PREFIX,
    AppDeployer,
    ClientRequestProcessors,
    JobMetaValidator,
    Message,
    MsgHeader,
    RequestHeader,
    RequestProcessor,
    ReturnCode,
    TrainingTopic,
    error_reply,
)

log = logging.getLogger("fedmed.site")
NOT_PLAIN, FAILED, NOT_STARTED = "NOT_PLAIN_JSON", "DEPLOYMENT_FAILED", "START_FAILED"
WRONG_DESCRIPTION, RUN_BEFORE = "DESCRIPTION_WRONG", "RUN_BEFORE"
# A part of NVFlare's own text -> its code. What is not here is DEPLOYMENT_FAILED.
PHRASES = {
    "BYOC not permitted": "BYOC_NOT_PERMITTED",
    "privacy scope": "PRIVACY_SCOPE_NOT_ALLOWED",
    "unsigned job": "NOT_SIGNED",
    "signature": "SIGNATURE_WRONG",
    "Missing required config": "CONFIG_MISSING",
    "Missing config folder": "CONFIG_MISSING",
    "not authorized": "NOT_AUTHORIZED",
}
CODES = {NOT_PLAIN, FAILED, NOT_STARTED, WRONG_ID, WRONG_DESCRIPTION, RUN_BEFORE, *PHRASES.values()}
Look = tuple[str, Callable[[], None]]  # what it is called when something does not pass it, and the look itself
_validate, _deploy = JobMetaValidator.validate, AppDeployer.deploy
RECORD = "signed_jobs.jsonl"  # in the kit's folder
AGAIN = "submit the job again: NVFlare then signs it anew"
_TURN = threading.Lock()  # NVFlare answers several commands at a time


def code_of(text: str) -> str:
    """Return the code for a text of NVFlare's."""
    return next((code for phrase, code in PHRASES.items() if phrase in text), FAILED)


def _logged(job_id: object, code: str, text: object) -> str:
    """Write the text into this participant's own log, and return the code."""
    log.error("job %s: %s: %s", job_id, code, text)
    return code


class CodedReplies(KnownJobs):
    """Answers as another processor does, but with a code where that one would send a text about an error."""

    def process(self, req: Message, app_ctx: Any) -> Message:
        """Answer a command of the server's."""
        job_id = req.get_header(RequestHeader.JOB_ID)
        try:
            reply = super().process(req, app_ctx)
        except Exception as error:  # noqa: BLE001 - whatever it is, NVFlare would send its text
            return error_reply(_logged(job_id, self._other, error))
        failed = reply.get_header(MsgHeader.RETURN_CODE, ReturnCode.OK) != ReturnCode.OK
        if failed or str(reply.body).startswith(ERROR_MSG_PREFIX):
            reply.body = self._coded(job_id, str(reply.body).removeprefix(f"{ERROR_MSG_PREFIX}: "), failed)
        return reply

    def _coded(self, job_id: object, text: str, failed: bool) -> str:
        code = text if text in CODES else _logged(job_id, code_of(text) if failed else self._other, text)
        return code if failed else f"{ERROR_MSG_PREFIX}: {code}"  # NVFlare tells by it that a job did not start

    @property
    def _other(self) -> str:
        return NOT_STARTED if TrainingTopic.START_JOB in self.get_topics() else FAILED


def validate(self: JobMetaValidator, job_name: str, job_data: bytes | str) -> tuple[bool, str, dict]:
    """Refuse a submitted job that is more than plain JSON, or says more than its study.

    What is left is for NVFlare to check.
    """
    try:
        check_job(job_data, job_name)
        check_submitted(job_data, job_name)
    except JobError as error:  # it speaks of what the submitter sent, and goes back to nobody else
        return False, str(error), {}
    return _validate(self, job_name, job_data)


def deploy(
    self: AppDeployer, workspace: Any, job_id: str, job_meta: dict, app_name: str, app_data: bytes, fl_ctx: Any
) -> str | None:
    """Refuse an app, before anything of it is written, that is not the plain and new part of a job that it should be.

    Returns:
        The code of what is wrong; nothing when the app was deployed.
    """
    kit = Path(workspace.get_root_dir())
    signed = functools.cache(lambda: read_signatures(app_data))  # what is wrong with them is said by the look that asks
    looks: tuple[Look, ...] = (
        (WRONG_ID, lambda: check_new(job_id, kit)),
        (NOT_PLAIN, lambda: check_app(app_data)),
        (WRONG_DESCRIPTION, lambda: check_deployed(job_meta, job_id, app_data, signed())),
        (RUN_BEFORE, lambda: SignedJobs(kit).deploy(job_id, signed())),
    )
    try:
        if code := _refusal(job_id, *looks):
            return code
        text = _deploy(self, workspace, job_id, job_meta, app_name, app_data, fl_ctx)
    except Exception as error:  # noqa: BLE001 - whatever it is, NVFlare would send its text
        return _logged(job_id, FAILED, error)
    return _logged(job_id, code_of(text), text) if text else None


class StartedOnce(KnownJobs):
    """Starts a job as another processor does, if it was deployed with the same description and never started."""

    def process(self, req: Message, app_ctx: Any) -> Message:
        """Answer the server's command."""
        job_id, kit = req.get_header(RequestHeader.JOB_ID), app_ctx.args.workspace
        description = req.get_header(RequestHeader.JOB_META)
        code = _refusal(
            job_id,
            (WRONG_ID, lambda: check_job_id(job_id)),
            (WRONG_DESCRIPTION, lambda: check_started(description, _deployed(kit, job_id))),
            (RUN_BEFORE, lambda: SignedJobs(Path(kit)).start(job_id)),
        )
        return error_reply(code) if code else super().process(req, app_ctx)


def _refusal(job_id: object, *looks: Look) -> str | None:
    """The code of the first look that something does not pass."""
    for code, look in looks:
        try:
            look()
        except JobError as error:
            return _logged(job_id, code, error)
    return None


def _deployed(kit: str, job_id: str) -> dict[str, Any]:
    """The description that was written when a job was unpacked."""
    try:
        text = Path(Workspace(kit).get_job_meta_path(job_id)).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise JobError(f"job {job_id} was not deployed here") from error
    description: dict[str, Any] = json.loads(text)
    return description


class PlainJobs(FLComponent):
    """Part of every kit; takes its place when NVFlare builds it."""

    def __init__(self) -> None:
        super().__init__()
        JobMetaValidator.validate, AppDeployer.deploy = validate, deploy
        processors = ClientRequestProcessors.request_processors
        for place, one in enumerate(processors):
            if type(one).__module__.startswith("nvflare."):  # none of ours, which are there already
                processors[place] = _guarded(one)


def _guarded(processor: RequestProcessor) -> KnownJobs:
    if TrainingTopic.START_JOB in processor.get_topics():
        return CodedReplies(StartedOnce(processor))
    return (CodedReplies if TrainingTopic.DEPLOY in processor.get_topics() else KnownJobs)(processor)


class SignedJobs:
    """The record of one kit."""

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
