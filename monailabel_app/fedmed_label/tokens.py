"""A secret that clients must know: made once, kept in a file that only its user can read."""

import base64
import binascii
import hmac
import os
import secrets
import stat
from pathlib import Path
from urllib.parse import parse_qs

from fedmed.errors import FedMedError

SHORTEST = 20  # characters


def make_token(path: Path) -> Path:
    """Make a file with a new token where there is none.

    Raises:
        FedMedError: the file cannot be made, or :func:`read_token` would refuse it.
    """
    path = path.expanduser().absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{secrets.token_urlsafe(24)}\n")
    except FileExistsError:
        pass
    except OSError as error:
        raise FedMedError(f"--token {path}: the file cannot be made ({error.strerror}); name another") from error
    read_token(path)
    return path


def read_token(path: Path) -> str:
    """The token in a file.

    Raises:
        FedMedError: unreadable, readable to others, or too short to be a secret.
    """
    try:
        mode, token = path.stat().st_mode, path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise FedMedError(f"--token {path}: not readable ({error}); remove it, and a new one is made") from error
    if stat.S_IMODE(mode) & 0o077:
        raise FedMedError(f"--token {path}: others than you may read it; chmod 600 {path}, or name another file")
    if len(token) < SHORTEST:
        raise FedMedError(f"--token {path}: fewer than {SHORTEST} characters; remove it, and a new one is made")
    return token


def knows(token: str, authorization: str) -> bool:
    """True where an ``Authorization`` header holds the token: as bearer, or as the password of a browser's login."""
    kind, _, given = authorization.partition(" ")
    if kind.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return False
    elif kind.lower() != "bearer":
        return False
    return same(token, given.strip())


def same(token: str, given: str) -> bool:
    """Compare in a time that says nothing about the token."""
    return hmac.compare_digest(token.encode(), given.encode())


def form_password(body: bytes) -> str:
    """The password in the form with which 3D Slicer logs in."""
    try:
        fields = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        return ""
    return fields.get("password", [""])[0]
