"""Certificates, the handshake and NVFlare's preflight, against a small TLS server in this process."""

import json
import os
import socket
import ssl
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from fedmed.checks import preflight as preflight_module
from fedmed.checks.kit_findings import LIMITS, WALLS, check_kit
from fedmed.checks.preflight import parse, preflight
from fedmed.checks.server_connection import Connection, shake_hands
from fedmed.checks.startup_kit import read_kit
from fedmed.errors import SiteConfigError

PARTS = [{"id": id, "path": path, "args": {}} for id, path in WALLS.items()]
SAFE = {"allow_log_streaming": False, "components": PARTS}
PASSED = "| Check server available | PASSED | N/A |\n"


def named(name):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


class Authority:
    """Issues certificates."""

    def __init__(self, days=400):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._sign("study", self.key.public_key(), days, authority=True)

    def _sign(self, name, key, days, host=None, authority=False, since=1):
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(named("study"), named(name), key, x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(days=since)).not_valid_after(now + timedelta(days, 60))
        builder = builder.add_extension(x509.BasicConstraints(authority, None), critical=True)
        if host:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def issue(self, folder, stem, name, days=100, host=None, since=200):
        """Write ``<stem>.key``, ``<stem>.crt`` and ``rootCA.pem``."""
        key = ec.generate_private_key(ec.SECP256R1())
        secret = folder / f"{stem}.key"
        secret.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        secret.chmod(0o600)
        certificate = self._sign(name, key.public_key(), days, host, since=since)
        (folder / f"{stem}.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
        (folder / "rootCA.pem").write_bytes(self.certificate.public_bytes(Encoding.PEM))


@pytest.fixture
def authority():
    return Authority()


@pytest.fixture
def make_kit(tmp_path, authority):
    """Return a function: port -> folder of a kit."""

    def make(port=1, issuer=authority, host="localhost", **settings):
        startup, local = tmp_path / "kit" / "startup", tmp_path / "kit" / "local"
        startup.mkdir(parents=True)
        local.mkdir()
        config = {"servers": [{"service": {"target": f"{host}:{port}", "scheme": "grpc"}}], "client": {}}
        (startup / "fed_client.json").write_text(json.dumps(config))
        (startup / "sub_start.sh").write_text("uid=hospital_k\n")
        (local / "resources.json").write_text(json.dumps(SAFE))
        (local / "privacy.json").write_text(json.dumps({"scopes": [{"task_result_filters": [{"path": LIMITS}]}]}))
        issuer.issue(startup, "client", "hospital_k", **settings)
        return tmp_path / "kit"

    return make


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
        kit, found = read_kit(make_kit(port)), Connection()
        assert shake_hands(kit, found) is None
    assert found.reached and found.tls == "TLSv1.3" and found.milliseconds > 0
    assert kit.days == 100 and kit.site == "hospital_k" and list(check_kit(kit, "hospital_k")) == []


def test_a_server_of_another_name_or_federation_is_refused(tmp_path, authority, make_kit):
    with server(tmp_path / "server", authority, host="elsewhere.org") as port:
        kit = make_kit(port)
        refused = shake_hands(read_kit(kit), Connection())
    assert refused.kind == "handshake" and "Hostname mismatch" in refused.text
    with server(tmp_path / "server", Authority()) as port:
        (kit / "startup" / "fed_client.json").write_text(
            json.dumps({"servers": [{"service": {"target": f"localhost:{port}"}}], "client": {}})
        )
        refused = shake_hands(read_kit(kit), Connection())
    assert refused.kind == "handshake" and "not accepted" in refused.text


def test_a_server_that_refuses_this_site_is_told_apart(tmp_path, authority, make_kit):
    with server(tmp_path / "server", authority, trusts=Authority()) as port:
        refused = shake_hands(read_kit(make_kit(port)), Connection())
    assert refused.kind == "handshake" and "ask the study lead" in refused.text


def test_no_server_is_one_clear_line(make_kit):
    with socket.create_server(("localhost", 0)) as listener:
        port = listener.getsockname()[1]
    found = Connection()
    refused = shake_hands(read_kit(make_kit(port)), found)
    assert refused.kind == "unreachable" and f"port {port}" in refused.text and found.reached is False


def test_an_unknown_server_name_is_told(make_kit):
    refused = shake_hands(read_kit(make_kit(host="no-such-host.invalid")), Connection())
    assert refused.kind == "unreachable" and "no-such-host.invalid" in refused.text


@pytest.mark.parametrize(
    ("days", "since", "kind"), [(-3, 20, "certificate"), (20, 20, "ends_soon"), (90, -2, "certificate")]
)
def test_certificates_that_ended_end_soon_or_begin_later(make_kit, days, since, kind):
    (finding,) = check_kit(read_kit(make_kit(days=days, since=since)), "hospital_k")
    assert finding.kind == kind


def test_what_else_is_wrong_with_a_kit(make_kit, authority, tmp_path):
    kit = make_kit()
    (kit / "startup" / "client.key").chmod(0o644)
    streams = {"path": "nvflare.app_common.logging.site_log_streamer.SiteLogStreamer"}
    resources = {"class_list_enforcement_mode": "enforce", "class_allow_list": ["a.B"], "components": [*PARTS, streams]}
    (kit / "local" / "resources.json").write_text(json.dumps(resources))
    found = list(check_kit(read_kit(kit), "hospital_m", ["a.B", "c.D"]))
    assert [finding.kind for finding in found] == ["kit", "key", "logs", "classes"]
    assert "'c.D'" in found[-1].text and "hospital_m" in found[0].text
    authority.issue(tmp_path, "client", "x")
    os.replace(tmp_path / "client.key", kit / "startup" / "client.key")
    assert "does not belong" in " ".join(finding.text for finding in check_kit(read_kit(kit), "hospital_k"))
    Authority().issue(kit / "startup", "client", "hospital_k")
    (kit / "startup" / "rootCA.pem").write_bytes((tmp_path / "rootCA.pem").read_bytes())
    assert "certificate" in [finding.kind for finding in check_kit(read_kit(kit), "hospital_k")]


@pytest.mark.parametrize(
    ("allowed", "needed"),
    [
        ({}, ["fedmed.X"]),  # NVFlare's own list, enforced
        ({"class_allow_list": ["fedmed", "nvflare."]}, []),
        ({"class_allow_list": ["*"]}, []),
        ({"class_allow_list": ["fedmed.Xy"]}, ["fedmed.X", "nvflare.Y"]),
        ({"class_list_enforcement_mode": "warn", "class_allow_list": []}, []),
    ],
)
def test_the_list_of_classes_is_read_as_nvflare_reads_it(make_kit, allowed, needed):
    kit = make_kit()
    (kit / "local" / "resources.json").write_text(json.dumps({**SAFE, **allowed}))
    found = list(check_kit(read_kit(kit), "hospital_k", ["fedmed.X", "nvflare.Y"]))
    assert [finding.kind for finding in found] == ["classes"] * len(needed)
    assert all(f"'{name}'" in finding.text for name, finding in zip(needed, found, strict=True))


def test_nvflare_sends_logs_unless_told_not_to_and_a_job_brings_its_own_limits(make_kit):
    kit = make_kit()
    (kit / "local" / "resources.json").write_text("{}")
    (kit / "local" / "privacy.json").unlink()
    assert [finding.kind for finding in check_kit(read_kit(kit), "hospital_k")] == ["logs", "jobs", "limits"]


OFF = {**PARTS[0], "disabled": True}


@pytest.mark.parametrize("parts", [[], PARTS[:1], PARTS[1:], PARTS[::-1], [{"path": "x.Y"}, *PARTS], [OFF, PARTS[1]]])
def test_a_kit_without_walls_against_configurations_that_read_is_told(make_kit, parts):
    kit = make_kit()
    (kit / "local" / "resources.json").write_text(json.dumps({**SAFE, "components": parts}))
    (finding,) = check_kit(read_kit(kit), "hospital_k")
    assert finding.kind == "jobs" and all(json.dumps(part) in finding.text for part in PARTS)


@pytest.mark.parametrize(
    ("rights", "kinds"),
    [
        ({"lead": {"submit_job": "any", "byoc": "none"}, "member": {"view": "any"}}, ["code"]),
        ({"lead": {"byoc": "any"}, "member": "none"}, []),
        ({"lead": "any"}, []),
        ({}, []),  # another policy than a file
    ],
)
def test_a_job_with_code_needs_a_kit_that_lets_it(make_kit, rights, kinds):
    kit = make_kit()
    (kit / "local" / "authorization.json.default").write_text(json.dumps({"permissions": rights}))
    found = check_kit(read_kit(kit), "hospital_k", ["fedmed.X"], own_code=True)
    assert [finding.kind for finding in found] == kinds


def test_no_kit_is_one_clear_error(tmp_path, make_kit):
    with pytest.raises(SiteConfigError, match="startup/fed_client.json is missing"):
        read_kit(tmp_path)
    kit = make_kit()
    (kit / "startup" / "client.crt").write_text("nothing")
    with pytest.raises(SiteConfigError, match="client.crt is not a readable certificate"):
        read_kit(kit)
    (kit / "startup" / "fed_server.json").touch()
    with pytest.raises(SiteConfigError, match="server or an admin"):
        read_kit(kit)


def test_nvflares_table_is_read():
    assert parse('{"data": {"overall": "pass"}}', PASSED) == (True, [])
    broken = (
        "| Checks        | Problems          | How to fix |\n|---|\n"
        + PASSED
        + "| Check dry run | Can't start it: one | "
        "Please check. |\n|               |  and two          |               |\n"
    )
    passed, rows = parse('noise\n{"data": {"overall": "fail"}}\n', broken)
    assert not passed and rows == [("Check dry run", "Can't start it: oneand two", "Please check.")]
    assert parse("", "Traceback\nOSError: x") == (False, [("nvflare", "OSError: x", "")])


def test_the_preflight_runs_on_a_view_of_the_kit(make_kit, monkeypatch):
    kit, seen = read_kit(make_kit()), {}

    def run(view):
        assert (view / "startup" / "client.key").is_symlink()
        seen.setdefault("times", []).append(view)
        (view / "log.txt").write_text("x - INFO - Successfully registered client:hospital_k for project study.")
        ended = [("Check dry run", "Can't start successfully:", "")]
        return (True, []) if len(seen["times"]) == 2 else (False, ended)

    monkeypatch.setattr(preflight_module, "_run", run)
    found = Connection()
    assert preflight(kit, found) is None and found.preflight and found.registered
    assert not seen["times"][0].exists() and not (kit.folder / "log.txt").exists()
    monkeypatch.setattr(preflight_module, "_run", lambda *args: (False, [("Check server available", "no", "start it")]))
    assert "no (start it)" in preflight(kit, found).text and found.preflight is False


def test_a_running_site_is_left_alone(make_kit, monkeypatch):
    kit = read_kit(make_kit())
    (kit.folder / "pid.fl").write_text(f"{os.getpid()}\n")
    monkeypatch.setattr(preflight_module, "_run", lambda *args: pytest.fail("started"))
    found = Connection()
    assert preflight(kit, found).kind == "running" and found.preflight is None
