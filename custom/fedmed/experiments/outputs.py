"""All that a reader sees of an experiment, made from its scores alone."""

from collections.abc import Sequence
from pathlib import Path

from fedmed.experiments.claims import parse_claims
from fedmed.experiments.figures import figure
from fedmed.experiments.info import TableInfo
from fedmed.experiments.scores import Score
from fedmed.experiments.tables import table_csv, table_markdown, table_rows
from fedmed.experiments.verdicts import claims_markdown, comparisons_csv, judge
from fedmed.files import write_atomically
from fedmed.reports.plots import png, style

SUFFIXES = {"selected": "", "last": "_last"}


def write_outputs(folder: Path, info: TableInfo, scores: Sequence[Score]) -> list[Path]:
    """Write tables and figures of each model that was tested, and the claims with their comparisons if there are any.

    Args:
        folder: of the experiment.
        info: names and order.
        scores: of any part of its arms and seeds; claims about arms without scores read ``not run``.

    Returns:
        ``table.md``, ``table.csv``, ``figure.png`` for the selected model, the same with ``_last`` for the model of
        the last round, ``claims.md`` and ``comparisons.csv``; those that there is something to write in.

    Raises:
        JobError: a malformed claim.
        DataError: the arms of a claim have different cases or seeds.
        OSError: the folder cannot be written.
    """
    contents: dict[str, bytes] = {}
    for model, suffix in SUFFIXES.items():
        if rows := table_rows(info, scores, model):
            contents[f"table{suffix}.md"] = table_markdown(info, rows, model).encode()
            contents[f"table{suffix}.csv"] = table_csv(rows).encode()
        if any(row.list == "test" for row in rows):
            with style():
                contents[f"figure{suffix}.png"] = png(figure(info, scores, model))
    if claims := parse_claims(info.claims):
        judged = judge(claims, scores)
        contents["claims.md"] = claims_markdown(info.title, judged).encode()
        contents["comparisons.csv"] = comparisons_csv(judged).encode()
    for name, content in contents.items():
        write_atomically(folder / name, lambda stream, content=content: stream.write(content))
    return [folder / name for name in contents]
