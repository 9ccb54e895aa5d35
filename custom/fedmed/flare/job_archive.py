"""A submitted job as an archive: what may be in it, and what its id may be."""

import io
import json
import logging
import re
import stat
import uuid
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, LargeZipFile, ZipFile, ZipInfo

from fedmed.errors import JobError
from fedmed.flare.private_flare import (
    Message,
    RequestHeader,
    RequestProcessor,
    error_reply,
)
from fedmed.jobs.app_shape import check_shape

META = "meta.json"
CONFIGS = {"config_fed_server.json", "config_fed_client.json"}
SIGNATURES = {".__nvfl_sig.json", ".__nvfl_submitter.crt"}  # NVFlare adds both to every folder that it signs
FORMATS = {"json", "conf", "hocon", "yml", "yaml"}  # endings under which NVFlare looks for configurations
FOLDERS = {"config", "resume", "resume/models", "resume/checkpoints"}  # of an app, beside custom/ and what is below it
STUDY = "study.yaml"  # read by FedMed alone, which evaluates nothing; NVFlare does not look under this name
STATE = re.compile(r"resume/(rounds\.jsonl|(models|checkpoints)/round_[0-9]+\.pt)")  # of a resumed run
APP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
LIMIT = 1 << 20  # bytes of one configuration
BROKEN = (BadZipFile, LargeZipFile, zlib.error, OSError, EOFError, RuntimeError, ValueError)
RULE = "a job holds meta.json and config_fed_*.json in plain JSON, study.yaml, and custom/ where sites allow code"
REMEDY = f"{RULE}; write it with fedmed study package, and see docs/deployment.md"
log = logging.getLogger("fedmed.site")
WRONG_ID = "JOB_ID_WRONG"  # what the server is told


def check_job(archive: bytes | str | Path, name: str) -> None:
    """Refuse a submitted job that is more than plain JSON.

    Args:
        name: of the job's folder, the only one at the top of the archive.

    Raises:
        JobError: names the first entry that has no place in a job, or that is not plain JSON, and the remedy.
    """
    _check(archive, f"job '{name}'", lambda path: _in_job(path, name))


def check_app(archive: bytes) -> None:
    """Refuse an app, the part of a job that one participant gets, as :func:`check_job` does."""
    _check(archive, "the job's app", _in_app)


def _check(archive: bytes | str | Path, what: str, belongs: Callable[[str], bool]) -> None:
    source = io.BytesIO(archive) if isinstance(archive, bytes) else archive
    try:
        with ZipFile(source) as opened:
            entries = list(_entries(opened, what))
            for info in entries:
                if not belongs(info.filename):
                    raise JobError(f"{what}: {info.filename!r} has no place in a job; {REMEDY}")
                file = info.filename.rpartition("/")[2]
                if file in {META, *CONFIGS}:
                    content = _plain(opened, info, what)
                    app = info.filename.removesuffix(f"config/{file}")
                    if file in CONFIGS and not any(entry.filename.startswith(f"{app}custom/") for entry in entries):
                        check_shape(content, info.filename, what)  # NVFlare asks for the right 'byoc' of the others
                if info.filename.endswith(f"config/{STUDY}") and info.file_size > LIMIT:
                    raise JobError(f"{what}: {info.filename!r} has more than {LIMIT} bytes; {REMEDY}")
    except BROKEN as error:  # its text may quote the content
        raise JobError(f"{what}: the archive cannot be read ({type(error).__name__}); submit it again") from error


def _entries(opened: ZipFile, what: str) -> Iterator[ZipInfo]:
    """Entries whose names mean the same to every reader."""
    seen: set[str] = set()
    for info in opened.infolist():
        path, name = info.filename, info.filename.removesuffix("/")
        odd = path != info.orig_filename or not path.isprintable() or "\\" in path or name.casefold() in seen
        if odd or stat.S_ISLNK(info.external_attr >> 16) or {"", ".", ".."} & set(name.split("/")):
            raise JobError(f"{what}: {path!r} is there twice, a link, or not a plain name; {REMEDY}")
        seen.add(name.casefold())
        yield info


def _in_job(path: str, name: str) -> bool:
    root, slash, rest = path.partition("/")
    app, inside, inner = rest.partition("/")
    if root != name or not slash:
        return False
    if not inside:
        return rest in {"", META, *SIGNATURES}
    return bool(APP.fullmatch(app)) and (not inner or _in_app(inner))


def _in_app(path: str) -> bool:
    folder, _, file = path.rpartition("/")
    custom = bool(folder) and folder.split("/")[0] == "custom"
    if not file or file in SIGNATURES:
        return custom or folder in FOLDERS or (not folder and bool(file))
    if custom:
        return not FORMATS & set(file.casefold().split(".")[1:])
    return (folder == "config" and file in {STUDY, *CONFIGS}) or bool(STATE.fullmatch(path))


def _plain(opened: ZipFile, info: ZipInfo, what: str) -> dict[str, Any]:
    """Read what is one JSON object of plain values, each key once, and refuse anything else."""
    try:
        with opened.open(info) as file:
            content = file.read(LIMIT + 1)
        if len(content) > LIMIT:
            raise ValueError("too large")
        value = json.loads(content.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
        if not isinstance(value, dict) or any("{" in text or "}" in text for text in _texts(value)):
            raise ValueError("not plain values")  # in NVFlare braces stand for variables, the environment's included
        return value
    except (ValueError, RecursionError) as error:
        text = f"{what}: {info.filename!r} is not plain JSON: one object in UTF-8 of at most {LIMIT} bytes"
        raise JobError(f"{text}, each key once, no NaN, no braces within texts; {REMEDY}") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(keys := dict(pairs)) != len(pairs):
        raise ValueError("a key is there twice")
    return keys


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from (key, *_texts(item))
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def is_job_id(value: object) -> bool:
    """Tell whether NVFlare could have made this id: ``str(uuid.uuid4())``, letter by letter."""
    try:
        return isinstance(value, str) and value == str(uuid.UUID(value)) and uuid.UUID(value).version == 4
    except ValueError:
        return False


def check_job_id(job_id: object) -> None:
    """Refuse what is not an id.

    Raises:
        JobError: NVFlare makes no such ids.
    """
    if not is_job_id(job_id):
        raise JobError(f"{job_id!r} is not an id that NVFlare makes; submit the job without an id")


def check_new(job_id: object, kit: Path) -> None:
    """Refuse an id whose folder may not be written.

    Raises:
        JobError: NVFlare makes no such ids, or there is a file or folder of this name already.
    """
    check_job_id(job_id)
    if (folder := kit / str(job_id)).exists() or folder.is_symlink():
        raise JobError(f"{folder} exists already, and no job is unpacked twice; submit the job again")


class KnownJobs(RequestProcessor):
    """Answers a site's commands as another processor does, but none about a job that cannot be one."""

    def __init__(self, inner: RequestProcessor) -> None:
        self.inner = inner

    def get_topics(self) -> list[str]:
        """Names of the commands."""
        topics: list[str] = self.inner.get_topics()
        return topics

    def process(self, req: Message, app_ctx: Any) -> Message:
        """Answer a command of the server's. Some are about no job."""
        job_id = req.get_header(RequestHeader.JOB_ID)
        if job_id not in (None, "") and not is_job_id(job_id):
            log.error("%s: %r is not an id that NVFlare makes; the command was refused", req.topic, job_id)
            return error_reply(WRONG_ID)
        return self.inner.process(req, app_ctx)
