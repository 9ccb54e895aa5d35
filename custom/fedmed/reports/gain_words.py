"""What the sites without labels bring, in sentences and as a table for a terminal."""

from dataclasses import dataclass

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fedmed.methods.control_kinds import LEFT_OUT, SILENT
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
BESIDE = (
    "In the run the sites without labels {does}, also when a model is tested; in the control they see them as they "
    "are. So the difference holds that too; 'scripts/simulate.py JOB --silent-control' shows what learning adds to it."
)
OWN_STATISTICS = (
    "In the run the sites without labels are tested with BatchNorm statistics of their own {images}, in the control "
    "with those of labelled sites. So the difference holds that too, for which nothing need be learned; "
    "'scripts/simulate.py JOB --silent-control' shows what learning adds to it."
)
HAS = {LABELLED: "has labels", SCORED: "is only scored", NO_LABELS: "has no labels", SOME_LABELS: "has few labels"}


@dataclass(frozen=True)
class Wording:
    """How a kind of control is spoken of: after "with and without", a score, "worse off", and "the same job"."""

    compared: str
    without: str
    worse_off: str
    lacks: str


WORDS = {
    LEFT_OUT: Wording(
        "the sites that have no labels",
        "without them",
        "with them",
        "in which the sites without labels do not train: they are only scored",
    ),
    SILENT: Wording(
        "what is learned without labels",
        "with nothing learned from them",
        "by what is learned from them",
        "in which the sites without labels take part in every round and learn nothing; what else is done to their "
        "{images} is done in both",
    ),
}


def headline(run: Run) -> str:
    """What joining has brought the sites without labels, or others if those were not scored, a sentence or two each."""
    unlabelled, images = [site.name for site in run.by_role("unsupervised")], report_of(run).images
    known = [gain for gain in run.gains if gain.difference is not None]
    shown, first, which = [gain for gain in known if gain.part in (NO_LABELS, SOME_LABELS)], "", "train without labels"
    whose = f"its {images}" if len(unlabelled) == 1 else f"all their {images}"
    if not shown:
        first = f"What {join(unlabelled)} gained is not known: not scored in both runs. "
        shown, which = [gain for gain in known if gain.part == SCORED] or known, "were scored"
        whose = f"the {images} of {join(unlabelled)}"
    if len(shown) > MOST:
        counts = [(word, sum(gain.verdict == word for gain in shown)) for word in (BETTER, WORSE, NONE_SEEN, TOO_FEW)]
        said = join([f"{word}: {n}" for word, n in counts if n])
        compared = f"with {whose} and {WORDS[run.control].without}"
        return f"{first}Of {len(shown)} sites that {which}, {compared}: {said or 'no intervals'}."
    return first + " ".join(_sentence(gain, run, whose) for gain in shown)


def _sentence(gain: Gain, run: Run, whose: str) -> str:
    """A site's scores, their difference, and what follows from the interval where a reader could overlook it."""
    ours, theirs = f"{fixed(gain.ours)} with {whose}", f"{fixed(gain.theirs)} {WORDS[run.control].without}"
    scores = f"{run.score.label} {ours}, {theirs}: {gain.in_words}."
    by = ", by less than 0.0005" if abs(gain.difference or 0.0) < 0.0005 else ""  # which `signed` shows as 0.000
    so = {WORSE: f" It is worse off {WORDS[run.control].worse_off}{by}.", NONE_SEEN: " No difference was detected."}
    so |= {TOO_FEW: _cannot_tell(gain)}
    return f"{gain.name}, which {HAS[gain.part]}: {scores}{so.get(gain.verdict, '')}"


def _cannot_tell(gain: Gain) -> str:
    """That patients are too few, and how many would do, where they are enough to tell that."""
    if not gain.cannot_tell:
        return f" {count(gain.n_patients, 'patient')} cannot tell."
    size = "a difference of this size" if gain.sought > LEAST_SOUGHT else f"a difference of {LEAST_SOUGHT:g}"
    return f" {gain.n_patients} patients cannot tell; about {gain.needed:,} would show {size}, at this spread."


def what_control(run: Run) -> str:
    """What the control is, a sentence."""
    lacks = WORDS[run.control].lacks.format(images=report_of(run).images)
    return f"The control is the same job, with the same seed and as many rounds and steps, {lacks}."


def beside_learning(run: Run) -> list[str]:
    """What the difference to the control holds beside what is learned, if it does, in sentences."""
    if run.control != LEFT_OUT:
        return []
    images = report_of(run).images
    does = run.method.beside_learning.format(images=images)
    found = [BESIDE.format(does=does)] if does else []
    return [*found, OWN_STATISTICS.format(images=images)] if statistics_note(run) else found


def gain_notes(run: Run) -> list[str]:
    """What a reader of the table must know, sites that are worse off first."""
    worse = [f"{g.name}, {g.in_words}" for g in run.gains if g.verdict == WORSE and g.part in (LABELLED, SCORED)]
    missed = [gain.name for gain in run.gains if gain.difference is None]
    notes = {
        "Worse off with what the sites without labels bring": worse,
        "Not scored in both runs": missed,
    }
    return [f"{what}: {join(names)}." for what, names in notes.items() if names]


def on_screen(run: Run) -> list[RenderableType]:
    """The comparison for a terminal, or why there is none though there is a control."""
    if run.gains:
        return [_table(run)]
    return [Text(f"No control to compare with: {in_terminal(run.control_problem)}")] if run.control_problem else []


def _table(run: Run) -> Table:
    rows = [
        {
            "site": gain.name,
            "labels": gain.part,
            "cases": str(gain.n_cases),
            "with": fixed(gain.ours),
            "without": fixed(gain.theirs),
            "change": signed(gain.difference),
            "95 % interval": gain.span,
        }
        for gain in run.gains
    ]
    title = f"{run.job}: {run.score.label} with and without {WORDS[run.control].compared}"
    return screen_table(title, rows, [headline(run), *beside_learning(run), *gain_notes(run)])
