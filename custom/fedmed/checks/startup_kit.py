"""Read a site's startup kit and judge what can be judged without the server: files, certificates, what it allows."""

import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID

from fedmed.checks.kit_walls import check_walls
from fedmed.checks.part_in_job import class_paths
from fedmed.checks.site_findings import SiteFinding
from fedmed.errors import SiteConfigError
from fedmed.files import read_json

FILES = ("fed_client.json", "client.crt", "client.key", "rootCA.pem", "sub_start.sh")
RULES = ("resources", "authorization", "privacy")
SOON = 30  # days
SITE_FILE = Path("local") / "fedmed_site.yaml"
NEW_KIT = "ask the study lead for a new kit"
LIMITS = "fedmed.flare.filters.SiteLimitsFilter"


@dataclass(frozen=True)
class Kit:
    """A site's startup kit.

    Attributes:
        folder: it holds ``startup`` and ``local``, and is the site's workspace.
        site: the site's name, from its certificate.
        host, port, scheme: where the server is.
        secure: whether both sides show certificates (mTLS); a kit may ask for plain connections.
        days: days until the first of the site's and the federation's certificates ends.
        rules: content of ``resources``, ``authorization`` and ``privacy`` in ``local``; ``{}`` where there is none.
    """

    folder: Path
    site: str
    host: str
    port: int
    scheme: str
    secure: bool
    days: int
    rules: Mapping[str, dict[str, Any]]

    @property
    def startup(self) -> Path:
        """Folder of the certificates."""
        return self.folder / "startup"


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
        service = config["servers"][0]["service"]
        host, _, port = service["target"].rpartition(":")
        secure = config["client"].get("connection_security", "mtls") != "clear"
        own, root = (_certificate(startup / name) for name in ("client.crt", "rootCA.pem"))
        name = str(own.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
        target = {"host": host, "port": int(port), "scheme": str(service.get("scheme", "grpc")), "secure": secure}
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise SiteConfigError(
            f"{startup}: the kit is damaged ({type(error).__name__}: {error}); ask the study lead for a new one"
        ) from error
    days = min(days_left(own), days_left(root))
    return Kit(folder, name, days=days, rules={name: _rules(folder, name) for name in RULES}, **target)


def check_kit(kit: Kit, site: str, classes: Iterable[str] = (), own_code: bool = False) -> Iterator[SiteFinding]:
    """Say what is wrong with a kit.

    Args:
        kit: as :func:`read_kit` returns it.
        site: the site's name in its own settings.
        classes: class paths that the site's app of a job names.
        own_code: whether that app brings a folder ``custom/``.
    """
    own, root = _certificate(kit.startup / "client.crt"), _certificate(kit.startup / "rootCA.pem")
    if site != kit.site:
        text = f"the kit is that of '{kit.site}', the site's settings are those of '{site}'; use the kit of this site"
        yield _wrong("kit", text)
    try:
        own.verify_directly_issued_by(root)
    except (InvalidSignature, ValueError, TypeError):
        text = f"{kit.startup}/client.crt was not issued by rootCA.pem beside it; ask the study lead for a new kit"
        yield _wrong("certificate", text)
    key = kit.startup / "client.key"
    if not _belongs(key, own):
        yield _wrong("kit", f"{key} does not belong to client.crt beside it; ask the study lead for a new kit")
    yield from _validity(kit, own, root)
    if stat.S_IMODE(key.stat().st_mode) & 0o077:
        yield _wrong("key", f"{key} can be read by others, who could pretend to be this site: chmod 600 {key}")
    yield from _what_it_allows(kit, classes, own_code)


def _validity(kit: Kit, *certificates: x509.Certificate) -> Iterator[SiteFinding]:
    if any(datetime.now(UTC) < certificate.not_valid_before_utc for certificate in certificates):
        text = f"a certificate of {kit.startup} is not valid yet; is this machine's clock right?"
        yield _wrong("certificate", text)
    if kit.days < 0:
        text = f"a certificate of {kit.startup} ended {-kit.days} days ago; ask the study lead for a new kit"
        yield _wrong("certificate", text)
    elif kit.days < SOON:
        text = f"a certificate of {kit.startup} ends in {kit.days} days; ask the study lead for a new kit in time"
        yield SiteFinding("connection", "ends_soon", text)


def _what_it_allows(kit: Kit, classes: Iterable[str], own_code: bool) -> Iterator[SiteFinding]:
    """Defaults are NVFlare's: logs are sent, and its own classes are all that is allowed."""
    where, resources = kit.folder / "local" / "resources.json", kit.rules["resources"]
    streams = any("site_log_streamer" in str(part.get("path")) for part in resources.get("components", []))
    if resources.get("allow_log_streaming") is not False or streams:
        text = (
            f"{where} lets NVFlare send this site's error logs, which may name files, to the server: set "
            "allow_log_streaming to false and remove the component site_log_streamer"
        )
        yield _wrong("logs", text)
    yield from check_walls(where, resources)
    if LIMITS not in class_paths(kit.rules["privacy"]):
        text = f"{kit.folder}/local/privacy.json does not name {LIMITS}, so a job could leave out this site's limits"
        yield _wrong("limits", f"{text} on what it sends; take the file from a kit made by scripts/provision.sh")
    if own_code:
        rights = kit.rules["authorization"].get("permissions", {})
        if rights and all(_right(role, "byoc") == "none" for role in rights.values()):
            text = "the job brings code (folder custom/), which this site's local/authorization.json lets nobody do"
            yield _wrong("code", f"{text}; ask the study lead for the job without it (custom: false in the study)")
        return  # NVFlare asks for no class list then
    if resources.get("class_list_enforcement_mode", "enforce") == "enforce":
        allowed = resources.get("class_allow_list", ["nvflare"])
        for path in sorted(set(classes)):
            if not any(entry in ("*", path) or path.startswith(f"{entry.rstrip('.')}.") for entry in allowed):
                yield _wrong("classes", f"{where}: the job needs '{path}'; add it to class_allow_list")


def _right(role: Any, right: str) -> Any:
    """What a role may do: one word for all rights, or one for each."""
    return role.get(right, "none") if isinstance(role, Mapping) else role


def days_left(certificate: x509.Certificate) -> int:
    """Whole days until a certificate ends; negative afterwards."""
    return (certificate.not_valid_after_utc - datetime.now(UTC)).days


def _belongs(key: Path, certificate: x509.Certificate) -> bool:
    try:
        return load_pem_private_key(key.read_bytes(), None).public_key() == certificate.public_key()
    except (OSError, ValueError, TypeError):
        return False


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SiteConfigError(f"{path} is no readable certificate; ask the study lead for a new kit") from error


def _rules(folder: Path, name: str) -> dict[str, Any]:
    """NVFlare reads ``<name>.json``, and its default only where there is none."""
    places = [folder / "local" / f"{name}.json{ending}" for ending in ("", ".default")]
    return next((read_json(path, SiteConfigError, NEW_KIT) for path in places if path.is_file()), {})


def _wrong(kind: str, text: str) -> SiteFinding:
    return SiteFinding("connection", kind, text)
