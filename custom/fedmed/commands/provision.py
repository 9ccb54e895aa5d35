"""``fedmed provision`` and ``fedmed add-site``: startup kits."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

OUT = "The federation's folder; never inside a checkout of FedMed."


def provision(
    project: Annotated[
        Path | None, typer.Argument(metavar="PROJECT.yml", help="Who takes part; start from site_configs/project.yml.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help=f"{OUT} Default: ~/fedmed/NAME.")] = None,
) -> None:
    """Make the startup kits of a federation: for each participant keys, certificates and settings.

      fedmed provision project.yml

    Run it again after adding participants to PROJECT.yml: they get kits of the same certificate authority, and nothing
    else is touched. 'fedmed add-site' adds a site without editing, and renews certificates.
    """
    from fedmed.provisioning.make_kits import provision_project

    with _for_the_owner_alone():
        provision_project(project, out)


def add_site(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, _ and -; the name that jobs use.")],
    org: Annotated[str | None, typer.Argument(metavar="[ORG]", help="Its organisation: letters, digits and _.")] = None,
    role: Annotated[
        Literal["supervised", "unsupervised", "evaluate"], typer.Option(help="For the explanations in the kit.")
    ] = "supervised",
    custom_code: Annotated[
        bool, typer.Option("--custom-code", help="The site lets jobs bring a folder custom/.")
    ] = False,
    renew: Annotated[
        bool, typer.Option("--renew", help="A new key and certificate for NAME, site or not; without ORG.")
    ] = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help=f"{OUT} Default: the only one in ~/fedmed.")] = None,
) -> None:
    """Make the startup kit of a site that joins later, or renew a participant's certificate.

      fedmed add-site hospital_d clinic_d --role unsupervised
      fedmed add-site hospital_a --renew

    The running federation need not be stopped: the server knows the new site by its certificate.
    """
    from fedmed.provisioning.make_kits import add_to_federation, renew_certificate

    with _for_the_owner_alone():
        if renew:
            renew_certificate(name, out)
        else:
            add_to_federation(name, org, role, custom_code, out)


@contextmanager
def _for_the_owner_alone() -> Iterator[None]:
    """Kits hold private keys: no group reads them, whatever $FEDMED_GROUP_READABLE says."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
