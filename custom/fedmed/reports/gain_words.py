"""Gain by the sites without labels, in sentences and as a table for a terminal."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fedmed.methods.control_kinds import ADAPTED, LEFT_OUT, OPTIONS, SILENT
from fedmed.plain_text import in_terminal
from fedmed.reports.gain import (
    BETTER,
    LABELLED,
    LEAST_SOUGHT,
    NO_LABELS,
    NONE_SEEN,
    SCORED,
    SOME_LABELS,
    TOO_FEW,
    WORSE,
    Gain,
    signed,
)
from fedmed.reports.notes import statistics_note
from fedmed.reports.run_contents import Run
from fedmed.reports.run_report import report_of
from fedmed.reports.site_rows import screen_table
from fedmed.reports.words import count, fixed, join

MOST = 2  # sites that each have a sentence
NOT_LEARNED = (
    "In the run the sites without labels {does}, also when a model is tested; in the control they do not. So the "
    "difference holds that too; {remedy}."
)
STATISTICS_HELP = (
    "In the run the sites without labels are tested with BatchNorm statistics of their own {images}, in the control "
    "with those of labelled sites. So the difference holds that too, for which nothing need be learned; "
    "'fedmed simulate JOB --silent-control' shows what learning adds to it."
)
REMEDIES = {
    LEFT_OUT: "the control that tells the two apart is missing: 'fedmed simulate JOB --control --resume' makes it",
    SILENT: "'fedmed simulate JOB --control' tells the two apart",
}
HAS = {LABELLED: "has labels", SCORED: "is only scored", NO_LABELS: "has no labels", SOME_LABELS: "has few labels"}
WITH = "with learning"  # the run, beside a control in which sites adapt


@dataclass(frozen=True)
class Wording:
    """Words for a kind of control.

    Attributes:
        compared: after "with and without".
        without: after a score.
        worse_off: after "worse off".
        lacks: after "the same job".
        short: over a column, beside a control in which sites adapt.
        adds: what the step after it brings, beside one.
    """

    compared: str
    without: str
    worse_off: str
    lacks: str
    short: str
    adds: str


WORDS = {
    LEFT_OUT: Wording(
        "the sites that have no labels",
        "without them",
        "with them",
        "in which the sites without labels do not train: they are only scored",
        "left out",
        "by adaptation",
    ),
    SILENT: Wording(
        "what is learned without labels",
        "with nothing learned from them",
        "by what is learned from them",
        "in which the sites without labels take part in every round and learn nothing",
        "silent",
        "by adaptation",
    ),
    ADAPTED: Wording(
        "what is learned without labels",
        "adapted, with nothing learned from them",
        "by what is learned from them",
        "in which the sites without labels take part in every round, adapt as in the run, and learn nothing",
        "adapted",
        "by learning",
    ),
}


def rows(run: Run) -> list[tuple[Gain, ...]]:
    """Gains of each step, site by site."""
    return list(zip(*(step.gains for step in run.steps), strict=True))


def is_split(run: Run) -> bool:
    """True where the controls tell apart what adaptation and what learning brings."""
    return len(run.steps) > 1


def score_heads(run: Run) -> list[str]:
    """Heads of the columns of :func:`scores_of`."""
    return [*(WORDS[step.kind].short for step in run.steps), WITH] if is_split(run) else ["with", "without"]


def scores_of(row: Sequence[Gain]) -> list[float | None]:
    """A site's scores: with and without; of two steps from the first control to the run."""
    return [row[0].theirs, *(gain.ours for gain in row)] if len(row) > 1 else [row[0].ours, row[0].theirs]


def change_heads(run: Run, one: str) -> list[str]:
    """Heads of columns of what each step brings; ``one`` where there is one alone."""
    return [WORDS[step.kind].adds for step in run.steps] if is_split(run) else [one]


