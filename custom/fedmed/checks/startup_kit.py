"""A startup kit, and what is wrong with it."""

import json
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

from fedmed.checks.part_in_job import PartInJob
from fedmed.checks.site_findings import SiteFinding, link_finding
from fedmed.errors import SiteConfigError
from fedmed.files import read_json
from fedmed.jobs.app_configs import role_config
from fedmed.jobs.app_shape import LIMITS
from fedmed.jobs.job_classes import job_classes

FILES = ("fed_client.json", "client.crt", "client.key", "rootCA.pem", "sub_start.sh")
RULES = ("resources", "authorization", "privacy")
SITE_FILE = Path("local") / "fedmed_site.yaml"
NEW_KIT = "ask the study lead for a new kit"
SOON = 30  # days
# What a kit names first, as scripts/provision.sh writes it. NVFlare builds the parts of a kit in this order.
WALLS = {"json_only": "fedmed.flare.json_only.JsonOnly", "plain_jobs": "fedmed.flare.job_gate.PlainJobs"}
MESSAGES = {"id": "site_messages", "path": "fedmed.flare.site_messages.SiteMessages", "args": {}}


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
    """Read a kit; SiteConfigError: no kit of a site there, or a damaged one; names the file."""
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
        certificate, root = (read_certificate(startup / name) for name in ("client.crt", "rootCA.pem"))
        site = str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
        days = (min(certificate.not_valid_after_utc, root.not_valid_after_utc) - datetime.now(UTC)).days
        return Kit(folder, site, host, int(port), secure, days, {name: _rules(folder, name) for name in RULES})
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise SiteConfigError(
            f"{startup}: the kit is damaged ({type(error).__name__}: {error}); ask the study lead for a new one"
        ) from error


