"""Reach the federation's server from the site by a TLS handshake."""

import socket
import ssl
import time
from dataclasses import dataclass

from fedmed.checks.site_findings import SiteFinding, link_finding
from fedmed.checks.startup_kit import Kit

PATIENCE = 10.0  # seconds for a connection


@dataclass
class Connection:
    """What is known of the way to the server; None where it was not tried.

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


def shake_hands(kit: Kit, found: Connection) -> SiteFinding | None:
    """Connect to the server as NVFlare does, with the kit's certificates, and fill in what was seen.

    Returns:
        Why it failed, or None.
    """
    where, started = f"{kit.host}, port {kit.port}", time.monotonic()
    found.reached = False
    try:
        with socket.create_connection((kit.host, kit.port), PATIENCE) as plain:
            found.reached = True
            if kit.secure:
                with _context(kit).wrap_socket(plain, server_hostname=kit.host) as secured:
                    found.tls = secured.version()
                    found.milliseconds = 1000 * (time.monotonic() - started)
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
        text = f"{where}: no answer in {PATIENCE:.0f} s; let the firewall open outgoing TCP connections to it"
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
    secured.settimeout(PATIENCE)
    try:
        if secured.recv(1) == b"":
            raise ssl.SSLError(1, "the server closed the connection; it may not accept this site's certificate")
    except TimeoutError:
        return  # another scheme, whose server waits for the site