def headline(run: Run) -> str:
    """Say what joining has brought the sites without labels, or others if those were not scored.

    Where controls tell it apart, what adaptation and what learning has; then also at sites that adapt and never train.
    """
    unlabelled, images = [site.name for site in run.by_role("unsupervised")], report_of(run).images
    known = [row for row in rows(run) if all(gain.difference is not None for gain in row)]
    shown, first, which = [row for row in known if row[0].part in (NO_LABELS, SOME_LABELS)], "", "train without labels"
    scored = [row for row in known if row[0].part == SCORED]
    their_images = f"its {images}" if len(unlabelled) == 1 else f"all their {images}"
    if not shown:
        first = f"What {join(unlabelled)} gained is not known: not scored in {_all_runs(run)}. "
        shown, which = scored or known, "were scored"
        their_images = f"the {images} of {join(unlabelled)}"
    elif is_split(run) and run.method.scored_adapt and len(shown) + len(scored) <= MOST:
        shown = shown + scored
    if len(shown) > MOST:
        compared = "; ".join(
            _counted(run, [row[place] for row in shown], place, their_images) for place in range(len(shown[0]))
        )
        return f"{first}Of {len(shown)} sites that {which}, {compared}."
    return first + " ".join(
        _split(row, run) if is_split(run) else _sentence(row[0], run, their_images) for row in shown
    )


def _all_runs(run: Run) -> str:
    return "all three runs" if is_split(run) else "both runs"


def _counted(run: Run, shown: Sequence[Gain], place: int, their_images: str) -> str:
    """Count the sites by verdict of a step: ``by learning: better off: 2 and worse off: 1``."""
    counts = [(word, sum(gain.verdict == word for gain in shown)) for word in (BETTER, WORSE, NONE_SEEN, TOO_FEW)]
    said, words = join([f"{word}: {n}" for word, n in counts if n]), WORDS[run.steps[place].kind]
    return f"{words.adds if is_split(run) else f'with {their_images} and {words.without}'}: {said or 'no intervals'}"


def _split(row: Sequence[Gain], run: Run) -> str:
    """A site's scores with each control and in the run, and what each step has brought."""
    scores = [f"{fixed(score)} {head}" for score, head in zip(scores_of(row), score_heads(run), strict=True)]
    changes = [_brought(gain, WORDS[step.kind].adds) for gain, step in zip(row, run.steps, strict=True)]
    changes[1:] = [said.replace(f" over {row[0].cases}", "").replace("95 % interval ", "") for said in changes[1:]]
    return f"{row[0].name}, which {HAS[row[0].part]}: {run.score.label} {', '.join(scores)}: {', '.join(changes)}."


def _brought(gain: Gain, adds: str) -> str:
    """``+0.130 by adaptation (95 % interval +0.101 to +0.158 over 20 cases)``, and what follows from it."""
    if gain.low == gain.high == 0:  # a site that decided not to adapt, say
        return f"nothing {adds} (the same scores of {gain.cases})"
    few = f"; {count(gain.n_patients, 'patient')} cannot tell"
    if gain.cannot_tell:
        few += f"; about {gain.needed:,} would" + ("" if gain.sought > LEAST_SOUGHT else f" show {LEAST_SOUGHT:g}")
    so = {WORSE: "; worse off", NONE_SEEN: "; no difference was detected", TOO_FEW: few}
    return f"{signed(gain.difference)} {adds} ({gain.basis}{so.get(gain.verdict, '')})"


def _sentence(gain: Gain, run: Run, their_images: str) -> str:
    """A site's scores, their difference, and what follows from the interval where a reader could overlook it."""
    words = WORDS[run.steps[0].kind]
    ours, theirs = f"{fixed(gain.ours)} with {their_images}", f"{fixed(gain.theirs)} {words.without}"
    scores = f"{run.score.label} {ours}, {theirs}: {gain.text}."
    by = ", by less than 0.0005" if abs(gain.difference or 0.0) < 0.0005 else ""  # which `signed` shows as 0.000
    so = {WORSE: f" It is worse off {words.worse_off}{by}.", NONE_SEEN: " No difference was detected."}
    so |= {TOO_FEW: f" {_cannot_tell(gain)}."}
    return f"{gain.name}, which {HAS[gain.part]}: {scores}{so.get(gain.verdict, '')}"


