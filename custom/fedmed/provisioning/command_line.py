"""The command line of scripts/provision.sh and scripts/add_site.sh."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography import x509

from fedmed.errors import FedMedError, SiteConfigError
from fedmed.files import CHECKOUT
from fedmed.provisioning.kit_builder import NEEDS
from fedmed.provisioning.kits import Federation
from fedmed.provisioning.project_file import read_project

EXAMPLE = CHECKOUT / "site_configs" / "project.yml"
HOME = "~/fedmed"  # federations lie below it, outside of any checkout
ADVICE = """\
The certificate authority lives until {end}. authority/ holds its key: keep a copy, show it to nobody.
Each kit holds a private key, so whoever has the kit is that participant. Give each to its owner alone, over a channel
that both trust, and then delete it here. Next: docs/deployment.md"""
UNUSABLE = (
    "no job can name the site '{name}', which has its kit from before there was a rule for names; let "
    "scripts/add_site.sh make it a kit with another name (letters, digits, _ and -), and install that one there"
)
OUT = f"the federation's folder (default: {HOME}/NAME; never inside the checkout)"


def provision(argv: Sequence[str]) -> int:
    """``scripts/provision.sh``: kits for all participants of a project that have none."""
    parser = argparse.ArgumentParser("scripts/provision.sh", description="Make a federation's startup kits.")
    parser.add_argument("project", nargs="?", type=Path, help=f"project file (example: {EXAMPLE})")
    parser.add_argument("--out", type=Path, help=OUT)
    arguments = parser.parse_args(argv)
    if arguments.project is None:
        raise SiteConfigError(f"name a project file: copy {EXAMPLE}, change what is marked with <-, and name the copy")
    wanted = read_project(arguments.project)
    federation = _opened(_outside(arguments.out or Path(HOME) / wanted["name"]))
    had = bool(federation.project)
    made = federation.provision(wanted)
    if not made:
        print(f"{federation.folder}: every participant has a kit already; nothing was changed")
        return 0
    if had:
        print("The federation existed; its certificate authority and the other kits are unchanged.")
    _report(federation, made)
    return 0


def add_site(argv: Sequence[str]) -> int:
    """``scripts/add_site.sh``: a kit for a site that joins later, or new certificates for a participant."""
    parser = argparse.ArgumentParser("scripts/add_site.sh", description="Make the startup kit of one more site.")
    parser.add_argument("name", metavar="NAME", help="letters, digits, _ and -; the name that jobs use")
    parser.add_argument("org", metavar="ORG", nargs="?", help="its organisation: letters, digits and _")
    parser.add_argument("--role", choices=list(NEEDS), default="supervised", help="for the kit's explanations")
    parser.add_argument("--custom-code", action="store_true", help="the site lets jobs bring a folder custom/")
    parser.add_argument("--renew", action="store_true", help="a new key and certificate for NAME, site or not")
    parser.add_argument("--out", type=Path, help=f"the federation's folder (default: the only one below {HOME})")
    arguments = parser.parse_args(argv)
    federation = _opened(arguments.out or _only())
    if not federation.project:
        raise SiteConfigError(f"{federation.folder} holds no federation; make one with scripts/provision.sh")
    if arguments.renew:
        startup = federation.renew(arguments.name) / "startup"
        files = sorted((*startup.glob("*.crt"), *startup.glob("*.key")))
        print(
            f"New certificate for {arguments.name}, valid until {_ends(next(startup.glob('*.crt')))}. Give it the files"
        )
        print("\n".join(f"  {path}" for path in files))
        print("for its kit's startup/, and let it restart. The old certificate is not revoked: it ends by itself.")
        return 0
    if arguments.org is None:
        parser.error("ORG is missing")
    if arguments.name in federation.names():
        raise SiteConfigError(f"{federation.folder} has a participant '{arguments.name}' already")
    site = {"name": arguments.name, "type": "client", "org": arguments.org, "fedmed_role": arguments.role}
    site["custom_code"] = arguments.custom_code
    made = federation.provision({**federation.project, "participants": [*federation.project["participants"], site]})
    _report(federation, made)
    return 0


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


def main(argv: Sequence[str]) -> int:
    """Run a command; a user's error is one line and exit code 2."""
    try:
        return {"provision": provision, "add-site": add_site}[argv[0]](argv[1:])
    except FedMedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    os.umask(0o077)  # for the whole process: kits hold private keys
    sys.exit(main(sys.argv[1:]))
