"""Numbers and sentences of a report: plain values, no layout."""

from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from fedmed.reports.clipping import clip_note
from fedmed.reports.files import number
from fedmed.reports.run import Run, Site
from fedmed.reports.words import NOTHING, count, duration, fixed, join, plain_delta, plain_epsilon, size

ROLES = {"supervised": "supervised", "unsupervised": "unsupervised", "evaluate": "evaluation only"}
LABELS = {
    "supervised": "labelled",
    "unsupervised": "not used in training",
    "evaluate": "not in training",
}


@dataclass(frozen=True)
class SiteRow:
    """One line of the final table: Dice in 0..1, None where the site was not tested."""

    name: str
    role: str
    labels: str
    n_cases: int | None
    mean: float | None
    std: float | None
    cases: tuple[float, ...]
    decoder_of: str | None = None  # whose private layers scored it, if not its own

    @property
    def scored(self) -> str:
        """In words, with whose decoder the site was scored; empty if with its own."""
        return f"with {self.decoder_of}'s decoder" if self.decoder_of else ""


def site_rows(run: Run) -> list[SiteRow]:
    """One row a site, labelled sites first."""
    tests = (run.result or {}).get("test") or {}
    return [_row(site, tests.get(site.name) or {}) for site in run.sites]


def _row(site: Site, test: dict[str, Any]) -> SiteRow:
    n_cases = number(test.get("n_cases"))
    return SiteRow(
        name=site.name,
        role=ROLES.get(site.role, site.role),
        labels=LABELS.get(site.role, "unknown"),
        n_cases=None if n_cases is None else int(n_cases),
        mean=number(test.get("dice_mean")),
        std=number(test.get("dice_std")),
        cases=tuple(dice for _, dice in site.cases if dice is not None) if test else (),
        decoder_of=str(test["decoder_of"]) if test.get("decoder_of") else None,
    )


def terminal_table(run: Run) -> Table:
    """The per-site table as a rich table."""
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 2, 0, 0),
        title=f"{run.job}: Dice on each site's test list",
        title_justify="left",
        title_style="bold",
    )
    for name in ("site", "role", "labels"):
        table.add_column(name, no_wrap=True)
    for name in ("cases", "Dice", "± std"):
        table.add_column(name, justify="right")
    for row in site_rows(run):
        labels = "\n".join(filter(None, (row.labels, row.scored)))  # below, because 80 columns are full
        table.add_row(row.name, row.role, labels, str(row.n_cases or NOTHING), fixed(row.mean), fixed(row.std))
    notes = [note for note in (resumed_note(run), *release_notes(run), clip_note(run)) if note]
    notes += [f"Warning, round {r}: {site}: {text}" for r, site, text in warnings(run)]
    table.caption = Text("\n".join(notes)) if notes else None  # no markup: reasons hold names that sites sent
    table.caption_justify = "left"
    return table


def summary(run: Run) -> str:
    """One plain sentence made of the run's numbers."""
    done = len(run.rounds)
    if run.result is None:
        state = f"This run has finished {done} of {count(run.total_rounds, 'round')} and has no final test"
        best = max((r.score for r in run.rounds if r.score is not None), default=None)
        return f"{state}." if best is None else f"{state}; the best validation Dice so far is {best:.2f}."
    rows = {row.name: row for row in site_rows(run)}
    means = {name: row.mean for name, row in rows.items() if row.mean is not None}
    parts = []
    for role, word in (("supervised", "labelled"), ("unsupervised", "unlabelled"), ("evaluate", "unseen")):
        if tested := [site for site in run.by_role(role) if site.name in means]:
            mean = sum(means[site.name] for site in tested) / len(tested)
            borrowed = {rows[site.name].scored for site in tested} - {""}
            parts.append(" ".join([f"{mean:.2f} at the {group(tested, word)}", *sorted(borrowed)]))
    start = f"After {count(done, 'round')} with {count(len(run.sites), 'site')}, {selected_model(run)}"
    return f"{start} reaches a mean test Dice of {join(parts)}." if parts else f"{start} was chosen; no site tested it."


def selected_model(run: Run) -> str:
    """Name the selected model, rounds counted from 1."""
    best = (run.result or {}).get("best_round")
    if best is None:
        return "the last model"
    return "the initial model" if best < 0 else f"the model of round {int(best) + 1}"