def _cannot_tell(gain: Gain) -> str:
    """Say that patients are too few, and how many would do, where they are enough to tell that."""
    if not gain.cannot_tell:
        return f"{count(gain.n_patients, 'patient')} cannot tell"
    size = "a difference of this size" if gain.sought > LEAST_SOUGHT else f"a difference of {LEAST_SOUGHT:g}"
    return f"{gain.n_patients} patients cannot tell; about {gain.needed:,} would show {size}, at this spread"


def compared(run: Run) -> str:
    """The heading of the comparison, without a capital."""
    return join(score_heads(run)) if is_split(run) else f"with and without {WORDS[run.steps[0].kind].compared}"


def what_control(run: Run) -> str:
    """Describe the control, or the two, in a sentence."""
    images, same = report_of(run).images, "the same job, with the same seed and as many rounds and steps"
    lacks = [_lacks(run, step.kind).format(images=images) for step in run.steps]
    if not is_split(run):
        return f"The control is {same}, {lacks[0]}."
    first, second = (WORDS[step.kind].short for step in run.steps)
    return f"The controls are {same}: {first}, {lacks[0]}; and {second}, {lacks[1]}."


def _lacks(run: Run, kind: str) -> str:
    if run.adapts and kind != ADAPTED:
        return f"{WORDS[kind].lacks}, and no site adapts"
    equal = "; what else is done to their {images} is done in both" if kind == SILENT else ""
    return WORDS[kind].lacks + equal


def adaptation_text(run: Run) -> list[str]:
    """Say in sentences what the difference to the control holds beside what is learned, if it does."""
    images, kind = report_of(run).images, run.steps[0].kind
    if is_split(run) or kind == ADAPTED:
        return []
    sentences = [STATISTICS_HELP.format(images=images)] if kind == LEFT_OUT and statistics_note(run) else []
    does = run.method.adaptation_text.format(images=images)
    if not does or (kind == SILENT and not run.adapts):
        return sentences
    remedy = REMEDIES[kind] if run.adapts else f"'fedmed simulate JOB {OPTIONS[SILENT]}' shows what learning adds to it"
    return [NOT_LEARNED.format(does=does, remedy=remedy), *sentences]


def gain_notes(run: Run) -> list[str]:
    """Notes for a reader of the table, sites that are worse off first."""
    whats = [f"Worse off {words}" for words in change_heads(run, "with what the sites without labels bring")]
    notes = {
        what: [f"{g.name}, {g.text}" for g in step.gains if g.verdict == WORSE and g.part in (LABELLED, SCORED)]
        for what, step in zip(whats, run.steps, strict=True)
    }
    missed = [row[0].name for row in rows(run) if any(gain.difference is None for gain in row)]
    notes[f"Not scored in {_all_runs(run)}"] = missed
    return [f"{what}: {join(names)}." for what, names in notes.items() if names]


def on_screen(run: Run) -> list[RenderableType]:
    """The comparison for a terminal, and why there is none with a control that is there."""
    what = "One of the controls is not compared" if run.steps else "No control to compare with"
    problems: list[RenderableType] = [Text(f"{what}: {in_terminal(problem)}") for problem in run.control_problems]
    return [_table(run), *problems] if run.steps else problems


def _table(run: Run) -> Table:
    shown = []
    for row in rows(run):
        cells = {"site": row[0].name} | ({} if is_split(run) else {"labels": row[0].part})  # 80 characters are few
        cells["cases"] = str(row[0].n_cases)
        cells |= {head: fixed(score) for head, score in zip(score_heads(run), scores_of(row), strict=True)}
        if is_split(run):
            heads = change_heads(run, "")
            cells |= {head: f"{signed(g.difference)}\n{g.span}" for head, g in zip(heads, row, strict=True)}
        else:
            cells |= {"change": signed(row[0].difference), "95 % interval": row[0].span}
        shown.append(cells)
    title = (
        f"{run.job}: {run.score.label} {compared(run)}{', differences with 95 % intervals' if is_split(run) else ''}"
    )
    return screen_table(title, shown, [headline(run), *adaptation_text(run), *gain_notes(run)])
