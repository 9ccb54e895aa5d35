"""Digests of a bundle's files, and who signed them."""

import base64
import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import NameOID

from fedmed.errors import BundleError
from fedmed.files import fedmed_home

DIGESTS, SIGNATURE = "digests.json", "digests.signature.json"
FORMAT = 1
NOT_PART = {"eval", "data"}  # where a bundle's own commands read images and write results by default
SIGNERS = "signers"  # folder of root certificates in $FEDMED_HOME
KEYS = ("client", "server")
PADDING = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.MAX_LENGTH)


def write_digests(root: Path, made_of: Mapping[str, Any]) -> None:
    """Write the digests of all files of a bundle.

    Args:
        made_of: ``bundle``, the name of the one whose configurations it holds, and ``overlays`` that are merged in.
    """
    content = {"format": FORMAT, "made_of": dict(made_of), "files": dict(file_digests(root))}
    (root / DIGESTS).write_text(json.dumps(content, indent=4) + "\n", encoding="utf-8")


def read_digests(root: Path) -> dict[str, Any] | None:
    """Content of ``digests.json``; None where there is none, as in bundles of others and of an earlier FedMed.

    Raises:
        BundleError: it is damaged.
    """
    path = root / DIGESTS
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        sound = content["format"] == FORMAT and isinstance(content["made_of"], dict)
        if not sound or not all(isinstance(text, str) for item in content["files"].items() for text in item):
            raise ValueError("it does not hold what an export writes")
        return dict(content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BundleError(f"{path} cannot be read ({error}); export the bundle again") from error


def changed_files(root: Path, needed: Collection[str] = ()) -> list[str]:
    """Files that are not as they were exported, that are missing, or that are needed and not listed."""
    if (content := read_digests(root)) is None:
        return []
    listed = content["files"]
    changed = [name for name, digest in listed.items() if not _is(root / name, digest)]
    return sorted({*changed, *(name for name in needed if name not in listed)})


def check_file(root: Path, name: str) -> None:
    """Look at one file of a bundle before it is used.

    Raises:
        BundleError: it is not as it was exported.
    """
    content = read_digests(root)
    if content is not None and not _is(root / name, content["files"].get(name, "")):
        raise BundleError(f"{root / name} is not as it was exported (SHA-256); export the bundle again")


def bundle_files(root: Path) -> Iterator[Path]:
    """All files of a bundle, in a fixed order; not what is hidden, what Python compiled, nor data and results in it."""
    for path in sorted(root.rglob("*")):
        place = path.relative_to(root)
        hidden = any(part.startswith(".") or part == "__pycache__" for part in place.parts)
        if path.is_file() and not hidden and place.parts[0] not in NOT_PART:
            yield path


def file_digests(root: Path) -> Iterator[tuple[str, str]]:
    """(path in the bundle, SHA-256) of all its files but the list of digests itself and its signature."""
    for path in bundle_files(root):
        if (name := path.relative_to(root).as_posix()) not in (DIGESTS, SIGNATURE):
            yield name, sha256_of(path)


def whole_digest(root: Path) -> str:
    """One SHA-256 of the names and contents of all files of a bundle: by it a person says which one is trusted."""
    digest = hashlib.sha256()
    for path in bundle_files(root):
        digest.update(f"{path.relative_to(root).as_posix()}\0{sha256_of(path)}\n".encode())
    return digest.hexdigest()


def _is(path: Path, digest: str) -> bool:
    return path.is_file() and sha256_of(path) == digest


def sha256_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_key(kit: Path) -> tuple[Any, x509.Certificate]:
    """The key and the certificate of a startup kit.

    Raises:
        BundleError: there are none, or they do not belong to one another.
    """
    name = next((name for name in KEYS if (kit / "startup" / f"{name}.key").is_file()), KEYS[0])
    try:
        key: Any = load_pem_private_key((kit / "startup" / f"{name}.key").read_bytes(), None)
        certificate = x509.load_pem_x509_certificate((kit / "startup" / f"{name}.crt").read_bytes())
    except (OSError, ValueError, TypeError) as error:
        raise BundleError(f"{kit} holds no key to sign with, startup/{name}.key and .crt ({error})") from error
    try:
        _verify(certificate, key.sign(b"", PADDING, hashes.SHA256()), b"")
    except (TypeError, InvalidSignature) as error:  # of another kind than those of kits, or of another certificate
        raise BundleError(f"{kit}/startup/{name}.key does not belong to {name}.crt beside it") from error
    return key, certificate


def sign(root: Path, key: Any, certificate: x509.Certificate) -> None:
    """Sign the digests of a bundle; the signature and the certificate are written beside them."""
    signature = key.sign((root / DIGESTS).read_bytes(), PADDING, hashes.SHA256())
    content = {"certificate": certificate.public_bytes(Encoding.PEM).decode()}
    content["signature"] = base64.b64encode(signature).decode()
    (root / SIGNATURE).write_text(json.dumps(content, indent=4) + "\n", encoding="utf-8")


def signer(root: Path) -> str:
    """Say who signed a bundle as it is now; a certificate counts where a root of this machine has issued it."""
    if not (root / SIGNATURE).is_file():
        return "nobody"
    try:
        certificate = _verified(root)
    except (OSError, ValueError, KeyError, TypeError, InvalidSignature, BundleError):
        return "nobody: its signature is not of these files"
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    name = str(names[0].value)[:100] if names else ""
    for path in sorted((fedmed_home() / SIGNERS).glob("*.pem")):
        if _issued_by(certificate, path):
            return f"{name!r}, to whom {path} has issued the certificate"
    return f"somebody whose certificate says {name!r}, which no root certificate in {fedmed_home() / SIGNERS} confirms"


def _verified(root: Path) -> x509.Certificate:
    content: dict[str, Any] = json.loads((root / SIGNATURE).read_text(encoding="utf-8"))
    certificate = x509.load_pem_x509_certificate(content["certificate"].encode())
    _verify(certificate, base64.b64decode(content["signature"]), (root / DIGESTS).read_bytes())
    listed = set((read_digests(root) or {})["files"]) | {DIGESTS, SIGNATURE}
    if changed_files(root) or {path.relative_to(root).as_posix() for path in bundle_files(root)} != listed:
        raise ValueError("the signature is of other files")
    return certificate


def _verify(certificate: x509.Certificate, signature: bytes, content: bytes) -> None:
    key: Any = certificate.public_key()
    key.verify(signature, content, PADDING, hashes.SHA256())


def _issued_by(certificate: x509.Certificate, path: Path) -> bool:
    try:
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(path.read_bytes()))
    except (OSError, ValueError, TypeError, InvalidSignature):
        return False
    return True
