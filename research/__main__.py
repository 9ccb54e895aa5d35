"""``fedmed research``: tables of papers, and the sites of LIDC-IDRI."""

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedmed.commands.command_line import run_app
from fedmed.commands.options import command, group, split_words, stop_says
from fedmed.errors import FedMedError, JobError
from fedmed.files import CHECKOUT, private_files

EXPERIMENTS = CHECKOUT / "research/experiments"
app = group("Tables of papers: every arm and seed, figures, paired tests, and a check of their claims.")


@command(app)
@private_files()
def run(
    tables: Annotated[
        list[str],
        typer.Argument(metavar="TABLE...", help="YAML files, or names of research/experiments."),
    ],
    data: Annotated[
        str | None,
        typer.Option(help="YAML file, or a name of research/experiments/data. Default: what the first table names."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Results go to OUT/DATA/TABLE.")] = Path("runs"),
    seeds: Annotated[str | None, typer.Option(metavar="N,N", help="Instead of the table's own.")] = None,
    arms: Annotated[str | None, typer.Option(metavar="ARM,ARM", help="Only these rows.")] = None,
    scores: Annotated[
        list[Path],
        typer.Option(
            metavar="FILE",
            help="scores.csv of the same table from another machine, whose seeds are not run here. Repeatable.",
        ),
    ] = [],
    share_warm_starts: Annotated[
        bool,
        typer.Option(
            "--share-warm-starts",
            help="Train what runs have in common before sites without labels join only once; takes some times a "
            "model's size for each such round and site, in OUT/runs/warm_starts, which may be deleted afterwards.",
        ),
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Runs at the same time. Default: what the cores allow.")
    ] = None,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Run on the workers of this Dask scheduler instead.")
    ] = None,
) -> None:
    """Run every arm and seed of a table and write it, with figures, paired tests and a check of the paper's claims.

      fedmed research run table1                              # on the demo federation, which is made on first use
      fedmed research run table1 fig6 --data my_sites.yaml    # on your own sites, see research/experiments/data/
      fedmed research run fedmoco_table2                      # pre-training without labels, and what it is good for
      fedmed research run table1 --dask tcp://10.0.0.1:8786   # on a cluster

    Finished runs are kept: a stopped command goes on where it was, and tables share the runs that they have in common.
    """
    if jobs and dask:
        raise FedMedError("--jobs and --dask exclude each other")
    chosen = _numbers(seeds)
    from fedmed.federation.warm_starts import FOLDER as WARM_STARTS
    from research.runner.experiment_data import load_data
    from research.runner.experiment_table import load_tables, names_in, only
    from research.runner.reproduction import reproduce

    logging.basicConfig(format="%(message)s")
    logging.getLogger("fedmed.demo").setLevel(logging.INFO)  # a minute without a word looks like a fault
    read = load_tables([find(name, EXPERIMENTS) for name in dict.fromkeys(tables)])
    images = load_data(find(data or read[0].data, EXPERIMENTS / "data"))
    if share_warm_starts:
        (out / "runs" / WARM_STARTS).mkdir(parents=True, exist_ok=True)
    read = [only(table, names_in(arms, table)) for table in read] if arms else read
    with stop_says("\nstopped; finished runs are kept, and the same command goes on with the others"):
        code = reproduce(read, images, out, chosen, jobs, dask, scores)
    raise typer.Exit(code)


def find(name: str, folder: Path) -> Path:
    """File of a YAML that a person names.

    Raises:
        JobError: the folder has none of that name; says which it has.
    """
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        return path
    if not (place := folder / f"{name}.yaml").is_file():
        raise JobError(f"'{name}' is unknown; there are {', '.join(sorted(p.stem for p in folder.glob('*.yaml')))}")
    return place


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    words = split_words([text])
    if not words or not all(word.isdecimal() for word in words) or len(set(words)) < len(words):
        raise FedMedError(f"--seeds {text}: whole numbers with commas between; a seed counts once and is 0 or more")
    return [int(word) for word in words]


@command(app)
def lidc(
    out: Annotated[Path, typer.Option(help="Folder to write the sites into.")],
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with 'image' and 'mask'. Default: $FEDMED_HOME/data/ct_lidc_nodules, or "
            "../shared/data/ct_lidc_nodules next to the checkout."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the splits.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Processes that read images.")] = 1,
) -> None:
    """Make the four lung-nodule sites (LIDC-IDRI crops, grouped by slice spacing).

    fedmed research lidc --out /data/lidc_sites
    FEDMED_SITE_CONFIGS=/data/lidc_sites/site_configs nvflare simulator jobs/...
    """
    from rich.console import Console

    from fedmed.data.prepare.console import print_table, progress
    from fedmed.data.prepare.report import refusals, shortened
    from fedmed.plain_text import in_markup
    from research.runner.lidc import default_data, numbers, prepare_lidc

    with stop_says("research lidc: interrupted; nothing was written"), private_files():
        sites = prepare_lidc(data or default_data(), out, seed, workers, progress("Reading crops"))
    console = Console(highlight=False)
    print_table(console, numbers(sites))
    for line in (line for cases in sites.values() for line in shortened(refusals(cases), 20)):
        console.print(f"  refused: {in_markup(line)}", soft_wrap=True)
    console.print(f"Written: {out}", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(run_app(app, "fedmed research"))
