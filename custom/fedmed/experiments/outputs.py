"""All that a reader sees of an experiment, made from its scores alone."""

from collections.abc import Sequence
from pathlib import Path

from fedmed.errors import JobError
from fedmed.experiments.claims import parse_claims
from fedmed.experiments.federation import Federation
from fedmed.experiments.figures import figure
from fedmed.experiments.info import ArmInfo, TableInfo
from fedmed.experiments.scores import Score
from fedmed.experiments.table import Table
from fedmed.experiments.tables import table_csv, table_markdown, table_rows
from fedmed.experiments.verdicts import claims_markdown, comparisons_csv, judge
from fedmed.files import write_atomically
from fedmed.reports.plots import png, style

KINDS = (("table", "md"), ("table", "csv"), ("figure", "png"))
SUFFIXES = {"selected": "", "last": "_last"}
NAMES = {"claims.md", "comparisons.csv"}
NAMES |= {f"{name}{suffix}.{kind}" for suffix in SUFFIXES.values() for name, kind in KINDS}


def info_of(table: Table, federation: Federation) -> TableInfo:
    """What a reader sees of a table on a federation: its sites, also in the claims, have the federation's names.

    Args:
        table: with claims that :func:`fedmed.experiments.claims.check_claims` has passed.
        federation: names the sites; its own name is added to the title, so that nobody takes it for the paper's table.

    Raises:
        JobError: the federation lacks a site that the table tests, or the table cannot be drawn.
    """
    if missing := [site for site in table.test if site not in federation.sites]:
        raise JobError(
            f"table '{table.name}' tests the site '{missing[0]}', which the federation '{federation.name}' does not "
            f"name; it has: {', '.join(federation.sites)}"
        )
    name, has_x = federation.sites, any(arm.x is not None for arm in table.arms)
    claims = [
        {**claim, "holds": [{**line, "sites": [name[site] for site in line["sites"]]} for line in claim["holds"]]}
        for claim in table.claims
    ]
    return TableInfo(
        name=table.name,
        title=f"{table.title} ({federation.name})",
        arms=[ArmInfo(arm.name, arm.group or None, arm.x) for arm in table.arms],
        sites=[name[site] for site in table.test],
        baseline=table.baseline,
        claims=claims,
        x_label=table.x_label if has_x else None,  # of some of the arms, only the baseline may be left
        x_log=table.x_log,
    )


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
    for name in NAMES - set(contents):  # of an earlier time with other arms; it would not fit the rest
        (folder / name).unlink(missing_ok=True)
    for name, content in contents.items():
        write_atomically(folder / name, lambda stream, content=content: stream.write(content))
    return [folder / name for name in contents]
