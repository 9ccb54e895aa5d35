"""Who signed an exported bundle: a signature of its ``digests.json`` with the key of a startup kit.

The certificate comes with the bundle, and says of itself whose it is. That is believed only where this machine has the
root certificate of that federation, ``rootCA.pem`` of a kit, as ``$FEDMED_HOME/signers/NAME.pem``.
"""

import base64
import json
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import NameOID

from fedmed.bundles.digests import DIGESTS, SIGNATURE, bundle_files, changed_files, read_digests
from fedmed.errors import BundleError
from fedmed.files import fedmed_home

SIGNERS = "signers"  # folder of root certificates in $FEDMED_HOME
KEYS = ("client", "server")
PADDING = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.MAX_LENGTH)


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
    """Who signed a bundle as it is now, in words; a certificate counts where a root of this machine has issued it."""
    if not (root / SIGNATURE).is_file():
        return "nobody"
    try:
        certificate = _verified(root)
    except (OSError, ValueError, KeyError, TypeError, InvalidSignature, BundleError):
        return "nobody: its signature is not of these files"
    name = _named(certificate)
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


def _named(certificate: x509.Certificate) -> str:
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value)[:100] if names else ""
