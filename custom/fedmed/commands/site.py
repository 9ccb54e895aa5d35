"""``fedmed site``: what a hospital does about its own data, machine and limits. Nothing of it leaves the hospital."""

import json
import logging
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedmed.commands.options import AsJson, command, ended, group, split_words, stop_says
from fedmed.errors import FedMedError
from fedmed.files import private_files

app = group("A hospital's own site: check it, allow what a job asks, see what has left, empty its cache.")


@command(app)
@private_files()
def check(
    site: Annotated[
        str | None,
        typer.Argument(metavar="[SITE]", help="Its YAML, or its name in the federation. Default: the YAML in the kit."),
    ] = None,
    job: Annotated[
        str | None, typer.Option(help="Job folder, a study, or the name of a bundle: measure this site's work in it.")
    ] = None,
    role: Annotated[
        Literal["supervised", "unsupervised", "evaluate"] | None,
        typer.Option(help="When the job does not name the site."),
    ] = None,
    overlay: Annotated[list[str], typer.Option(help="Of a bundle named by --job. Repeatable.")] = [],
    kit: Annotated[Path | None, typer.Option(help="Startup kit of the site: check the connection.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="PAGE", help="For the study lead. Default: $FEDMED_HOME/to_send/check_SITE.html."),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(help="List of all entries, which stays here. Default: $FEDMED_HOME/checks/SITE.csv."),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that read images.")] = min(4, os.cpu_count() or 1),
    steps: Annotated[int, typer.Option(min=1, help="Training steps to measure, after one to warm up.")] = 3,
    timeout: Annotated[float, typer.Option(min=0.001, metavar="MINUTES", help="For the measurement.")] = 30,
    skip: Annotated[
        list[str],
        typer.Option(
            metavar="PART,…",
            help="Leave out: data, training, disk, device, connection, preflight (NVFlare's part of the connection), "
            "scoring (of a validation case).",
        ),
    ] = [],
    as_json: AsJson = False,
) -> None:
    """Check a site before it joins: its images, its machine, its connection. Nothing leaves it.

      fedmed site check /data/site_a/site_a.yaml --job jobs/covid_fssl --role supervised
      fedmed site check --kit /opt/fedmed/hospital_a --job study.job

    Prints what is wrong and what to do, writes a list of all entries that stays here (--csv), and a page for the study
    lead (--out) that contains no patient information. The site's cache is left alone. NVFlare's preflight check starts
    the site for five seconds and registers it with the server: run this before the first job is submitted.

    Exit code: 0 fine, or notes only; 1 problems that must be solved first; 2 it could not be checked.
    """
    from fedmed.checks.hospital_report import (
        Screen,
        as_values,
        default_csv,
        default_page,
        print_checked,
        write_csv,
        write_page,
    )
    from fedmed.checks.site_check import Options, check_site

    logging.getLogger("fedmed").setLevel(logging.ERROR)  # what training logs is printed below, once
    wanted = Options(
        job=job, role=role, overlays=overlay, kit=kit, workers=workers, steps=steps, timeout=60 * timeout,
        skip=split_words(skip),
    )  # fmt: skip
    with stop_says("site check: interrupted; nothing was written"):
        checked = check_site(site, wanted, Screen())
        table = write_csv(checked, csv or default_csv(checked.site.site)) if checked.counts else None
        page = write_page(checked, (out or default_page(checked.site.site)).absolute())
    if as_json:
        print(json.dumps(as_values(checked, table, page), indent=2))
    else:
        print_checked(checked, table, page)
    ended(0 if checked.ready else 1)