def selection_note(run: Run) -> str:
    """Which sites chose the model, and what the other sites' labels were used for. Never claims more than the files."""
    selected_by = list((run.result or {}).get("selected_by") or [])
    supervised = [site.name for site in run.by_role("supervised")]
    others = [site.name for site in run.sites if site.role != "supervised"]
    strangers = [name for name in selected_by if name not in supervised]
    if run.result is None:
        return "No model was selected, because the run did not reach its end."
    if not selected_by or run.result.get("best_round") is None:
        return "No model was selected by a score: the tested model is the last aggregate."
    if strangers:
        return (
            f"The model was selected using {join(selected_by)}; {join(strangers)} did not train with labels, "
            "so the Dice reported there is not independent of the selection."
        )
    note = f"The model was selected using labelled sites only: {join(selected_by)}."
    return f"{note} Labels of {join(others)} were used for evaluation only." if others else note


def refusals(run: Run) -> list[tuple[int, str, str]]:
    """(round counted from 1, site, reason) of every refused update."""
    return [(r.index + 1, site, reason) for r in run.rounds for site, reason in r.refused]


def release_notes(run: Run) -> list[str]:
    """One sentence on each request for a site's private layers: what came of it."""
    notes = []
    for entry in (run.result or {}).get("releases") or []:
        owner, needy = entry.get("from"), join(list(entry.get("for") or []))
        last = ", last aggregate" if entry.get("model") == "last" else ""
        where = f"because none was trained there: {needy}{last}."
        if entry.get("released"):
            sent = f"{count(int(entry.get('n_tensors') or 0), 'tensor')}, {size(number(entry.get('bytes_up')))}"
            notes.append(f"Tested with {owner}'s decoder, {where} {owner} allowed its release ({sent}).")
        else:
            reason = entry.get("reason") or "no reason is known"
            notes.append(f"Not tested without a decoder, {where} {owner} released none: {reason}.")
    return notes


def resumed_note(run: Run) -> str:
    """Where the run was interrupted; empty if it was not."""
    if not run.resumed:
        return ""
    jobs = join([f"continued after round {done} of job {id}" for id, done in run.resumed.items()])
    return f"This run was interrupted: {jobs}. Earlier rounds are that job's."


def privacy_notes(run: Run) -> list[str]:
    """One sentence on each site that let the server know how it protected its updates."""
    notes = []
    for site in run.sites:
        told = [line.sites[site.name] for line in run.rounds if line.sites.get(site.name, {}).get("clip_norm")]
        if not told:
            continue
        last = told[-1]
        note = f"{site.name} clipped its updates to a norm of {last['clip_norm']:g}"
        if noise := last.get("noise_multiplier"):
            note += f" and added Gaussian noise of {noise * last['clip_norm']:.3g} to every value"
        if last.get("epsilon") is not None and last.get("delta"):
            spent = f"ε = {plain_epsilon(last['epsilon'])} at δ = {plain_delta(last['delta'])}"
            note += f": {spent} over all its jobs, for its data as a whole, not for single patients"
        notes.append(f"{note}.")
    return notes


def warnings(run: Run) -> list[tuple[int, str, str]]:
    """(round counted from 1, site, message) of everything the server warned of."""
    return [(r.index + 1, site, message) for r in run.rounds for site, message in r.warnings]


def facts(run: Run) -> list[tuple[str, str]]:
    """The short figures at the top of the page."""
    result = run.result or {}
    sent = sum((r.bytes_down or 0) + (r.bytes_up or 0) for r in run.rounds)
    seconds = number(result.get("seconds_total")) or sum(r.seconds or 0 for r in run.rounds)
    best = number(result.get("best_round"))
    chosen = NOTHING if best is None else ("initial model" if best < 0 else f"round {int(best) + 1}")
    return [
        ("rounds", f"{len(run.rounds)}" + ("" if len(run.rounds) == run.total_rounds else f" of {run.total_rounds}")),
        ("sites", str(len(run.sites))),
        ("selected", chosen),
        ("validation Dice", fixed(number(result.get("best_score")))),
        ("sent in all", size(sent or None)),
        ("time", duration(seconds)),
    ]


def group(sites: list[Site], word: str) -> str:
    """``unlabelled site ct_east`` or ``3 labelled sites``."""
    return f"{word} site {sites[0].name}" if len(sites) == 1 else f"{len(sites)} {word} sites"
