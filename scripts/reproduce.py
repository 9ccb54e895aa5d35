#!/usr/bin/env python3
"""Run every arm and seed of a table and write it, with figures, paired tests and a check of the paper's claims.

    scripts/reproduce.py table1                              # on the demo federation, which is made on first use
    scripts/reproduce.py table1 fig6 --data my_sites.yaml    # on your own sites, see research/experiments/data/
    scripts/reproduce.py fedmoco_table2                      # pre-training without labels, and what it is good for
    scripts/reproduce.py table1 --dask tcp://10.0.0.1:8786   # on a cluster

Finished runs are kept: a stopped command goes on where it was, and tables share the runs that they have in common.
"""

import _environment  # noqa: F401 - first, since it says what to do outside of .venv

import argparse
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fedmed.errors import FedMedError, JobError
from fedmed.files import private_files
from fedmed.interrupts import endings_as_ctrl_c
from fedmed.plain_text import print_in_any_terminal

if TYPE_CHECKING:  # elsewhere where it is used: it takes seconds to load, for which --help need not wait
    from research.runner.experiment_table import ExperimentTable

CHECKOUT = Path(__file__).resolve().parents[1]
EXPERIMENTS = CHECKOUT / "research/experiments"


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    tables, data = (
        ", ".join(sorted(p.stem for p in folder.glob("*.yaml"))) for folder in (EXPERIMENTS, EXPERIMENTS / "data")
    )
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", metavar="TABLE", help=f"YAML files, or some of: {tables}")
    parser.add_argument("--data", help=f"a YAML file, or one of: {data} (default: what the first table names)")
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), help="results go to OUT/<data>/<table> (default runs)"
    )
    parser.add_argument("--seeds", type=int, nargs="+", help="instead of the table's own")
    parser.add_argument("--arms", nargs="+", help="only these rows")
    parser.add_argument(
        "--scores",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="scores.csv of the same table from other machines; the seeds that these have are not run here",
    )
    parser.add_argument(
        "--share-warm-starts",
        action="store_true",
        help="train what runs have in common before sites without labels join only once; takes some times a model's "
        "size for each such round and site, in OUT/runs/warm_starts, which may be deleted afterwards",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--jobs", type=_at_least_one, help="runs at the same time (default: what the cores allow)")
    where.add_argument("--dask", metavar="ADDRESS", help="run on the workers of this Dask scheduler instead")
    arguments = parser.parse_args(argv)
    if len(set(arguments.seeds or [])) < len(arguments.seeds or []) or min(arguments.seeds or [0]) < 0:
        parser.error(f"--seeds {arguments.seeds}: a seed counts once in every mean and test, and is 0 or more")
    return arguments


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def find(name: str, folder: Path) -> Path:
    path = Path(name)
    return path if path.suffix in (".yaml", ".yml") else folder / f"{name}.yaml"


def read(names: list[str]) -> "list[ExperimentTable]":
    """The tables, each under a name of its own: it is that of its folder."""
    from research.runner.experiment_table import load_table

    paths = [find(name, EXPERIMENTS) for name in dict.fromkeys(names)]
    tables = [load_table(path) for path in paths]
    for path, table in zip(paths, tables, strict=True):
        if [other.name for other in tables].count(table.name) > 1:
            raise JobError(f"{path}: another table is called '{table.name}' too; rename one of the files")
    return tables


def run(arguments: argparse.Namespace) -> int:
    from fedmed.federation.warm_starts import FOLDER as WARM_STARTS
    from research.runner.experiment_data import load_data
    from research.runner.experiment_table import only
    from research.runner.reproduction import reproduce

    tables = read(arguments.tables)
    data = load_data(find(arguments.data or tables[0].data, EXPERIMENTS / "data"))
    if arguments.share_warm_starts:
        (arguments.out / "runs" / WARM_STARTS).mkdir(parents=True, exist_ok=True)
    tables = [only(table, arguments.arms) for table in tables] if arguments.arms else tables
    return reproduce(tables, data, arguments.out, arguments.seeds, arguments.jobs, arguments.dask, arguments.scores)


@endings_as_ctrl_c()
@private_files()
def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    logging.basicConfig(format="%(message)s")
    logging.getLogger("fedmed.demo").setLevel(logging.INFO)  # a minute without a word looks like a fault
    try:
        return run(arguments)
    except FedMedError as error:
        print(f"error: {error}", file=sys.stderr)
    except OSError as error:
        print(f"error: {error}; free space, or choose another folder with --out", file=sys.stderr)
    except KeyboardInterrupt:
        print("\nstopped; finished runs are kept, and the same command goes on with the others", file=sys.stderr)
        return 130
    return 2


if __name__ == "__main__":
    print_in_any_terminal()
    sys.exit(main())
