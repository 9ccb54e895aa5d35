"""Mean and standard deviation over seeds of every arm in every setting, as Markdown and CSV."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from fedmed.experiments.pretraining.arms import Arm
from fedmed.experiments.pretraining.metrics import METRICS, interval
from fedmed.experiments.pretraining.report import percent, table
from fedmed.experiments.pretraining.scores import Scores, Setting
from fedmed.reports.words import NOTHING, count

NAMES = {"accuracy": "accuracy", "auroc": "AUROC"}
PROTOCOL_NAMES = {"linear": "linear classifier on frozen features", "finetune": "fine-tuning"}
MODEL_NAMES = {
    "last": "last epoch",
    "highest": "epoch with the highest test accuracy, as the paper reports; chosen on the test list, so too high",
}


@dataclass(frozen=True)
class Row:
    """One arm in one setting by one metric.

    Attributes:
        group to model: where.
        metric: ``accuracy`` or ``auroc``.
        n_seeds: what it is the mean of.
        mean, std: over seeds; std None for one.
        low, high: 95 % interval of the mean over patients.
    """

    group: str
    arm: str
    task: str
    test: str
    protocol: str
    fraction: float
    model: str
    metric: str
    n_seeds: int
    mean: float
    std: float | None
    low: float
    high: float


def table_rows(arms: Sequence[Arm], scores: Scores) -> list[Row]:
    """Every arm, setting and metric, in the table's order."""
    return [
        _row(arm, setting, metric, scores)
        for setting in scores.settings()
        for metric in METRICS
        for arm in arms
        if scores.seeds(arm.name, setting)
    ]


def table_markdown(title: str, arms: Sequence[Arm], rows: Sequence[Row]) -> str:
    """A section for each task, test, protocol, model and metric; columns are shares of the labels."""
    n_seeds = sorted({row.n_seeds for row in rows})
    numbers = " to ".join(map(str, dict.fromkeys((n_seeds[0], n_seeds[-1])))) if n_seeds else "0"
    seeds = count(1, "seed") if n_seeds == [1] else f"{numbers} seeds"
    lines = [f"# {title}", "", f"Mean ± standard deviation over {seeds} [95 % interval over patients].", ""]
    sections = dict.fromkeys((r.protocol, r.model, r.task, r.test, r.metric) for r in rows)
    for section in sorted(sections, key=lambda s: (s[0] != "linear", s[1] == "highest", s[3] == "external")):
        own = [r for r in rows if (r.protocol, r.model, r.task, r.test, r.metric) == section]
        if section[3] == "internal" or section[4] == "auroc":  # a threshold does not travel between hospitals
            lines += _section(section, arms, own)
    return "\n".join(lines)


def _section(section: tuple[str, str, str, str, str], arms: Sequence[Arm], rows: Sequence[Row]) -> list[str]:
    protocol, model, task, test, metric = section
    fractions = sorted({row.fraction for row in rows})
    cells = {(row.arm, row.fraction): row for row in rows}
    best = {f: max(f"{row.mean:.3f}" for row in rows if row.fraction == f) for f in fractions}
    model = f", {MODEL_NAMES[model]}" if protocol == "finetune" else ""
    where = "" if test == "internal" else ", tested at the other hospital"
    lines, group = [], ""
    for arm in arms:
        if not any(row.arm == arm.name for row in rows):
            continue
        if arm.group and arm.group != group:
            lines.append((f"*{arm.group}*", *[""] * len(fractions)))
        group = arm.group
        lines.append((arm.name, *(_cell(cells.get((arm.name, f)), best[f]) for f in fractions)))
    head = ("arm", *(f"{percent(f)} of the labels" for f in fractions))
    return [f"## {task}{where}: {NAMES[metric]}, {PROTOCOL_NAMES[protocol]}{model}", "", *table(head, lines), ""]


def _row(arm: Arm, setting: Setting, metric: str, scores: Scores) -> Row:
    resampled = scores.resampled(arm.name, setting, metric)
    means = [float(values[0]) for values in resampled.values()]
    low, high = interval(sum(resampled.values())[1:] / len(resampled))
    at = (setting.task, setting.test, setting.protocol, setting.fraction, setting.model)
    spread = stdev(means) if len(means) > 1 else None
    return Row(arm.group, arm.name, *at, metric, len(means), fmean(means), spread, low, high)


def _cell(row: Row | None, best: str) -> str:
    if row is None:
        return NOTHING
    mean = f"{row.mean:.3f}"
    mean = f"**{mean}**" if mean == best else mean
    spread = "" if row.std is None else f" ± {row.std:.3f}"
    return f"{mean}{spread} [{row.low:.3f}, {row.high:.3f}]"
