"""A certificate authority, and what a startup kit holds."""

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from fedmed.checks.startup_kit import MESSAGES, WALLS
from fedmed.jobs.job_classes import job_classes

PARTS = [{"id": id, "path": path, "args": {}} for id, path in WALLS.items()]
SAFE = {"allow_log_streaming": False, "components": [*PARTS, MESSAGES], "class_allow_list": job_classes()}


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
