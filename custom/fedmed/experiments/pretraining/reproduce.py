"""From tables and a description of data to files: what is missing is run, the rest is found again."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedmed.errors import JobError
from fedmed.experiments.checks import check_seeds
from fedmed.experiments.pretraining.arms import Table, load_table, only
from fedmed.experiments.pretraining.claims import read_claims
from fedmed.experiments.pretraining.description import Description, load_description
from fedmed.experiments.pretraining.gather import Truths, histories_of, results_of, rows_of
from fedmed.experiments.pretraining.hospitals import open_hospitals
from fedmed.experiments.pretraining.outputs import write_outputs
from fedmed.experiments.pretraining.queue import Part, parts_of, run_parts
from fedmed.experiments.pretraining.scores import Scores
from fedmed.experiments.pretraining.tasks import truths


def reproduce(
    tables: Sequence[Path],
    data: Path,
    out: Path,
    seeds: Sequence[int] | None = None,
    arms: Sequence[str] | None = None,
    jobs: int | None = None,
) -> int:
    """Run tables of pre-training arms on one description of data and write their files.

    Args:
        tables, data: YAML files.
        out: runs go to ``out/runs``, files to ``out/<data>/<table>``.
        seeds: instead of the data's or the table's.
        arms: only these rows.
        jobs: processes; None = what the cores allow.

    Returns:
        Exit code: 0, or 2 if a run failed; its arm is left out of the tables.

    Raises:
        FedMedError: a description or a list of images cannot be used.
    """
    description = load_description(data)
    read = [_read(path) for path in tables]
    hospitals, out = open_hospitals(description), out.resolve()
    planned: list[tuple[Table, list[Part]]] = []
    for table in read:
        wanted = seeds or description.seeds or table.seeds
        check_seeds(wanted)
        chosen = only(table, arms) if arms else table
        planned.append((chosen, parts_of(chosen, description, hospitals, wanted, out / "runs")))
    failed = run_parts([part for _, parts in planned for part in parts], jobs)
    for folder, reason in failed.items():
        print(f"error: {reason} (runs: {folder})", file=sys.stderr)
    known = truths(description, hospitals)
    for whole, (table, parts) in zip(read, planned, strict=True):
        names = [arm.name for arm in whole.arms]
        for path in _write(table, parts, set(failed), description, known, out, names):
            print(path)
    return 2 if failed else 0


def _write(
    table: Table,
    parts: Sequence[Part],
    failed: set[Path],
    description: Description,
    known: Truths,
    out: Path,
    names: Sequence[str],
) -> list[Path]:
    """Files of one table; an arm with a failed run is left out, because its mean would be over other seeds."""
    bad = {part.arm.name for part in parts if part.folder in failed}
    good = [part for part in parts if part.arm.name not in bad]
    if not good:
        print(f"{table.name}: every arm has a failed run, so nothing is written", file=sys.stderr)
        return []
    arms = [arm for arm in table.arms if arm.name not in bad]
    drawn = [name for name in table.figure or [arm.name for arm in arms] if name not in bad]
    shown = replace(table, arms=rows_of(arms, good), figure=drawn)
    scores = Scores(results_of(good, description, known), known)
    return write_outputs(
        out / description.name / table.name, shown, description.name, scores, histories_of(good), names
    )


def _read(path: Path) -> Table:
    table = load_table(path)
    try:
        read_claims(table.claims, [arm.name for arm in table.arms])
    except JobError as error:
        raise JobError(f"{path}: {error}") from error
    return table
