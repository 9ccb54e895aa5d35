"""Read a site's startup kit."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

from fedmed.errors import SiteConfigError
from fedmed.files import read_json

FILES = ("fed_client.json", "client.crt", "client.key", "rootCA.pem", "sub_start.sh")
RULES = ("resources", "authorization", "privacy")
SITE_FILE = Path("local") / "fedmed_site.yaml"
NEW_KIT = "ask the study lead for a new kit"


@dataclass(frozen=True)
class Kit:
    """A site's startup kit.

    Attributes:
        folder: it holds ``startup`` and ``local``, and is the site's workspace.
        site: the site's name, from its certificate.
        host, port: where the server is.
        secure: whether both sides show certificates (mTLS); a kit may ask for plain connections.
        days: days until the first of the site's and the federation's certificates ends; negative afterwards.
        rules: content of ``resources``, ``authorization`` and ``privacy`` in ``local``; ``{}`` where there is none.
    """

    folder: Path
    site: str
    host: str
    port: int
    secure: bool
    days: int
    rules: Mapping[str, dict[str, Any]]

    @property
    def startup(self) -> Path:
        """Folder of the certificates."""
        return self.folder / "startup"

    @property
    def resources(self) -> Path:
        """The file that says what NVFlare builds and allows at this site."""
        return self.folder / "local" / "resources.json"


def read_kit(folder: Path) -> Kit:
    """Read a kit.

    Raises:
        SiteConfigError: no kit of a site there, or a damaged one; names the file.
    """
    folder = Path(folder).expanduser().resolve()
    startup = folder / "startup"
    if (startup / "fed_server.json").is_file() or (startup / "fed_admin.json").is_file():
        raise SiteConfigError(f"--kit {folder} is the kit of a server or an admin; give the site's own")
    missing = [name for name in FILES if not (startup / name).is_file()]
    if missing:
        raise SiteConfigError(
            f"--kit {folder}: startup/{missing[0]} is missing; give the folder that holds 'startup' and 'local', "
            "unpacked as the study lead sent it"
        )
    config = read_json(startup / "fed_client.json", SiteConfigError, NEW_KIT)
    try:
        host, _, port = config["servers"][0]["service"]["target"].rpartition(":")
        secure = config["client"].get("connection_security", "mtls") != "clear"
        own, root = (read_certificate(startup / name) for name in ("client.crt", "rootCA.pem"))
        site = str(own.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
        days = (min(own.not_valid_after_utc, root.not_valid_after_utc) - datetime.now(UTC)).days
        return Kit(folder, site, host, int(port), secure, days, {name: _rules(folder, name) for name in RULES})
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise SiteConfigError(
            f"{startup}: the kit is damaged ({type(error).__name__}: {error}); ask the study lead for a new one"
        ) from error


def read_certificate(path: Path) -> x509.Certificate:
    """Read a certificate of a kit.

    Raises:
        SiteConfigError: it is missing or damaged.
    """
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SiteConfigError(f"{path} is not a readable certificate; ask the study lead for a new kit") from error


def _rules(folder: Path, name: str) -> dict[str, Any]:
    """NVFlare reads ``<name>.json``, and its default only where there is none."""
    places = [folder / "local" / f"{name}.json{ending}" for ending in ("", ".default")]
    return next((read_json(path, SiteConfigError, NEW_KIT) for path in places if path.is_file()), {})
