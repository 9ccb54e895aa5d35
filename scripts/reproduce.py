#!/usr/bin/env python3
"""Run every arm and seed of a table and write it, with figures, paired tests and a check of the paper's claims.

    scripts/reproduce.py table1                              # on the demo federation, which is made on first use
    scripts/reproduce.py table1 fig6 --data my_sites.yaml    # on your own sites, see experiments/data/
    scripts/reproduce.py fedmoco_table2 --data cxr_demo      # pre-training without labels, and what it is good for

Finished runs are kept: a stopped command goes on where it was, and tables share the runs that they have in common.
"""

import argparse
import logging
import sys
from pathlib import Path

from fedmed.errors import FedMedError, JobError
from fedmed.experiments.checks import check_seeds
from fedmed.experiments.claims import check_claims
from fedmed.experiments.federation import Federation, load_federation, read_yaml
from fedmed.experiments.outputs import info_of, write_outputs
from fedmed.experiments.plan import lacking
from fedmed.experiments.pool import Outcome, run_all
from fedmed.experiments.pretraining import reproduce as pretraining
from fedmed.experiments.runs import Run, prepare
from fedmed.experiments.scores import write_scores
from fedmed.experiments.table import Table, load_table, only

EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    tables, data = (
        ", ".join(sorted(p.stem for p in folder.glob("*.yaml"))) for folder in (EXPERIMENTS, EXPERIMENTS / "data")
    )
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", metavar="TABLE", help=f"YAML files, or some of: {tables}")
    parser.add_argument("--data", help=f"a YAML file, or one of: {data} (default: demo, of pre-training cxr_demo)")
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), help="results go to OUT/<data>/<table> (default runs)"
    )
    parser.add_argument("--seeds", type=int, nargs="+", help="instead of the table's own")
    parser.add_argument("--arms", nargs="+", help="only these rows")
    parser.add_argument("--jobs", type=_at_least_one, help="runs at the same time (default: what the cores allow)")
    return parser.parse_args(argv)


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def find(name: str, folder: Path) -> Path:
    path = Path(name)
    return path if path.suffix in (".yaml", ".yml") else folder / f"{name}.yaml"


def available(table: Table, federation: Federation) -> Table:
    """The table without the arms that this federation cannot run; which these are, is said."""
    reasons = {arm.name: lacking(arm, federation) for arm in table.arms}
    for name, reason in reasons.items():
        if reason:
            print(f"{table.name}: '{name}' is left out: the federation '{federation.name}' does not have {reason}")
    return only(table, [name for name, reason in reasons.items() if not reason])


def plan(table: Table, federation: Federation, seeds: list[int], out: Path) -> list[Run]:
    info_of(table, federation)  # what is wrong with it is better said before the runs than after them
    check_seeds(seeds)
    return [prepare(arm, table, federation, seed, out / "runs") for seed in seeds for arm in table.arms]


def read(names: list[str]) -> list[Table]:
    """The tables, each under a name of its own: it is that of its folder."""
    paths = [find(name, EXPERIMENTS) for name in dict.fromkeys(names)]
    tables = [load_table(path) for path in paths]
    for path, table in zip(paths, tables, strict=True):
        if [other.name for other in tables].count(table.name) > 1:
            raise JobError(f"{path}: another table is called '{table.name}' too; rename one of the files")
        try:
            check_claims(table.claims, [arm.name for arm in table.arms], table.test)
        except JobError as error:
            raise JobError(f"{path}: {error}") from error
    return tables


def write(table: Table, federation: Federation, outcome: Outcome, runs: list[Run], folder: Path) -> list[Path]:
    """The outputs of one table; an arm with a failed run is left out, because its mean would be over other seeds."""
    failed = {run.arm for run in runs if run.folder in outcome.failed}
    names = [arm.name for arm in table.arms if arm.name not in failed]
    if not names:
        print(f"{table.name}: every arm has a failed run, so nothing is written to {folder}", file=sys.stderr)
        return []
    scores = [score for run in runs if run.arm not in failed for score in outcome.scores_of(run)]
    folder.mkdir(parents=True, exist_ok=True)
    write_scores(folder / "scores.csv", scores)
    return write_outputs(folder, info_of(only(table, names), federation), scores)


def reproduce_federations(arguments: argparse.Namespace) -> int:
    """Tables whose arms are federations that are scored on their sites' test lists."""
    out, federation = arguments.out.resolve(), load_federation(find(arguments.data or "demo", EXPERIMENTS / "data"))
    tables = read(arguments.tables)
    tables = [only(table, arguments.arms) for table in tables] if arguments.arms else tables
    tables = [available(table, federation) for table in tables]
    planned = [plan(t, federation, arguments.seeds or federation.seeds or t.seeds, out) for t in tables]
    outcome = run_all([run for runs in planned for run in runs], arguments.jobs)
    for folder, error in outcome.failed.items():
        print(f"error: {error} (log: {folder / 'log.txt'})", file=sys.stderr)
    for table, runs in zip(tables, planned, strict=True):
        for path in write(table, federation, outcome, runs, out / federation.name / table.name):
            print(path)
    return 2 if outcome.failed else 0


def reproduce_pretraining(arguments: argparse.Namespace) -> int:
    """Tables whose arms are encoders that classifiers are trained on."""
    tables = [find(name, EXPERIMENTS) for name in dict.fromkeys(arguments.tables)]
    data = find(arguments.data or "cxr_demo", EXPERIMENTS / "data")
    return pretraining.reproduce(tables, data, arguments.out, arguments.seeds, arguments.arms, arguments.jobs)


KINDS = {"federations": reproduce_federations, "pretraining": reproduce_pretraining}


def reproduce(arguments: argparse.Namespace) -> int:
    """Run tables by what kind of experiment they are; all must be of one."""
    files = {find(name, EXPERIMENTS): "a table" for name in arguments.tables}
    files |= {find(arguments.data, EXPERIMENTS / "data"): "a description of data"} if arguments.data else {}
    kinds = {path: read_yaml(path, what).get("experiment", "federations") for path, what in files.items()}
    for path, kind in kinds.items():
        if kind not in KINDS:
            raise JobError(f"{path}: 'experiment' is {kind!r}; use {' or '.join(KINDS)}")
    first = next(iter(kinds))
    if other := [path for path in kinds if kinds[path] != kinds[first]]:
        raise JobError(f"{first} is of the kind '{kinds[first]}', {other[0]} of '{kinds[other[0]]}'; run them apart")
    return KINDS[kinds[first]](arguments)


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    logging.basicConfig(format="%(message)s")
    logging.getLogger("fedmed.demo").setLevel(logging.INFO)  # a minute without a word looks like a fault
    try:
        return reproduce(arguments)
    except FedMedError as error:
        print(f"error: {error}", file=sys.stderr)
    except OSError as error:
        print(f"error: {error}; free space, or choose another folder with --out", file=sys.stderr)
    except KeyboardInterrupt:
        print("\nstopped; finished runs are kept, and the same command goes on with the others", file=sys.stderr)
        return 130
    return 2


if __name__ == "__main__":
    sys.exit(main())
