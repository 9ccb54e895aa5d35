"""Sites in numbers only: what a bundle may tell of a federation to those who were not part of it."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fedmed.bundles.score import Score
from fedmed.export.finished_run import SELECTED, FinishedRun
from fedmed.jobs.plan import ROLES, TRAINING_ROLES
from fedmed.methods.lent_layers import ALL_SITES

SCORES = {SELECTED: ("validation", "test"), "last": ("validation_last", "test_last")}


def anonymous_sites(run: FinishedRun, which: str, beside: Sequence[Score] = ()) -> list[tuple[str, dict[str, Any]]]:
    """Return (name, row) of every site: role, weight and scores of the model under a number.

    Scores are called as :func:`score_keys` says. Numbers follow the scores within each role and nothing else, so that
    no name can be guessed from them.

    Args:
        which: model, ``selected`` or ``last``.
        beside: further scores of the testing lists.
    """
    names = score_keys(run.score, beside)
    rows = [(name, _row(run, which, name, facts, names)) for name, facts in run.facts["sites"].items()]
    keys = [key for key in names.values() if not key.endswith(("_low", "_high"))]
    rows.sort(key=lambda item: _order(item[1], keys))
    numbers = {name: f"site {place}" for place, (name, _) in enumerate(rows, 1)}
    for _, row in rows:
        if owner := row.pop("decoder_of"):
            row["decoder_of"] = owner if owner == ALL_SITES else numbers.get(owner, "another site")
    return [(name, {"site": numbers[name], **row}) for name, row in rows]


def score_keys(score: Score, beside: Sequence[Score] = ()) -> dict[str, str]:
    """Metric of the run -> its name in a site's row: ``test_dice``, ``validation_dice``, ``test_dice_std``."""
    also = [metric for other in beside for metric in other.tested]
    rest = [metric for metric in score.tested if metric != score.test]
    named = {score.test: f"test_{score.name}", score.validation: f"validation_{score.name}"}
    return named | {metric: f"test_{metric}" for metric in [*rest, *also]}


def _row(run: FinishedRun, which: str, name: str, facts: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    validation, test = (run.result.get(key) or {} for key in SCORES[which])
    tested, score = test.get(name) or {}, run.score
    sent = {**tested, score.validation: validation.get(name)}
    return {
        "role": facts["role"],
        "weight": facts.get("weight", 1.0),
        **_part(run, name, facts),
        **{key: sent.get(metric) for metric, key in names.items()},
        "test_cases": int(tested.get("n_cases") or 0),
        "decoder_of": tested.get("decoder_of"),
    }


def _part(run: FinishedRun, name: str, facts: Mapping[str, Any]) -> dict[str, int]:
    """In how many of its rounds the site contributed to the model."""
    if facts["role"] not in TRAINING_ROLES:
        return {}
    contributed, rounds = run.contributed(name)
    return {"contributed": contributed, "of_rounds": rounds}


def _order(row: Mapping[str, Any], keys: Collection[str]) -> tuple[Any, ...]:
    role = ROLES.index(row["role"]) if row["role"] in ROLES else len(ROLES)
    scores = [-1.0 if row[key] is None else row[key] for key in keys]
    return (role, *(-score for score in scores), -row["test_cases"], -row["weight"], row["decoder_of"] is not None)


def withheld(text: str, names: Collection[str]) -> str:
    """The text, unless it holds a site's name, however it is spelled: a job may be called after a hospital."""

    def plain(text: str) -> str:  # letters and digits alone: hospital-a is Hospital_A
        return "".join(filter(str.isalnum, text.casefold())) or text

    return "(withheld)" if any(plain(name) in plain(text) for name in names) else text
