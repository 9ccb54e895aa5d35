"""Can the server listen there, and is there a DICOMweb server? Asked before anything is started."""

import errno
import http.client
import ipaddress
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Iterable

import psutil

from fedmed.errors import FedMedError

SECONDS = 10.0


def check_address(host: str, port: int) -> None:
    """Check that a server can listen at an address.

    Raises:
        FedMedError: the port is in use or not permitted, or the host is not this machine.
    """
    if not 1 <= port <= 65535:
        raise FedMedError(f"--port {port}: give a number from 1 to 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does: a port just freed is free
        try:
            probe.bind((host, port))
        except socket.gaierror as error:
            raise FedMedError(f"--host {host}: no such host ({error.strerror}); 127.0.0.1 is this machine") from error
        except OSError as error:
            raise FedMedError(_bind_error(host, port, error)) from error


def _bind_error(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use by another program; choose another --port, or end that program"
    if error.errno == errno.EACCES:
        return f"port {port} is not permitted to this user (below 1024?); choose a --port from 1024"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host {host} is not an address of this machine; 127.0.0.1 is this machine, 0.0.0.0 all its addresses"
    return f"cannot listen at {host}:{port} ({error.strerror})"


def is_loopback(host: str) -> bool:
    """True where only this machine reaches the address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def own_names(host: str, more: Iterable[str] = ()) -> frozenset[str]:
    """Names and addresses by which a server may be called: no other, so that no page of elsewhere reaches it by a
    name that is made to lead here.

    Args:
        host: address on which it listens.
        more: further names, of a proxy or in the hospital's DNS.
    """
    names = {"127.0.0.1", "localhost", "::1", host, *more}
    if not is_loopback(host):
        names.add(socket.gethostname())
        for addresses in psutil.net_if_addrs().values():
            kinds = (socket.AF_INET, socket.AF_INET6)
            names |= {address.address.partition("%")[0] for address in addresses if address.family in kinds}
    return frozenset(name.lower() for name in names) - {"0.0.0.0", "::"}


def local_url(host: str, port: int) -> str:
    """The server's address as a browser on this machine needs it."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def check_device(device: str | None) -> str | None:
    """Value of ``CUDA_VISIBLE_DEVICES`` for ``cpu``, ``cuda`` or ``cuda:N``; None = leave it.

    Raises:
        FedMedError: another text.
    """
    if device is None or device == "cuda":
        return None
    if device == "cpu":
        return ""
    if not re.fullmatch(r"cuda:\d+", device):
        raise FedMedError(f"--device {device}: give cpu, cuda or cuda:N")
    return device.removeprefix("cuda:")


def check_dicomweb(url: str) -> None:
    """Check that a server answers at a URL; a password, if it needs one, is a setting of MONAI Label.

    Raises:
        FedMedError: no server answers.
    """
    try:
        urllib.request.urlopen(url, timeout=SECONDS).close()
    except urllib.error.HTTPError:
        return
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise FedMedError(f"studies {url}: no DICOMweb server answers there ({reason}); correct the URL") from error
