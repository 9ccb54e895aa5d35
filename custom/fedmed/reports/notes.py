"""Notes on what happened in a run besides its scores, a sentence each; nothing that the files do not say."""

import math
from collections import Counter
from collections.abc import Mapping
from statistics import median_high
from typing import Any

import numpy as np

from fedmed.methods.method import ALL_SITES, of_role
from fedmed.reports.run_contents import Run, Site
from fedmed.reports.run_files import number, uncompared_note
from fedmed.reports.run_report import report_of
from fedmed.reports.words import NOTHING, count, join, plain_delta, plain_number, size


def remarks(run: Run) -> list[str]:
    """Notes that must stand below a table in a terminal."""
    notes = [training_note(run), adaptation_note(run), contribution_note(run) if run.idle else "", resumed_note(run)]
    notes += [*release_notes(run), statistics_note(run), *few_cases_notes(run), *number_notes(run), clip_note(run)]
    notes += [uncompared_note(run.uncompared)]
    return [*filter(None, notes), *(f"Warning, {rounds}: {site}: {text}" for rounds, site, text in warnings(run))]


def refusals(run: Run) -> list[tuple[int, str, str]]:
    """(round counted from 1, site, reason) of every refused update."""
    return [(r.index + 1, site, reason) for r in run.rounds for site, reason in r.refused]


def contribution_note(run: Run) -> str:
    """Say who contributed to the model, and in how many of the rounds in which it was to train."""
    parts = []
    for site in run.sites:
        done, of = run.contributed(site)
        if site.role in ("supervised", "unsupervised") and of:
            parts.append(f"{site.name} to {done or 'none'} of {count(of, 'round')}")
    text = f"Contributed to the model: {join(parts)}."
    return f"{text} It learnt from no labels, so this run is no success." if run.unlabelled else text


def training_note(run: Run) -> str:
    """Say what each site trained on: images and patients where its own files are here, else the number that it sent.

    That one is of images, of videos of samples such as frames. Of patients the server is told nothing.
    """
    parts = [f"{site.name} on {trained}" for site in run.sites if (trained := _trained_on(run, site))]
    return f"Trained: {'; '.join(parts)}." if parts else ""


def adaptation_note(run: Run) -> str:
    """Say what each site decided that adapts to its own images, where its own files are here."""
    parts = [f"{site.name}: {site.adapted}" for site in run.sites if site.adapted]
    return f"Adapted without labels: {'. '.join(parts)}." if parts else ""


def _trained_on(run: Run, site: Site) -> str:
    if site.trains_on:
        return site.trains_on.words
    sent = [line.sites[site.name].get("n_samples") for line in run.rounds if site.name in line.sites]
    if not sent or site.role not in ("supervised", "unsupervised"):
        return ""
    if not (images := next((n for n in reversed(sent) if n), None)):
        return "images whose number it does not tell"
    which = "labelled " if site.role == "supervised" else ""
    return count(int(images), f"{which}{'sample' if report_of(run).images == 'videos' else 'image'}")


def number_notes(run: Run) -> list[str]:
    """One sentence on each site of whose scores at the end some cannot be."""
    refused = (run.result or {}).get("refused_numbers") or {}
    return [f"Refused of {site}: {'; '.join(map(str, texts))}." for site, texts in sorted(refused.items())]


def statistics_note(run: Run) -> str:
    """Name the sites that are scored with BatchNorm statistics of their own, where roles differ in that; else empty."""
    buffers, result, warm = run.study.get("buffers"), run.result or {}, run.warm_rounds
    if not isinstance(buffers, Mapping) or (chosen := result.get("best_round")) is not None and chosen < warm:
        return ""
    tested = [site for site in run.sites if site.name in (result.get("test") or {})]
    local = [site.name for site in tested if site.role != "evaluate" and of_role(buffers, str(site.role)) == "local"]
    theirs = f"{join(local)} with those of {'its' if len(local) == 1 else 'their'} own images"
    others = ", the others with those that labelled sites share" if len(local) < len(tested) else ""
    return f"BatchNorm statistics: {theirs}{others}." if local else ""


def few_cases_notes(run: Run) -> list[str]:
    """One sentence on each site that keeps its test scores, since a mean of few cases would tell of each."""
    tests = ((run.result or {}).get("test") or {}).items()
    limits = [(site, number(row.get("min_cases"))) for site, row in sorted(tests)]
    return [
        f"Not shown: the test scores of {site}, which has fewer test cases than the {least:g} from which on it lets "
        "them leave (privacy.min_cases)."
        for site, least in limits
        if least
    ]


def release_notes(run: Run) -> list[str]:
    """One sentence on each request for a site's private layers: what came of it; else on each site that lacks them."""
    result = run.result or {}
    missing = {} if result.get("releases") else result.get("untested") or {}
    notes = [f"Not tested: {site}, which has no private layers of its own: {why}." for site, why in missing.items()]
    for entry in result.get("releases") or []:
        if entry.get("from") == ALL_SITES:
            notes.append(mean_note(entry))
            continue
        owner, needy = entry.get("from") or "a site", join(list(entry.get("for") or []))
        last = ", last aggregate" if entry.get("model") == "last" else ""
        where = f"because none was trained there: {needy}{last}."
        if entry.get("released"):
            sent = f"{count(int(entry.get('n_tensors') or 0), 'tensor')}, {size(number(entry.get('bytes_up')))}"
            notes.append(f"Tested with {owner}'s decoder, {where} {owner} allowed its release ({sent}).")
        else:
            reason = entry.get("reason") or "no reason is known"
            notes.append(f"Not tested without a decoder, {where} {owner} released none: {reason}.")
    return notes


