"""Description of a submitted job, and the signatures of its apps.

Each check raises a :class:`fedmed.errors.JobError` that names the key, and the remedy.
"""

import base64
import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from cryptography import x509
from cryptography.x509.oid import NameOID
from nvflare.apis.app_validation import AppValidationKey
from nvflare.apis.job_def import JobMetaKey
from nvflare.lighter.tool_consts import NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE

from fedmed.errors import JobError
from fedmed.flare.job_archive import META, STUDY
from fedmed.jobs.job_meta import job_meta
from fedmed.jobs.study_text import parse_study

SIGNATURES = {NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE}
SUBJECT = (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.UNSTRUCTURED_NAME)  # name, organisation, role
REMEDY = "write the job anew with fedmed study package, and submit it without changing meta.json"
LEADS = {"name", "resource_spec", "min_clients", "deploy_map"}
STUDY_NAME = re.compile(r"[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?")  # NVFlare's groups of sites and people, 'default' here
SUBMITTER = (JobMetaKey.SUBMITTER_NAME, JobMetaKey.SUBMITTER_ORG, JobMetaKey.SUBMITTER_ROLE)
# What the server adds: who has submitted the job and when, under which id, what became of it. Nothing in it changes
# where or how a job runs, as launcher_spec, scope, custom_props, edge_method and stats_pool_config would.
SERVERS = {
    AppValidationKey.BYOC,
    *(key.value for key in SUBMITTER),
    *(
        key.value
        for key in (
            *(JobMetaKey.JOB_ID, JobMetaKey.JOB_FOLDER_NAME, JobMetaKey.STUDY, JobMetaKey.STATUS),
            *(JobMetaKey.DATA_STORAGE_FORMAT, JobMetaKey.CONTENT_LOCATION, JobMetaKey.RESULT_LOCATION),
            *(JobMetaKey.SUBMIT_TIME, JobMetaKey.SUBMIT_TIME_ISO, JobMetaKey.START_TIME, JobMetaKey.DURATION),
            *(JobMetaKey.JOB_DEPLOY_DETAIL, JobMetaKey.SCHEDULE_COUNT, JobMetaKey.LAST_SCHEDULE_TIME),
            *(JobMetaKey.SCHEDULE_HISTORY, JobMetaKey.JOB_CLIENTS, JobMetaKey.APPROVALS),
        )
    ),
}


@dataclass(frozen=True)
class Signed:
    """Signatures of an app; empty for one that is not signed."""

    signers: frozenset[tuple[str, str, str]] = frozenset()  # name, organisation and role in the certificates
    signatures: frozenset[str] = frozenset()  # SHA-256 of each signature of a file or folder, in hexadecimal


def read_signatures(app: bytes) -> Signed:
    """Read the signatures of an app.

    Args:
        app: its zip archive, which :func:`fedmed.flare.job_archive.check_app` has passed.

    Raises:
        JobError: the app is signed, but not all of it, or a certificate cannot be read.
    """
    with ZipFile(io.BytesIO(app)) as opened:
        inside = _folders(opened.namelist())
        if NVFLARE_SIG_FILE not in inside[""]:
            return Signed()
        try:
            signers = frozenset(_signer(opened, folder) for folder in inside)
            signatures = frozenset(one for folder in inside for one in _signatures(opened, folder, inside[folder]))
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise JobError(f"the job's app is not signed as a whole ({error}); submit the job again") from error
    return Signed(signers, signatures)


def signatures_below(app: Path) -> frozenset[str]:
    """Digests of all signatures in the folder of an unpacked app, as far as they can be read."""
    digests = set()
    for path in app.rglob(NVFLARE_SIG_FILE):
        with suppress(OSError, ValueError, TypeError, AttributeError):  # somebody has changed it since
            digests |= {_digest(signature) for signature in json.loads(path.read_text(encoding="utf-8")).values()}
    return frozenset(digests)


def _folders(paths: list[str]) -> dict[str, set[str]]:
    """Folder, with a slash at its end -> names of what lies in it."""
    inside: dict[str, set[str]] = {"": set()}
    for path in paths:
        parts = path.rstrip("/").split("/")
        for depth, name in enumerate(parts):
            folder = "".join(f"{part}/" for part in parts[:depth])
            inside.setdefault(folder, set()).add(name)
        if path.endswith("/"):
            inside.setdefault(path, set())
    return inside


def _signer(opened: ZipFile, folder: str) -> tuple[str, str, str]:
    subject = x509.load_pem_x509_certificates(opened.read(folder + NVFLARE_SUBMITTER_CRT_FILE))[0].subject
    name, org, role = ("".join(str(part.value) for part in subject.get_attributes_for_oid(oid)[:1]) for oid in SUBJECT)
    return name, org, role


