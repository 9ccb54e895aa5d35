"""The machine that a site trains on: devices, memory, disk, and the way to the server."""

import importlib.metadata
import os
import platform
import shutil
import socket
import ssl
import stat
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

import fedmed
from fedmed.checks.site_findings import SiteFinding, link_finding
from fedmed.checks.startup_kit import Kit
from fedmed.files import CACHE_FOLDER, prepared_sizes
from fedmed.reports.words import size
from fedmed.settings.site import SiteConfig

STATES = 3 * 3 + 2  # rounds that are kept, of a tensor and Adam's two moments; and twice the site's own best model
COMFORT = 2  # below so many times the need, a note
PACKAGES = ("nvflare", "monai", "torch", "numpy", "nibabel")
CONNECT_TIMEOUT = 10.0  # seconds for a connection


@dataclass(frozen=True)
class Space:
    """Bytes that a folder needs, that are free on its disk, and that it holds already and could be deleted."""

    what: str
    folder: Path
    needed: int
    free: int
    held: int = 0


def state_bytes(model_bytes: int | None) -> int:
    """Estimate what a job keeps at the site: three rounds of the model with Adam's moments, and its own best."""
    return STATES * (model_bytes or 0)


def check_disk(
    site: SiteConfig, workspace: Path | None, cache: int, state: int
) -> tuple[list[Space], list[SiteFinding]]:
    """Compare needs with free space, folder by folder and together where they lie on one disk.

    Args:
        site, workspace: its ``cache_dir`` is looked at, and where jobs run (its startup kit), if known.
        cache, state: bytes of all prepared cases and of what a job keeps; what is in the cache counts as free.
    """
    remedies = {"cache": f"made or written; correct key 'cache_dir' in {site.source}"}
    places = [("cache", site.cache_dir, cache, _stored(site.cache_dir))]
    places += [("workspace", workspace, state, 0)] if workspace else []
    spaces, findings = [], []
    for what, folder, needed, held in places:
        nearest = nearest_folder(folder)
        spaces.append(Space(what, folder, needed, shutil.disk_usage(nearest).free, held))
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            remedy = remedies.get(what, "written; correct its permissions")
            findings.append(SiteFinding("disk", what, f"the {what} folder {folder} cannot be {remedy}"))
    return spaces, [*findings, *_permissions(site.cache_dir / CACHE_FOLDER), *_room(spaces)]


def nearest_folder(folder: Path) -> Path:
    """The folder itself or the first parent that exists."""
    while not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    return folder


def _stored(cache_dir: Path) -> int:
    try:
        return sum(prepared_sizes(cache_dir))
    except OSError:
        return 0


def _permissions(folder: Path) -> Iterator[SiteFinding]:
    if not folder.is_dir():
        return
    facts = folder.stat()
    if stat.S_IMODE(facts.st_mode) & 0o077:
        if facts.st_uid == os.geteuid():
            yield SiteFinding("disk", "open_cache", f"{folder} can be read by others; close it now: chmod 700 {folder}")
        else:
            text = f"{folder} belongs to another user and can be read by others; choose another cache_dir"
            yield SiteFinding("disk", "cache", text)


def _room(spaces: Sequence[Space]) -> Iterator[SiteFinding]:
    disks: dict[int, list[Space]] = defaultdict(list)
    for space in spaces:
        disks[nearest_folder(space.folder).stat().st_dev].append(space)
    for sharing in disks.values():
        needed, held = sum(space.needed for space in sharing), sum(space.held for space in sharing)
        free = sharing[0].free
        names = " and ".join(f"{space.what} ({space.folder})" for space in sharing)
        text = f"{names} will need about {size(needed)}, and {size(free)} are free"
        text += f" beside {size(held)} of prepared cases, which fedmed site purge deletes" if held else ""
        if free + held < needed:
            yield SiteFinding("disk", "no_space", f"{text}; free some space or name another disk")
        elif free + held < COMFORT * needed:
            yield SiteFinding("disk", "little_space", f"{text}; other programs may need that too")


@dataclass(frozen=True)
class MachineFacts:
    """Facts about the machine; none of them names it.

    Attributes:
        device: what the site uses, ``cpu`` or ``cuda:0`` with the GPU's model name.
        gpus: (model, bytes of memory, bytes free) of each GPU.
        cores: CPU cores that this process may use; ``threads`` and ``workers`` are the site's settings.
        memory: bytes of main memory, and how much is available now.
        versions: (name, version) of what takes part.
    """

    device: str
    gpus: tuple[tuple[str, int, int], ...]
    cores: int
    threads: int
    workers: int
    memory: tuple[int, int]
    versions: tuple[tuple[str, str], ...]


