"""``fedmed fetch-list``."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fedmed.commands.options import AsJson, ended


def fetch_list(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="The study's YAML, a job folder, or a name.")],
    site: Annotated[
        str | None, typer.Option(help="A site's YAML, or its name: also what this site's own settings name.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Name every file that a study needs from outside: source, licence, SHA-256, and where it must lie.

      fedmed fetch-list my_study.yaml

    FedMed downloads nothing: a person fetches the files, and docs/offline.md says how they are carried to a machine
    without a network.

    Exit code: 0 all are there or none is needed, 1 one is missing or differs from what was published.
    """
    from fedmed.jobs.named_job import study_or_job

    place = study_or_job(study)
    from fedmed.jobs.job_folder import read_job
    from fedmed.jobs.needed_files import in_lines, needed_files
    from fedmed.settings.server import load_server
    from fedmed.settings.site import load_named

    job = read_job(place, load_server().allowed_classes)
    files = needed_files(job, load_named(site) if site else None)
    if as_json:
        print(json.dumps([asdict(one) for one in files], indent=2, default=str))
    elif not files:
        print(f"{job.name} needs no file from outside")
    else:
        print(*(line for one in files for line in in_lines(one)), sep="\n")
    ended(0 if all(one.present and not one.differs for one in files) else 1)