def read_certificate(path: Path) -> x509.Certificate:
    """Read a certificate of a kit; SiteConfigError: it is missing or damaged."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SiteConfigError(f"{path} is not a readable certificate; ask the study lead for a new kit") from error


def _rules(folder: Path, name: str) -> dict[str, Any]:
    """NVFlare reads ``<name>.json``, and its default only where there is none."""
    places = [folder / "local" / f"{name}.json{ending}" for ending in ("", ".default")]
    return next((read_json(path, SiteConfigError, NEW_KIT) for path in places if path.is_file()), {})


def check_kit(kit: Kit, site: str, classes: Iterable[str] = (), own_code: bool = False) -> Iterator[SiteFinding]:
    """Say what is wrong with a kit.

    Args:
        kit, site: the kit, and the site's name in its own settings.
        classes, own_code: class paths that the site's app of a job names; whether it brings a folder ``custom/``.
    """
    certificate, root = read_certificate(kit.startup / "client.crt"), read_certificate(kit.startup / "rootCA.pem")
    if site != kit.site:
        text = f"the kit is that of '{kit.site}', the site's settings are those of '{site}'; use the kit of this site"
        yield link_finding("kit", text)
    try:
        certificate.verify_directly_issued_by(root)
    except (InvalidSignature, ValueError, TypeError):
        text = f"{kit.startup}/client.crt was not issued by rootCA.pem beside it; ask the study lead for a new kit"
        yield link_finding("certificate", text)
    key = kit.startup / "client.key"
    if not _belongs(key, certificate):
        yield link_finding("kit", f"{key} does not belong to client.crt beside it; ask the study lead for a new kit")
    yield from _validity(kit, certificate, root)
    if stat.S_IMODE(key.stat().st_mode) & 0o077:
        yield link_finding("key", f"{key} can be read by others, who could pretend to be this site: chmod 600 {key}")
    yield from _what_leaves(kit)
    yield from _what_is_let_in(kit)
    yield from _code(kit) if own_code else _classes(kit, classes)


def _belongs(key: Path, certificate: x509.Certificate) -> bool:
    try:
        return load_pem_private_key(key.read_bytes(), None).public_key() == certificate.public_key()
    except (OSError, ValueError, TypeError):
        return False


def _validity(kit: Kit, *certificates: x509.Certificate) -> Iterator[SiteFinding]:
    if any(datetime.now(UTC) < certificate.not_valid_before_utc for certificate in certificates):
        text = f"a certificate of {kit.startup} is not valid yet; is this machine's clock right?"
        yield link_finding("certificate", text)
    if kit.days < 0:
        text = f"a certificate of {kit.startup} ended {-kit.days} days ago; ask the study lead for a new kit"
        yield link_finding("certificate", text)
    elif kit.days < SOON:
        text = f"a certificate of {kit.startup} ends in {kit.days} days; ask the study lead for a new kit in time"
        yield link_finding("ends_soon", text)


def _what_leaves(kit: Kit) -> Iterator[SiteFinding]:
    """Logs, which NVFlare sends by default; what configurations of jobs read; the limits of the site."""
    resources, parts = kit.rules["resources"], kit.rules["resources"].get("components", [])
    streams = any("site_log_streamer" in str(part.get("path")) for part in parts)
    if streams or resources.get("allow_log_streaming") is not False:
        text = (
            f"{kit.resources} lets NVFlare send this site's error logs, which may name files, to the server: set "
            "allow_log_streaming to false and remove the component site_log_streamer"
        )
        yield link_finding("logs", text)
    if [part.get("path") for part in parts[: len(WALLS)] if not part.get("disabled")] != list(WALLS.values()):
        missing = ", ".join(json.dumps({"id": id, "path": path, "args": {}}) for id, path in WALLS.items())
        text = f"{kit.resources}: the configuration of a job could read this machine's environment and files. Put "
        yield link_finding("jobs", f"{text}{missing} before all other 'components', and restart the site")
    if LIMITS not in class_paths(kit.rules["privacy"]):
        text = f"{kit.folder}/local/privacy.json does not name {LIMITS}, so a job could leave out this site's limits"
        yield link_finding("limits", f"{text} on what it sends; take the file from a kit made by scripts/provision.sh")


def _what_is_let_in(kit: Kit) -> Iterator[SiteFinding]:
    """The messages and classes of a site's kit; those made before FedMed closed them have NVFlare's."""
    resources = kit.rules["resources"]
    parts = [part for part in resources.get("components", []) if not part.get("disabled")]
    if MESSAGES["path"] not in {part.get("path") for part in parts}:
        text = (
            f"{kit.resources}: server and other sites could ask this site for more than answers to tasks, and get it."
        )
        where = f"behind {list(WALLS)[-1]!r} into 'components'"
        yield link_finding("messages", f"{text} Put {json.dumps(MESSAGES)} {where}, and restart the site")
    listed = resources.get("class_allow_list", ["nvflare"])
    if more := sorted(set(listed) - set(job_classes())):
        some = ", ".join(more[:3]) + (f" and {len(more) - 3} more" if len(more) > 3 else "")
        text = f"{kit.resources}: 'class_allow_list' lets jobs load {some}, which no job of FedMed's names"
        yield link_finding("wide_list", f"{text}; leave only {json.dumps(job_classes())}, and restart the site")
    if resources.get("class_list_enforcement_mode", "enforce") != "enforce":
        text = f"{kit.resources}: jobs may load classes that 'class_allow_list' does not name"
        yield link_finding("wide_list", f"{text}; set class_list_enforcement_mode to 'enforce', and restart the site")


def _code(kit: Kit) -> Iterator[SiteFinding]:
    """Of a job that brings code NVFlare asks for this right, and for no list of classes."""
    rights = kit.rules["authorization"].get("permissions", {}).values()
    words = [role.get("byoc", "none") if isinstance(role, Mapping) else role for role in rights]  # one word is for all
    if words and all(word == "none" for word in words):
        text = "the job brings code (folder custom/), which this site's local/authorization.json lets nobody do"
        yield link_finding("code", f"{text}; ask the study lead for the job without it (custom: false in the study)")


def _classes(kit: Kit, classes: Iterable[str]) -> Iterator[SiteFinding]:
    """By default NVFlare allows its own classes alone."""
    resources = kit.rules["resources"]
    if resources.get("class_list_enforcement_mode", "enforce") == "enforce":
        allowed = resources.get("class_allow_list", ["nvflare"])
        for path in sorted(set(classes)):
            if not any(entry in ("*", path) or path.startswith(f"{entry.rstrip('.')}.") for entry in allowed):
                yield link_finding("classes", f"{kit.resources}: the job needs '{path}'; add it to class_allow_list")


def client_app(work: PartInJob) -> tuple[set[str], bool]:
    """Class paths that the site's app of the job names, and whether it brings a folder ``custom``."""
    if work.folder is None:
        return set(), False
    if work.folder.is_file():  # a study, of which the job is not written yet
        return set(class_paths(role_config(work.job, work.role))), work.job.study.custom
    meta = json.loads((work.folder / "meta.json").read_text(encoding="utf-8"))
    apps = [work.folder / app for app, sites in meta["deploy_map"].items() if work.part in sites]
    configs = [json.loads((app / "config" / "config_fed_client.json").read_text(encoding="utf-8")) for app in apps]
    return set(class_paths(configs)), any((app / "custom").is_dir() for app in apps)


def class_paths(value: Any) -> Iterator[str]:
    """Class paths anywhere in a configuration of NVFlare."""
    if isinstance(value, Mapping):
        if isinstance(value.get("path"), str):
            yield value["path"]
        for item in value.values():
            yield from class_paths(item)
    elif isinstance(value, list):
        for item in value:
            yield from class_paths(item)
