"""A layout: a row an arm, a column a hospital, a section for whose labels were learned, model and score."""

import pandas as pd

from research.runner.federated_classification import INTERNAL
from research.runner.share_columns import section, share_rows
from research.runner.site_columns import CAPTIONS, in_groups
from research.runner.table_layout import ShownTable, TableLayout
from research.runner.words_of_tables import csv_bytes, seeds_phrase

KEYS = ["protocol", "model", "metric"]


class HospitalColumns(TableLayout):
    """One set of files, the last round's model before the selected one; ``models.csv`` has a line a trained model."""

    def names(self) -> set[str]:
        return {"models.csv", "table.csv", "table.md"}

    def contents(self, shown: ShownTable) -> dict[str, bytes]:
        scores = shown.evidence.patients
        rows = share_rows(in_groups(shown.arms), scores)
        tables = {"models.csv": scores.models(), "table.csv": rows}
        return {name: csv_bytes(one) for name, one in tables.items()} | {"table.md": _markdown(shown, rows).encode()}


def _markdown(shown: ShownTable, rows: pd.DataFrame) -> str:
    spread = f"{seeds_phrase(rows['n_seeds'])} [95 % interval over patients]".capitalize()
    lines = [f"# {shown.title}", "", f"{spread}. *With labels*: the hospital whose labels every arm learns from.", ""]
    labelled = rows["list"] == INTERNAL
    rows = rows.assign(column=rows["task"].astype(str) + labelled.map({True: ", with labels", False: ""}))
    rows = rows.sort_values(["protocol", "model"], kind="stable")
    for (protocol, model, metric), part in rows.groupby(KEYS, sort=False):
        label = shown.evidence.kinds[metric].label
        lines += [f"## {protocol}: {label}, {CAPTIONS[model].format(label=label)}", ""]
        lines += [*section(in_groups(shown.arms), part, "column", str), ""]
    return "\n".join(lines)
