"""All that a reader sees of an experiment, made from its table of scores alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from fedmed.experiments.claims_document import claims_markdown, comparisons_csv
from fedmed.experiments.experiment_table import ExperimentTable
from fedmed.experiments.judgement import judge
from fedmed.experiments.table_claim import Evidence
from fedmed.experiments.table_layout import ShownArm, ShownTable
from fedmed.files import write_atomically

CLAIMS = {"claims.md", "comparisons.csv"}


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

    Returns:
        The files that there was something to write in.

    Raises:
        DataError: the arms of a claim have different cases or seeds.
        OSError: the folder cannot be written.
    """
    evidence = Evidence(frame, table.scores, sites)
    title = f"{table.title} ({data})"
    shown = ShownTable(title, rows_shown([arm.shown for arm in table.arms], frame), list(sites.values()), evidence)
    contents = table.layout.contents(shown)
    if table.claims:
        judged = judge(table.claims, evidence)
        contents["claims.md"] = claims_markdown(title, judged, table.scores).encode()
        contents["comparisons.csv"] = comparisons_csv(judged).encode()
    for name in (table.layout.names() | CLAIMS) - set(contents):  # of an earlier time with other arms: it does not fit
        (folder / name).unlink(missing_ok=True)
    for name, content in contents.items():
        write_atomically(folder / name, lambda stream, content=content: stream.write(content))
    return [folder / name for name in contents]


def rows_shown(arms: Sequence[ShownArm], frame: pd.DataFrame) -> list[ShownArm]:
    """The arms, one of several results (each hospital alone) followed by a row for each."""
    there, rows = list(frame["arm"].unique()), []
    for arm in arms:
        rows.append(arm)
        rows += [ShownArm(name, arm.group, part=True) for name in there if name.startswith(node_row(arm.name, ""))]
    return rows


def node_row(arm: str, node: str) -> str:
    return f"{arm}: {node}"