def check_machine(site: SiteConfig) -> tuple[MachineFacts, list[SiteFinding]]:
    """Return the machine's facts, and where the site's settings do not fit them."""
    gpus = tuple(_gpu(index) for index in range(torch.cuda.device_count())) if torch.cuda.is_available() else ()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    index = (torch.device(site.device).index or 0) if site.device.startswith("cuda") else None
    device = f"{site.device} ({gpus[index][0]})" if index is not None and index < len(gpus) else site.device
    memory = psutil.virtual_memory()
    amount = (memory.total, memory.available)
    machine = MachineFacts(device, gpus, cores, site.threads, site.workers, amount, tuple(_versions()))
    return machine, list(_findings(site, machine, index))


def _gpu(index: int) -> tuple[str, int, int]:
    free, total = torch.cuda.mem_get_info(index)
    return torch.cuda.get_device_name(index), total, free


def _findings(site: SiteConfig, machine: MachineFacts, index: int | None) -> Iterator[SiteFinding]:
    if index is not None and index >= len(machine.gpus):
        known = ", ".join(f"cuda:{place}" for place in range(len(machine.gpus))) or "none"
        text = f"{site.source}: key 'device' is '{site.device}', but the GPUs here are: {known}; correct it"
        yield SiteFinding("device", "device", text)
    if index is None and machine.gpus:
        text = f"{site.source}: key 'device' is '{site.device}', but there is a {machine.gpus[0][0]}; use auto or cuda"
        yield SiteFinding("device", "idle_gpu", text)
    if site.threads > machine.cores:
        text = f"{site.source}: key 'threads' is {site.threads}, but there are {machine.cores} cores; more only get in "
        yield SiteFinding("device", "threads", f"{text}each other's way: lower it")


def _versions() -> Iterator[tuple[str, str]]:
    """Versions of FedMed, Python, the operating system's kind and the packages that matter."""
    yield "fedmed", fedmed.__version__
    yield "python", platform.python_version()
    for name in PACKAGES:
        yield name, importlib.metadata.version(name)
    yield "system", f"{platform.system()} {platform.machine()}"


@dataclass
class Connection:
    """Facts about the way to the server; None where it was not tried.

    Attributes:
        reached: whether a connection could be made.
        tls: version of TLS, such as ``TLSv1.3``.
        milliseconds: time for connection and handshake.
        days: days until the first certificate ends.
        preflight: whether NVFlare's own check passed.
        registered: whether the site registered with the server during that check.
    """

    reached: bool | None = None
    tls: str | None = None
    milliseconds: float | None = None
    days: int | None = None
    preflight: bool | None = None
    registered: bool | None = None


def tls_connect(kit: Kit, connection: Connection) -> SiteFinding | None:
    """Connect to the server as NVFlare does, with the kit's certificates, and fill in what was seen.

    Returns:
        Why it failed, or None.
    """
    where, started = f"{kit.host}, port {kit.port}", time.monotonic()
    connection.reached = False
    try:
        with socket.create_connection((kit.host, kit.port), CONNECT_TIMEOUT) as plain:
            connection.reached = True
            if kit.secure:
                with _context(kit).wrap_socket(plain, server_hostname=kit.host) as secured:
                    connection.tls = secured.version()
                    connection.milliseconds = 1000 * (time.monotonic() - started)
                    _wait_for_a_byte(secured)
    except ssl.SSLCertVerificationError as error:
        remedy = "is it the right server, and does the network open TLS connections on the way?"
        return link_finding("handshake", f"{where}: its certificate is not accepted ({error.verify_message}); {remedy}")
    except ssl.SSLError as error:
        remedy = "ask the study lead whether this kit is the newest one, and whether the port is right"
        return link_finding("handshake", f"{where}: no TLS connection ({error.reason or error}); {remedy}")
    except socket.gaierror:
        text = f"the server's name '{kit.host}' is unknown here; correct the DNS, or add it to /etc/hosts"
        return link_finding("unreachable", text)
    except TimeoutError:
        text = f"{where}: no answer in {CONNECT_TIMEOUT:.0f} s; let the firewall open outgoing TCP connections to it"
        return link_finding("unreachable", text)
    except OSError as error:
        text = f"{where}: {error.strerror or error}; is the server running, and is the port right?"
        return link_finding("unreachable", text)
    return None


def _context(kit: Kit) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(kit.startup / "rootCA.pem"))
    context.load_cert_chain(kit.startup / "client.crt", kit.startup / "client.key")
    context.set_alpn_protocols(["h2"])
    return context


def _wait_for_a_byte(secured: ssl.SSLSocket) -> None:
    """With TLS 1.3 a server refuses a certificate after the handshake; gRPC speaks first when it accepts."""
    secured.settimeout(CONNECT_TIMEOUT)
    try:
        if secured.recv(1) == b"":
            raise ssl.SSLError(1, "the server closed the connection; it may not accept this site's certificate")
    except TimeoutError:
        return  # another scheme, whose server waits for the site
