"""Startup kits of a project file, of a site that joins later, and renewed certificates: made, and what is said."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography import x509

from fedmed.errors import SiteConfigError
from fedmed.files import CHECKOUT, SHIPPED
from fedmed.provisioning.kits import Federation
from fedmed.provisioning.project_file import read_project

EXAMPLE = SHIPPED / "site_configs" / "project.yml"
HOME = "~/fedmed"  # federations lie below it, outside of any checkout
ADVICE = """\
The certificate authority lives until {end}. authority/ holds its key: keep a copy, show it to nobody.
Each kit holds a private key, so whoever has the kit is that participant. Give each to its owner alone, over a channel
that both trust, and then delete it here. Next: docs/deployment.md"""
UNUSABLE = (
    "no job can name the site '{name}', which has its kit from before there was a rule for names; let "
    "'fedmed add-site' make it a kit with another name (letters, digits, _ and -), and install that one there"
)


def provision_project(project: Path | None, out: Path | None) -> None:
    """Make kits for all participants of a project file that have none, and print where they are.

    Args:
        out: the federation's folder; by default ``~/fedmed`` and its name.

    Raises:
        SiteConfigError: no project file, or mistakes in it.
    """
    if project is None:
        raise SiteConfigError(f"name a project file: copy {EXAMPLE}, change what is marked with <-, and name the copy")
    wanted = read_project(project)
    federation = _opened(_outside(out or Path(HOME) / wanted["name"]))
    had = bool(federation.project)
    made = federation.provision(wanted)
    if not made:
        print(f"{federation.folder}: every participant has a kit already; nothing was changed")
        return
    if had:
        print("The federation existed; its certificate authority and the other kits are unchanged.")
    _report(federation, made)


def renew_certificate(name: str, out: Path | None) -> None:
    """Make a new key and certificate for a participant, and print which files it gets."""
    startup = _existing(out).renew(name) / "startup"
    files = sorted((*startup.glob("*.crt"), *startup.glob("*.key")))
    print(f"New certificate for {name}, valid until {_ends(next(startup.glob('*.crt')))}. Give it the files")
    print("\n".join(f"  {path}" for path in files))
    print("for its kit's startup/, and let it restart. The old certificate is not revoked: it ends by itself.")


def add_to_federation(name: str, org: str | None, role: str, custom_code: bool, out: Path | None) -> None:
    """Make the kit of a site that joins later.

    Raises:
        SiteConfigError: no organisation, or there is such a participant.
    """
    if org is None:
        raise SiteConfigError("ORG is missing: the site's organisation, letters, digits and _")
    federation = _existing(out)
    if name in federation.names():
        raise SiteConfigError(f"{federation.folder} has a participant '{name}' already")
    site = {"name": name, "type": "client", "org": org, "fedmed_role": role, "custom_code": custom_code}
    made = federation.provision({**federation.project, "participants": [*federation.project["participants"], site]})
    _report(federation, made)


def _existing(out: Path | None) -> Federation:
    federation = _opened(out or _only())
    if not federation.project:
        raise SiteConfigError(f"{federation.folder} holds no federation; make one with 'fedmed provision'")
    return federation


def _opened(folder: Path) -> Federation:
    federation = Federation.open(folder)
    for name in federation.unusable_names():
        print(f"warning: {federation.folder}: {UNUSABLE.format(name=name)}", file=sys.stderr)
    return federation


def _outside(folder: Path) -> Path:
    folder = folder.expanduser().resolve()
    if folder.is_relative_to(CHECKOUT):
        raise SiteConfigError(f"--out {folder} lies in the checkout; private keys do not belong there")
    return folder


def _only() -> Path:
    home = Path(HOME).expanduser()
    folders = sorted(path.parent for path in home.glob("*/project.yml"))
    if len(folders) != 1:
        raise SiteConfigError(f"{home} holds {len(folders)} federations; say which with --out")
    return folders[0]


def _ends(certificate: Path) -> str:
    return f"{x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc:%Y-%m-%d}"


def _report(federation: Federation, made: Sequence[str]) -> None:
    participants = {p["name"]: p for p in federation.project["participants"]}
    print(f"Federation '{federation.project['name']}' in {federation.folder}")
    for name in made:
        certificate = next((federation.kits / name / "startup").glob("*.crt"))
        print(f"  kits/{name:<28} for {_whom(participants[name])}, valid until {_ends(certificate)}")
    print(ADVICE.format(end=_ends(federation.kits / made[0] / "startup" / "rootCA.pem")))


def _whom(participant: dict[str, Any]) -> str:
    kind, org = participant.get("type"), participant.get("org")
    if kind == "server":
        return f"the server's machine ({org}), port {participant.get('fed_learn_port', 8002)}"
    if kind == "admin":
        return f"a person ({participant.get('role')}, {org})"
    return f"a site ({participant.get('fedmed_role', 'supervised')}, {org})"
