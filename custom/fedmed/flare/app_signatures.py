"""Who signed an app, and with which signatures; whether they are right is for NVFlare to check.

NVFlare's client signs every file and folder of a job anew whenever it is submitted, and its signatures hold random
salt (RSA-PSS). So two submissions of the same folder share no signature, and a signature stands for one submission.
"""

import base64
import hashlib
import io
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

from cryptography import x509
from cryptography.x509.oid import NameOID
from nvflare.lighter.tool_consts import NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE

from fedmed.errors import JobError

OWN = {NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE}
SUBJECT = (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.UNSTRUCTURED_NAME)  # name, organisation, role


@dataclass(frozen=True)
class Signed:
    """What is known of an app's signatures; nothing of an app that is not signed.

    Attributes:
        signers: name, organisation and role in the certificates.
        signatures: SHA-256 of each signature of a file or folder that is there, in hexadecimal.
    """

    signers: frozenset[tuple[str, str, str]] = frozenset()
    signatures: frozenset[str] = frozenset()


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
    found = set()
    for path in app.rglob(NVFLARE_SIG_FILE):
        with suppress(OSError, ValueError, TypeError, AttributeError):  # somebody has changed it since
            found |= {_digest(signature) for signature in json.loads(path.read_text(encoding="utf-8")).values()}
    return frozenset(found)


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
    yield from (_digest(signatures[name]) for name in sorted(names - OWN))


def _digest(signature: str) -> str:
    number = base64.b64decode(signature).lstrip(b"\0")  # a number may be written with or without leading zeros
    return hashlib.sha256(number).hexdigest()
