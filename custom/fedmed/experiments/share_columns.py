"""A layout: a row an arm, a column a share of the labels, a section for each task, test, protocol, model and score."""

from collections.abc import Collection, Sequence
from statistics import fmean, stdev
from typing import Any

import pandas as pd

from fedmed.errors import JobError
from fedmed.experiments.patient_resampling import PatientResamples, Setting
from fedmed.experiments.score_kinds import interval
from fedmed.experiments.share_figures import ShareRow, share_figure
from fedmed.experiments.table_layout import ShownArm, ShownTable, TableLayout
from fedmed.experiments.words_of_tables import bold_if, markdown_table, percent
from fedmed.reports.plots import png, style
from fedmed.reports.words import NOTHING, count

PROTOCOL_NAMES = {"linear": "linear classifier on frozen features", "finetune": "fine-tuning"}
MODEL_NAMES = {
    "last": "last epoch",
    "highest": "epoch with the highest test accuracy, as the paper reports; chosen on the test list, so too high",
}


class ShareColumns(TableLayout):
    """One set of files, and ``models.csv`` with a line a trained model.

    Attributes:
        figure: arms to draw; empty = all, without the parts of any.
        external: scores that are shown of a test at another hospital: a threshold, say, does not travel between them.
    """

    figure: list[str] = []
    external: list[str] = []

    def check(self, arms: Sequence[ShownArm], scores: Collection[str]) -> None:
        names = [arm.name for arm in arms]
        for key, values, allowed in (("figure", self.figure, names), ("external", self.external, scores)):
            if not set(values) <= set(allowed):
                raise JobError(f"'{key}' is {values}; it must be some of: {', '.join(allowed)}")

    def names(self) -> set[str]:
        return {"models.csv", "table.csv", "table.md", "figure.png"}

    def contents(self, shown: ShownTable) -> dict[str, bytes]:
        found, kinds = shown.evidence.resamples, shown.evidence.kinds
        rows = share_rows(shown.arms, found)
        tables = {"models.csv": found.models(), "table.csv": pd.DataFrame([vars(row) for row in rows])}
        contents = {name: own.to_csv(index=False, lineterminator="\n").encode() for name, own in tables.items()}
        contents["table.md"] = self._markdown(shown, rows).encode()
        drawn = [arm.name for arm in shown.arms if (arm.name in self.figure if self.figure else not arm.part)]
        if any(row.arm in drawn and row.list == "internal" and row.model == "last" for row in rows):
            labels = {name: kind.label for name, kind in kinds.items()}
            with style():
                contents["figure.png"] = png(share_figure(shown.title, drawn, rows, labels, PROTOCOL_NAMES))
        return contents

    def _markdown(self, shown: ShownTable, rows: Sequence[ShareRow]) -> str:
        n_seeds = sorted({row.n_seeds for row in rows})
        numbers = " to ".join(map(str, dict.fromkeys((n_seeds[0], n_seeds[-1])))) if n_seeds else "0"
        seeds = count(1, "seed") if n_seeds == [1] else f"{numbers} seeds"
        lines = [f"# {shown.title}", "", f"Mean ± standard deviation over {seeds} [95 % interval over patients].", ""]
        sections: dict[tuple, list[ShareRow]] = {}
        for row in rows:
            sections.setdefault((row.protocol, row.model, row.task, row.list, row.metric), []).append(row)
        for key in sorted(sections, key=lambda s: (s[0] != "linear", s[1] == "highest", s[3] == "external")):
            if key[3] == "internal" or key[4] in self.external:
                label = shown.evidence.kinds[key[4]].label
                lines += _section(key, label, shown.arms, sections[key])
        return "\n".join(lines)


def share_rows(arms: Sequence[ShownArm], scores: PatientResamples) -> list[ShareRow]:
    """Every arm, setting and score, in the table's order."""
    return [
        _row(arm, setting, score, scores)
        for setting in scores.settings()
        for score in scores.kinds
        for arm in arms
        if scores.seeds(arm.name, setting)
    ]


def _row(arm: ShownArm, setting: Setting, score: str, scores: PatientResamples) -> ShareRow:
    resampled = scores.resampled(arm.name, setting, score)
    means = [float(values[0]) for values in resampled.values()]
    low, high = interval(sum(resampled.values())[1:] / len(resampled))
    spread = stdev(means) if len(means) > 1 else None
    return ShareRow(arm.group, arm.name, *vars(setting).values(), score, len(means), fmean(means), spread, low, high)


def _section(key: tuple[str, ...], label: str, arms: Sequence[ShownArm], rows: Sequence[ShareRow]) -> list[str]:
    protocol, model, task, where, _ = key
    fractions = sorted({row.fraction for row in rows})
    cells = {(row.arm, row.fraction): row for row in rows}
    best = {f: max(f"{row.mean:.3f}" for row in rows if row.fraction == f) for f in fractions}
    lines: list[Sequence[Any]] = []
    group = ""
    for arm in arms:
        if not any(row.arm == arm.name for row in rows):
            continue
        if arm.group and arm.group != group:
            lines.append((f"*{arm.group}*", *[""] * len(fractions)))
        group = arm.group
        lines.append((arm.name, *(_cell(cells.get((arm.name, f)), best[f]) for f in fractions)))
    head = ("arm", *(f"{percent(f)} of the labels" for f in fractions))
    epoch = f", {MODEL_NAMES[model]}" if protocol == "finetune" else ""
    other = "" if where == "internal" else ", tested at the other hospital"
    title = f"## {task}{other}: {label}, {PROTOCOL_NAMES.get(protocol, protocol)}{epoch}"
    return [title, "", *markdown_table(head, lines), ""]


def _cell(row: ShareRow | None, best: str) -> str:
    if row is None:
        return NOTHING
    spread = "" if row.std is None else f" ± {row.std:.3f}"
    return f"{bold_if(row.mean, best)}{spread} [{row.low:.3f}, {row.high:.3f}]"
