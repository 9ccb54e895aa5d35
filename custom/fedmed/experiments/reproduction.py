"""From tables and data to files: what is missing is run, the rest is found again."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedmed.experiments.chain import Place, chain_works
from fedmed.experiments.experiment_data import ExperimentData
from fedmed.experiments.experiment_table import ExperimentTable, only
from fedmed.experiments.job_run import LOG
from fedmed.experiments.score_table import joined, write_scores
from fedmed.experiments.table_files import node_row, write_table_files
from fedmed.experiments.work_queue import PlannedWork, run_works


def available(table: ExperimentTable, data: ExperimentData) -> ExperimentTable:
    """The table without the arms that this data cannot run; which these are, is said."""
    reasons = {arm.name: [lack for link in arm.links if (lack := link.lacking(data))] for arm in table.arms}
    for name, reason in reasons.items():
        if reason:
            print(f"{table.name}: '{name}' is left out: '{data.name}' does not have {reason[0]}")
    return only(table, [name for name, reason in reasons.items() if not reason])


def planned(table: ExperimentTable, data: ExperimentData, seeds: Sequence[int], out: Path) -> list[PlannedWork]:
    """Every chain of a table.

    Raises:
        FedMedError: an arm cannot be run on this data.
    """
    places = [(arm, Place(arm.name, seed, data, table.test, out / "runs")) for seed in seeds for arm in table.arms]
    return [PlannedWork(arm.name, work) for arm, place in places for work in chain_works(arm.links, place)]


def scores_of(parts: Sequence[PlannedWork]) -> pd.DataFrame:
    """The table of scores of finished chains, each under the name that its table gives the arm.

    Those of an arm of several results (each hospital alone) count as so many draws of one arm, whose scores are
    averaged, and again as rows of their own.

    Raises:
        DataError: a file is missing or damaged; names it.
    """
    frames = []
    for part in parts:
        for step in part.work.steps:
            if (frame := step.scores()) is not None:
                frames.append(frame.assign(arm=part.arm))
                if step.node:
                    frames.append(frame.assign(arm=node_row(part.arm, step.node)))
    return joined(frames)


def reproduce(
    tables: Sequence[ExperimentTable],
    data: ExperimentData,
    out: Path,
    seeds: Sequence[int] | None = None,
    jobs: int | None = None,
    dask: str | None = None,
) -> int:
    """Run tables on some data and write their files.

    Args:
        tables: all are run together, and share the runs that they have in common.
        data: what they are run on.
        out: runs go to ``out/runs``, files to ``out/<data>/<table>``.
        seeds: instead of the data's or the table's.
        jobs, dask: see :func:`run_works`.

    Returns:
        Exit code: 0, or 2 if a run failed.

    Raises:
        FedMedError: the data or a list of images cannot be used, or a table cannot be run on it.
    """
    out = out.resolve()
    for table in tables:
        table.check_data(data)
    tables = [available(table, data) for table in tables]
    parts = {table.name: planned(table, data, seeds or data.seeds or table.seeds, out) for table in tables}
    failed = run_works([part for own in parts.values() for part in own], jobs, dask)
    for path, reason in failed.items():
        log = path / LOG
        print(f"error: {reason} (see {log if log.is_file() else path})", file=sys.stderr)
    for table in tables:
        for path in _write(table, data, parts[table.name], set(failed), out / data.name / table.name):
            print(path)
    return 2 if failed else 0


def _write(
    table: ExperimentTable, data: ExperimentData, parts: Sequence[PlannedWork], failed: set[Path], folder: Path
) -> list[Path]:
    """The outputs of one table; an arm with a failed run is left out, because its mean would be over other seeds."""
    bad = {part.arm for part in parts if part.work.path in failed}
    good = [part for part in parts if part.arm not in bad]
    if not good:
        print(f"{table.name}: every arm has a failed run, so nothing is written to {folder}", file=sys.stderr)
        return []
    table = only(table, [arm.name for arm in table.arms if arm.name not in bad])
    frame = scores_of(good)
    folder.mkdir(parents=True, exist_ok=True)
    write_scores(folder / "scores.csv", frame)
    written = write_table_files(folder, table, data.name, data.shown_sites(table.test), frame)
    return [folder / "scores.csv", *written]
