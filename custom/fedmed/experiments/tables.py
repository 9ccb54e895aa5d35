"""Mean and standard deviation over seeds of every arm at every site, as Markdown and CSV."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from statistics import mean, stdev

from fedmed.experiments.comparison import seed_means
from fedmed.experiments.info import TableInfo
from fedmed.experiments.scores import Score
from fedmed.reports.words import NOTHING, count

CAPTIONS = {"selected": "model selected by the labelled sites' validation Dice", "last": "model of the last round"}
LISTS = ("valid", "test")  # a site's columns in their order


@dataclass(frozen=True)
class Row:
    """Dice of one arm on one list of one site.

    Attributes:
        group, arm, site, list: where.
        n_seeds, n_cases: what it is the mean of; ``n_cases`` is 1 for the list ``valid``, which has one mean a run.
        dice_mean: over the seeds' means, 0..1.
        dice_std: sample standard deviation of the seeds' means; None for one seed.
    """

    group: str
    arm: str
    site: str
    list: str
    n_seeds: int
    n_cases: int
    dice_mean: float
    dice_std: float | None


def table_rows(info: TableInfo, scores: Sequence[Score], model: str) -> list[Row]:
    """Every arm, site and list that has scores of a model, in the table's order."""
    rows = []
    for group, arms in info.in_groups():
        for arm in arms:
            own = [score for score in scores if score.arm == arm.name and score.model == model]
            for site in info.sites:
                for kind in LISTS:
                    if means := list(seed_means(own, arm.name, site, kind, model).values()):
                        cases = {score.case for score in own if (score.site, score.list) == (site, kind)}
                        spread = stdev(means) if len(means) > 1 else None
                        rows.append(Row(group or "", arm.name, site, kind, len(means), len(cases), mean(means), spread))
    return rows


def table_csv(rows: Sequence[Row]) -> str:
    """A line a row, unrounded; the standard deviation of one seed is empty."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(Row)])
    writer.writerows(astuple(row) for row in rows)
    return text.getvalue()


def table_markdown(info: TableInfo, rows: Sequence[Row], model: str) -> str:
    """Rows are arms below their group, columns sites with their lists; the best test mean of a column is bold."""
    columns = [(s, kind) for s in info.sites for kind in LISTS if any((r.site, r.list) == (s, kind) for r in rows)]
    cells = {(row.arm, row.site, row.list): row for row in rows}
    best = {column: _best(rows, column) for column in columns}
    head = [_head(column, rows) for column in columns]
    lines = [f"# {info.title}", "", f"Dice, {CAPTIONS[model]}; {seeds_phrase(row.n_seeds for row in rows)}.", ""]
    lines += [_line(["arm", *head]), "|---" + "|--:" * len(columns) + "|"]
    for group, arms in info.in_groups():
        shown = [arm for arm in arms if any(row.arm == arm.name for row in rows)]
        if group and shown:
            lines.append(_line([f"*{group}*", *[""] * len(columns)]))
        for arm in shown:
            lines.append(_line([arm.name, *(_cell(cells.get((arm.name, *c)), best[c]) for c in columns)]))
    return "\n".join([*lines, ""])


def seeds_phrase(n_seeds: Iterable[int]) -> str:
    """What the numbers are, from the seeds of each: ``mean ± standard deviation over 5 seeds``."""
    numbers = sorted(set(n_seeds))
    if numbers == [1]:
        return "one seed"
    most = f"{numbers[0]} to {numbers[-1]} seeds" if len(numbers) > 1 else count(numbers[0], "seed")
    return f"mean ± standard deviation over {most}"


def _head(column: tuple[str, str], rows: Sequence[Row]) -> str:
    site, kind = column
    numbers = sorted({row.n_cases for row in rows if (row.site, row.list) == column})
    cases = count(numbers[0], "case") if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]} cases"
    return f"{site} valid" if kind == "valid" else f"{site} test ({cases})"


def _best(rows: Sequence[Row], column: tuple[str, str]) -> str | None:
    """The highest mean of a test column as printed, so that rows that read the same are both bold."""
    means = [row.dice_mean for row in rows if (row.site, row.list) == column]
    return f"{max(means):.3f}" if column[1] == "test" and len(means) > 1 else None


def _cell(row: Row | None, best: str | None) -> str:
    if row is None:
        return NOTHING
    printed = f"{row.dice_mean:.3f}"
    bold = f"**{printed}**" if printed == best else printed
    return bold if row.dice_std is None else f"{bold} ± {row.dice_std:.3f}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