def _signatures(opened: ZipFile, folder: str, names: set[str]) -> Iterator[str]:
    signatures = json.loads(opened.read(folder + NVFLARE_SIG_FILE))
    yield from (_digest(signatures[name]) for name in sorted(names - SIGNATURES))


def _digest(signature: str) -> str:
    number = base64.b64decode(signature).lstrip(b"\0")  # a number may be written with or without leading zeros
    return hashlib.sha256(number).hexdigest()


def check_submitted(archive: bytes | str | Path, name: str) -> None:
    """Refuse a submitted job whose description says more than its study, or something else.

    Args:
        archive: the zip archive, or its path; :func:`fedmed.flare.job_archive.check_job` has passed it.
    """
    with ZipFile(io.BytesIO(archive) if isinstance(archive, bytes) else archive) as opened:
        paths = set(opened.namelist())
        if f"{name}/{META}" not in paths:
            raise JobError(f"job '{name}': {META} is missing; {REMEDY}")
        meta = json.loads(opened.read(f"{name}/{META}"))
        if others := sorted(set(meta) - LEADS):
            raise JobError(f"job '{name}': {META} has '{others[0]}', which no job may bring; {REMEDY}")
        apps = {path.split("/")[1] for path in paths if path.count("/") > 1}
        for text in sorted({_text(opened, f"{name}/{app}/config/{STUDY}") for app in sorted(apps)}):  # one, as a rule
            check_study(meta, text)
        if missing := sorted(set(meta["deploy_map"]) ^ apps):
            raise JobError(f"job '{name}': app '{missing[0]}' is not both in {META} and in the job; {REMEDY}")


def check_deployed(meta: Mapping[str, Any], job_id: str, app: bytes, signed: Signed) -> None:
    """Refuse a description that comes with an app and does not fit it.

    Args:
        app: its zip archive, which :func:`fedmed.flare.job_archive.check_app` has passed.
    """
    _no_others(meta)
    if meta.get("job_id") != job_id:
        raise JobError(f"the job's description is that of job {meta.get('job_id')!r}, not of {job_id}; {REMEDY}")
    if not STUDY_NAME.fullmatch(str(meta.get("study", "default"))):
        raise JobError(f"{meta['study']!r} is not the name of a study of NVFlare's; {REMEDY}")
    submitter = tuple(meta.get(key.value) for key in SUBMITTER)
    if signed.signers and signed.signers != {submitter}:
        raise JobError(f"the job was signed by {sorted(signed.signers)}, its description says {submitter}; {REMEDY}")
    with ZipFile(io.BytesIO(app)) as opened:
        check_study(meta, _text(opened, f"config/{STUDY}"))


def check_started(meta: Mapping[str, Any], deployed: Mapping[str, Any]) -> None:
    """Refuse to start a job under another description than that with which it was deployed.

    Args:
        meta: the description that comes with the command to start.
        deployed: the one that was written when the job was unpacked.
    """
    _no_others(meta)
    for key in (*sorted(LEADS), "job_id", "study", *(key.value for key in SUBMITTER)):
        if meta.get(key) != deployed.get(key):
            text = f"the job was deployed with {key} {deployed.get(key)!r}, and is started with {meta.get(key)!r}"
            raise JobError(f"{text}; {REMEDY}")


def check_study(meta: Mapping[str, Any], text: str) -> None:
    """Refuse a description that a study does not make."""
    study = parse_study(text, STUDY).values
    sites, needed = study.get("sites"), study.get("min_clients")
    if not isinstance(sites, dict) or not all(isinstance(part, str) for one in sites.items() for part in one):
        raise JobError(f"{STUDY}: 'sites' is not a list of sites and roles; {REMEDY}")
    for key, value in job_meta(str(study.get("name")), sites, needed).items():
        if meta.get(key) != value:
            raise JobError(f"the job's description has {key} {meta.get(key)!r}, its study makes it {value!r}; {REMEDY}")


def _no_others(meta: Mapping[str, Any]) -> None:
    if others := sorted(set(meta) - LEADS - SERVERS, key=str):
        raise JobError(f"the job's description has {others[0]!r}, which no study says; {REMEDY}")


def _text(opened: ZipFile, path: str) -> str:
    try:
        return opened.read(path).decode()
    except (KeyError, UnicodeDecodeError) as error:
        raise JobError(f"{path} is missing, or no text; {REMEDY}") from error
