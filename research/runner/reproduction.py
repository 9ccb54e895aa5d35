"""From tables and data to files: what is missing is run, the rest is found again."""

import sys
from collections.abc import Mapping, Sequence
from operator import methodcaller
from pathlib import Path

import pandas as pd

from fedmed.errors import JobError
from fedmed.files import write_atomically
from research.runner.experiment_data import ExperimentData
from research.runner.experiment_table import ExperimentTable, only
from research.runner.given_scores import GivenScores, given_scores
from research.runner.job_step import LOG
from research.runner.judgement import claims_markdown, comparisons_csv, judge
from research.runner.score_table import joined, part_of, write_scores
from research.runner.stages import ArmWork, Place, arm_works
from research.runner.table_claim import Evidence
from research.runner.table_layout import ShownArm, ShownTable
from research.runner.work_queue import run_works

CLAIMS = {"claims.md", "comparisons.csv"}


def reproduce(
    tables: Sequence[ExperimentTable],
    data: ExperimentData,
    out: Path,
    seeds: Sequence[int] | None = None,
    jobs: int | None = None,
    dask: str | None = None,
    scores: Sequence[Path] = (),
) -> int:
    """Run tables on some data and write their files.

    Args:
        tables: all are run together, and share the runs that they have in common.
        data: what they are run on.
        out: runs go to ``out/runs``, files to ``out/<data>/<table>``.
        seeds: instead of the data's or the table's.
        jobs, dask: see :func:`run_works`.
        scores: of one table, made elsewhere; their seeds are not run, see :func:`given_scores`.

    Returns:
        Exit code: 0, or 2 if a run failed. A FedMedError if a table cannot be run on the data.
    """
    out = out.resolve()
    for table in tables:
        table.check_data(data)
    tables = [_available(table, data) for table in tables]
    if scores and len(tables) > 1:
        raise JobError("--scores belongs to one table, and several are asked for; ask for one at a time")
    given = given_scores(scores, [arm.name for table in tables for arm in table.arms])
    works = {}
    for table in tables:
        works[table.name] = [
            work
            for seed in seeds or data.seeds or table.seeds
            if seed not in given.seeds
            for arm in table.arms
            for work in arm_works(arm.stages, Place(arm.name, seed, data, table.test, out / "runs"))
        ]
    failed = run_works([work for of_table in works.values() for work in of_table], jobs, dask)
    for path, reason in failed.items():
        log = path / LOG
        print(f"error: {reason} (see {log if log.is_file() else path})", file=sys.stderr)
    for table in tables:
        for path in _write(table, data, works[table.name], set(failed), given, out / data.name / table.name):
            print(path)
    return 2 if failed else 0


def scores_of(works: Sequence[ArmWork]) -> pd.DataFrame:
    """The table of scores of finished chains, each under the name that its table gives the arm.

    Those of an arm of several results (each hospital alone) count as so many draws of one arm, whose scores are
    averaged, and again as rows of their own. Of a job that another one goes on with, the latter's scores alone count. A
    file that is missing or damaged is a DataError.
    """
    frames = []
    for work in works:
        begun = {step.start.path for step in work.steps if step.start}
        for step in work.steps:
            if step.path not in begun and (frame := step.scores()) is not None:
                names = [work.arm, *([part_of(work.arm, step.node)] if step.node else [])]
                frames += [frame.assign(arm=name) for name in names]
    return joined(frames)


def write_table_files(
    folder: Path, table: ExperimentTable, data: str, sites: Mapping[str, str], frame: pd.DataFrame
) -> list[Path]:
    """Write the files of the table's layout, and the claims with their comparisons if there are any.

    Args:
        folder: of the table on this data.
        table: rows and claims.
        data: name of the data, added to the title, so that nobody takes it for the paper's table.
        sites: the table's names of sites -> the data's.
        frame: scores of any part of its arms and seeds; claims about arms without scores read ``not run``.

    Raises:
        DataError: the arms of a claim have different cases or seeds.
    """
    evidence, title = Evidence(frame, table.scores, sites, data, table.arms), f"{table.title} ({data})"
    contents = table.layout.contents(ShownTable(title, _rows(table.arms, frame), list(sites.values()), evidence))
    if table.claims:
        judged = judge(table.claims, evidence)
        contents["claims.md"] = claims_markdown(title, judged, table.scores).encode()
        contents["comparisons.csv"] = comparisons_csv(judged).encode()
    for name in (table.layout.names() | CLAIMS) - set(contents):  # written with other arms: they do not fit
        (folder / name).unlink(missing_ok=True)
    for name, content in contents.items():
        write_atomically(folder / name, methodcaller("write", content))
    return [folder / name for name in contents]


def _available(table: ExperimentTable, data: ExperimentData) -> ExperimentTable:
    """The table without the arms that this data cannot run; which these are, is said."""
    reasons = {arm.name: [lack for stage in arm.stages if (lack := stage.lacking(data))] for arm in table.arms}
    for name, reason in reasons.items():
        if reason:
            print(f"{table.name}: '{name}' is left out: '{data.name}' does not have {reason[0]}")
    return only(table, [name for name, reason in reasons.items() if not reason])


def _write(
    table: ExperimentTable,
    data: ExperimentData,
    works: Sequence[ArmWork],
    failed: set[Path],
    given: GivenScores,
    folder: Path,
) -> list[Path]:
    """The outputs of one table; an arm with a failed run is left out, because its mean would be over other seeds."""
    bad = {work.arm for work in works if work.path in failed}
    good = [work for work in works if work.arm not in bad]
    table = only(table, [arm.name for arm in table.arms if arm.name not in bad])
    if not table.arms:
        print(f"{table.name}: every arm has a failed run, so nothing is written to {folder}", file=sys.stderr)
        return []
    frames = (given.of(arm.name for arm in table.arms), scores_of(good))
    frame = joined([part for part in frames if len(part)])
    write_scores(folder / "scores.csv", frame)
    return [folder / "scores.csv", *write_table_files(folder, table, data.name, data.shown_sites(table.test), frame)]


def _rows(arms: Sequence[ShownArm], frame: pd.DataFrame) -> list[ShownArm]:
    """The arms, one of several results (each hospital alone) followed by a row for each."""
    there, rows = list(frame["arm"].unique()), []
    for arm in arms:
        parts = [name for name in there if name.startswith(part_of(arm.name, ""))]
        rows += [arm, *(ShownArm(name, arm.group, part=True) for name in parts)]
    return rows
