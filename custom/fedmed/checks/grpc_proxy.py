"""Whether gRPC, by which NVFlare speaks with the server, goes through a proxy of this machine's environment."""

import ipaddress
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from fedmed.checks.site_findings import SiteFinding, link_finding

PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
EXCEPTIONS = ("no_grpc_proxy", "no_proxy")


def check_proxy(host: str, port: int, environment: Mapping[str, str]) -> Iterator[SiteFinding]:
    """Say which proxy gRPC takes to the server, and how to except it; nothing where it takes none.

    As gRPC itself reads the variables, in small letters alone: the first of each kind that is set counts, empty or not;
    an exception is the end of a name, or a network of addresses, and neither ``*`` nor one with a port is any.
    """
    variable = next((name for name in PROXIES if name in environment), None)
    if variable is None or not environment[variable]:
        return
    listed = next((environment[name] for name in EXCEPTIONS if name in environment), "")
    if any(_excepts(entry.strip(), host) for entry in listed.split(",")):
        return
    text = (
        f"{variable} is set, so gRPC goes to {host}, port {port}, through the proxy {_shown(environment[variable])}, "
    )
    text += "where this check's handshake went directly; a proxy that opens TLS on the way breaks the connection. To "
    text += f"except the server, write where the site is started: export no_grpc_proxy={host}"
    yield link_finding("proxy", text)


def _excepts(entry: str, host: str) -> bool:
    if not entry:
        return False
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:  # one of the two is a name
        return host.lower().endswith(entry.lower())


def _shown(proxy: str) -> str:
    """The address without the name and password that it may hold."""
    return proxy.rpartition("@")[2] if "@" in proxy else (urlsplit(proxy).netloc or proxy)