@command(app)
@private_files()
def approve(
    site: Annotated[Path, typer.Argument(metavar="SITE_YAML", help="The site's settings.")],
    job: Annotated[Path, typer.Option(help="Job folder, or study, that asks.")],
    name: Annotated[
        str | None, typer.Option("--site", help="Its name in the job. Default: 'site' in the YAML, or the file's name.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Allow the values that a job asks for beside the model, after showing all that would leave.

      fedmed site approve hospital_a.yaml --job jobs/covid_agreement

    Adds their names to privacy.allowed_extras in the site's own YAML, which is kept as it was in SITE_YAML.before.
    Classes beyond FedMed's own, and what a bundle runs of its own code, are not allowed here: a person writes those.
    """
    from rich.console import Console

    from fedmed.privacy.approval import allow_extras
    from fedmed.privacy.disclosure_preview import disclosure_preview, forecast
    from fedmed.reports.sheet import show
    from fedmed.settings.site import load_file

    logging.getLogger("fedmed").setLevel(logging.ERROR)
    settings = load_file(site, name)
    expected = forecast(job, settings)
    show(disclosure_preview(expected), Console())
    new = [extra for extra in dict.fromkeys(expected.wanted) if extra not in settings.privacy.allowed_extras]
    if not new:
        print(f"{site} allows everything that {expected.job} asks for beside the model; nothing was changed")
        return
    if not yes and not _agreed(f"Let {', '.join(new)} leave {settings.site} too, in every job?"):
        print("nothing was changed")
        ended(1)
    print(f"{allow_extras(site, settings, new)}: privacy.allowed_extras has {', '.join(new)} too")


def _agreed(question: str) -> bool:
    """Answer of the person at the terminal.

    Raises:
        FedMedError: there is no terminal.
    """
    if not sys.stdin.isatty():
        raise FedMedError("nobody can be asked here, since this is not a terminal; --yes allows it")
    return typer.confirm(question)


@command(app)
@private_files()
def ledger(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="[SITE_RUN]", help="The site's own folder of a job, or its ledger.jsonl."),
    ] = None,
    dry_run: Annotated[Path | None, typer.Option(metavar="SITE_YAML", help="What this site would send.")] = None,
    job: Annotated[Path | None, typer.Option(help="Job folder, or study, of the dry run.")] = None,
    site: Annotated[
        str | None, typer.Option(help="Its name in the job. Default: 'site' in the YAML, or the file's name.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="PAGE", help="Also write a page (HTML).")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what has left a site in a job, or what would leave it. For the hospital; nothing of it is sent.

      fedmed site ledger /opt/fedmed/hospital_a/JOB_ID
      fedmed site ledger --dry-run hospital_a.yaml --job jobs/covid_fssl --out page.html

    The dry run opens no image: it builds the job's network and asks the site's own limits.
    """
    if (run is None) == (dry_run is None):
        raise FedMedError("give either SITE_RUN or --dry-run SITE_YAML")
    if (job is None) != (dry_run is None):
        raise FedMedError("--dry-run and --job belong together")
    from rich.console import Console

    from fedmed.privacy.limits import read_ledger
    from fedmed.reports.ledger_page import ledger_sheet
    from fedmed.reports.sheet import as_values, show, write_html

    logging.getLogger("fedmed").setLevel(logging.ERROR)
    if dry_run and job:
        from fedmed.privacy.disclosure_preview import disclosure_preview, forecast
        from fedmed.settings.site import load_file

        sheet = disclosure_preview(forecast(job, load_file(dry_run, site)))
    else:
        sheet = ledger_sheet(read_ledger(run or Path()))
    page = write_html(sheet, out.absolute()) if out else None
    if as_json:
        print(json.dumps(as_values(sheet), indent=2))
        return
    show(sheet, Console())
    if page:
        print(f"page: {page}")


@command(app)
def purge(
    cache_dir: Annotated[
        list[Path], typer.Argument(metavar="[CACHE_DIR]...", help="cache_dir of a site's YAML. Default: the usual one.")
    ] = [],
) -> None:
    """Delete the prepared cases and videos that FedMed keeps on disk, and nothing else."""
    from fedmed.files import default_cache_dir
    from fedmed.files import purge as purge_folder

    for folder in cache_dir or [Path(default_cache_dir())]:
        print(f"{folder}: {purge_folder(folder)} files deleted")
