"""The handshake, against a small TLS server in this process."""

import json
import socket
import ssl
import threading
from contextlib import contextmanager

from made_kits import Authority

from fedmed.checks.machine import Connection, tls_connect
from fedmed.checks.startup_kit import check_kit, read_kit


@contextmanager
def server(folder, authority, host="localhost", trusts=None):
    """A TLS server that asks for certificates and says a byte to whom it accepts; yields its port."""
    folder.mkdir(exist_ok=True)
    authority.issue(folder, "server", "server", host=host)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    (trusts or authority).issue(folder, "other", "other")  # writes the rootCA.pem that is trusted
    context.load_verify_locations(folder / "rootCA.pem")
    with socket.create_server(("localhost", 0)) as listener:

        def serve():
            try:
                with context.wrap_socket(listener.accept()[0], server_side=True) as stream:
                    stream.send(b"!")
            except OSError:
                return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(5)


def test_a_handshake_is_timed(tmp_path, authority, make_kit):
    with server(tmp_path / "server", authority) as port:
        kit, connection = read_kit(make_kit(port)), Connection()
        assert tls_connect(kit, connection) is None
    assert connection.reached and connection.tls == "TLSv1.3" and connection.milliseconds > 0
    assert kit.days == 100 and kit.site == "hospital_k" and list(check_kit(kit, "hospital_k")) == []


def test_a_server_of_another_name_or_federation_is_refused(tmp_path, authority, make_kit):
    with server(tmp_path / "server", authority, host="elsewhere.org") as port:
        kit = make_kit(port)
        refused = tls_connect(read_kit(kit), Connection())
    assert refused.kind == "handshake" and "Hostname mismatch" in refused.text
    with server(tmp_path / "server", Authority()) as port:
        (kit / "startup" / "fed_client.json").write_text(
            json.dumps({"servers": [{"service": {"target": f"localhost:{port}"}}], "client": {}})
        )
        refused = tls_connect(read_kit(kit), Connection())
    assert refused.kind == "handshake" and "not accepted" in refused.text


def test_a_server_that_refuses_this_site_is_told_apart(tmp_path, authority, make_kit):
    with server(tmp_path / "server", authority, trusts=Authority()) as port:
        refused = tls_connect(read_kit(make_kit(port)), Connection())
    assert refused.kind == "handshake" and "ask the study lead" in refused.text


def test_no_server_is_one_clear_line(make_kit):
    with socket.create_server(("localhost", 0)) as listener:
        port = listener.getsockname()[1]
    connection = Connection()
    refused = tls_connect(read_kit(make_kit(port)), connection)
    assert refused.kind == "unreachable" and f"port {port}" in refused.text and connection.reached is False


def test_an_unknown_server_name_is_told(make_kit):
    refused = tls_connect(read_kit(make_kit(host="no-such-host.invalid")), Connection())
    assert refused.kind == "unreachable" and "no-such-host.invalid" in refused.text
