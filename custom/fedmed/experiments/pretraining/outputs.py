"""All that a reader sees of a pre-training table, made from its results alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedmed.experiments.pretraining.arms import Table
from fedmed.experiments.pretraining.claims import read_claims
from fedmed.experiments.pretraining.dynamics import History
from fedmed.experiments.pretraining.figures import figure
from fedmed.experiments.pretraining.report import claims_markdown
from fedmed.experiments.pretraining.scores import Row as ScoreRow
from fedmed.experiments.pretraining.scores import Scores, write_csv
from fedmed.experiments.pretraining.tables import Row, table_markdown, table_rows
from fedmed.experiments.pretraining.verdicts import judge
from fedmed.files import write_atomically
from fedmed.reports.plots import png, style

NAMES = ("scores.csv", "table.csv", "table.md", "figure.png", "claims.md")


def write_outputs(
    folder: Path,
    table: Table,
    data: str,
    scores: Scores,
    histories: Mapping[str, Mapping[int, History]],
    arms: Sequence[str] | None = None,
) -> list[Path]:
    """Write a table's files.

    Args:
        folder: of the table on this data.
        table: rows and claims.
        data: name of the description, added to the title, so that nobody takes it for the paper's table.
        scores: results of the arms; those without any are left out.
        histories: arm -> seed -> rounds.
        arms: names that claims may use; None = the table's.

    Returns:
        ``scores.csv`` (a line a classifier), ``table.csv``, ``table.md``, ``figure.png`` and ``claims.md``.
    """
    title = f"{table.title} ({data})"
    rows = table_rows(table.arms, scores)
    for name in NAMES:  # of an earlier time with other arms; it would not fit the rest
        (folder / name).unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / "scores.csv", scores.rows(), ScoreRow)
    write_csv(folder / "table.csv", rows, Row)
    _write(folder / "table.md", table_markdown(title, table.arms, rows).encode())
    drawn = [arm.name for arm in table.arms if not table.figure or arm.name in table.figure]
    if any(row.arm in drawn and row.test == "internal" and row.model == "last" for row in rows):
        with style():
            _write(folder / "figure.png", png(figure(title, drawn, rows)))
    if table.claims:
        claims = read_claims(table.claims, arms or [arm.name for arm in table.arms])
        _write(folder / "claims.md", claims_markdown(title, judge(claims, scores, histories)).encode())
    return [folder / name for name in NAMES if (folder / name).is_file()]


def _write(path: Path, content: bytes) -> None:
    write_atomically(path, lambda stream: stream.write(content))