def mean_note(entry: Mapping[str, Any]) -> str:
    """Say what came of a request for the private layers of all labelled sites."""
    needy, last = join(list(entry.get("for") or [])), ", last aggregate" if entry.get("model") == "last" else ""
    where = f", because none was trained there: {needy}{last}" if needy else last
    refused = [f"{site} released none: {reason}" for site, reason in sorted((entry.get("refused") or {}).items())]
    if not entry.get("released"):
        why = "; ".join(refused) or entry.get("reason") or "no reason is known"
        return f"Not tested with the mean of the sites' private layers{where}. {why}."
    shares = [f"{site} {plain_number(share)}" for site, share in sorted((entry.get("weights") or {}).items())]
    how = "by training samples" if entry.get("weighting") == "samples" else "with equal weights"
    sent = f"{count(int(entry.get('n_tensors') or 0), 'tensor')} each, {size(number(entry.get('bytes_up')))} in all"
    text = f"Tested with the mean of the sites' private layers, {how}{where}. Released by {join(shares)} ({sent})."
    if "kept" in entry:
        text += " The mean is kept for an export." if entry["kept"] else f" It is not kept: {entry.get('not_kept')}."
    return " ".join([text, *(f"{one}." for one in refused)])


def resumed_note(run: Run) -> str:
    """Say where the run was interrupted; empty if it was not."""
    if not run.resumed:
        return ""
    jobs = join([f"continued after round {done} of job {id}" for id, done in run.resumed.items()])
    return f"This run was interrupted: {jobs}. Earlier rounds are that job's."


def privacy_notes(run: Run) -> list[str]:
    """One sentence on each site that let the server know how it protected its updates."""
    notes = []
    for site in run.sites:
        sent = [line.sites[site.name] for line in run.rounds if site.name in line.sites]
        last = next((values for values in reversed(sent) if values.get("clip_norm")), {})
        if not (norm := last.get("clip_norm")):
            continue
        note = f"{site.name} clipped its updates to a norm of {plain_number(norm)}"
        if noise := last.get("noise_multiplier"):
            note += f" and added Gaussian noise of {plain_number(noise * norm)} to every value"
        if (epsilon := last.get("epsilon")) is not None and (delta := last.get("delta")):
            spent = f"ε = {plain_number(epsilon)} at δ = {plain_delta(delta)}"
            note += f": {spent} over all its jobs, for its data as a whole, not for single patients"
        notes.append(f"{note}.")
    return notes


def exchange_notes(run: Run) -> list[str]:
    """Say what sites told one another once, and what that cost; a resumed run may have asked again."""
    names = run.method.exchange().names
    notes = []
    for line in (line for line in run.rounds if line.exchange_bytes):
        costs = [f"{site} {size(sent)}" for site, sent in sorted(line.exchange_bytes.items())]
        what = join(list(names)) or "values of their images"
        notes.append(f"Before round {line.index + 1} sites told one another {what}, once: {join(costs)} were sent.")
    return notes


def warnings(run: Run) -> list[tuple[str, str, str]]:
    """(when, site, message) of everything the server warned of, each once.

    It is ``before round 1``, ``round 2`` or ``rounds 1–3``.
    """
    rounds_of: dict[tuple[str, str], list[int]] = {}
    before = [("before round 1", site, message) for site, message in run.compared]
    for line in run.rounds:
        for warning in dict.fromkeys(line.warnings):
            rounds_of.setdefault(warning, []).append(line.index + 1)
    return before + [(named_rounds(rounds), site, message) for (site, message), rounds in rounds_of.items()]


def errors(run: Run) -> list[tuple[str, str]]:
    """(site, message) of every error that a site reported, each once and with how often it came."""
    counts = [(site.name, message, times) for site in run.sites for message, times in Counter(site.errors).items()]
    return [(site, message if times == 1 else f"{message} ({times} times)") for site, message, times in counts]


def named_rounds(rounds: list[int]) -> str:
    """``round 4`` or ``rounds 1–3, 5``, of ascending numbers."""
    parts = np.split(rounds, np.flatnonzero(np.diff(rounds) != 1) + 1)
    text = ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}–{part[-1]}" for part in parts)
    return f"round {text}" if len(rounds) == 1 else f"rounds {text}"


def clip_rows(run: Run) -> list[list[str]]:
    """Site, median and largest norm of its updates, rounds in which one was cut, and the least that was left of it.

    Only sites whose updates the server measured; none where the job sets no ``clip_norm``.
    """
    rows = []
    for site in (site.name for site in run.sites):
        norms = [line.norms[site] for line in run.rounds if site in line.norms]
        if not norms:
            continue
        left = [line.clipped[site] for line in run.rounds if site in line.clipped]
        sizes = sorted(math.inf if norm is None else norm for norm in norms)
        texts = [plain_number(norm) if norm < math.inf else "overflow" for norm in (median_high(sizes), sizes[-1])]
        cut = f"{len(left)} of {count(len(norms), 'round')}"
        rows.append([site, *texts, cut, f"{plain_number(100 * min(left))} %" if left else NOTHING])
    return rows


def clip_note(run: Run) -> str:
    """Say what the server bounds, and whom that concerned; empty where it bounds nothing."""
    rows, bound = clip_rows(run), number(run.study.get("clip_norm"))
    if not rows or bound is None:
        return ""
    cut = [row[0] for row in rows if row[-1] != NOTHING]
    whom = f"That happened to {join(cut)}" if cut else "No update was longer"
    return f"The server cuts every update to a norm of {plain_number(bound)} (clip_norm). {whom}."
