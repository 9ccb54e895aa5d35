"""A run ends when no model becomes better for a while, the same with and without an interruption."""

import logging

import pytest

from fedmed.federation.selection import EarlyStopping


def scored(scores, patience, min_rounds=0, rounds=20):
    """Rounds that are trained when the model before round r is scored scores[r], and the early stopping."""
    stopping, best = EarlyStopping(patience, min_rounds), float("-inf")
    for round in range(rounds):
        if stopping.over(round):
            return round, stopping
        score = scores[round] if round < len(scores) else 0.0
        better = score is not None and score > best
        best = score if better else best
        stopping.note(round - 1, score, better)
    return rounds, stopping


@pytest.mark.parametrize(
    ("scores", "patience", "min_rounds", "trained"),
    [
        ([0.1, 0.2, 0.3, 0.3, 0.2], 2, 0, 5),  # a tie is not better
        ([0.1, 0.2, 0.1, 0.3, 0.2, 0.4, 0.1, 0.1], 2, 0, 8),
        ([0.5], 1, 0, 2),
        ([0.5], 3, 6, 6),  # FedCy: six rounds at least, then after three without a better score
        ([0.5], 3, 4, 4),
        ([0.5], None, 0, 20),
        ([0.1 * k for k in range(20)], 1, 0, 20),
    ],
)
def test_when_a_run_ends(scores, patience, min_rounds, trained):
    assert scored(scores, patience, min_rounds)[0] == trained


def test_a_round_without_scores_and_a_model_that_is_scored_again_do_not_count():
    stopping = EarlyStopping(2)
    for model, score, better in ((-1, 0.5, True), (0, 0.4, False), (0, 0.4, False), (1, None, False)):
        stopping.note(model, score, better)
    assert stopping.waited == 1 and not stopping.over(4)
    stopping.note(2, 0.1, False)
    assert stopping.over(5)


def test_it_says_why(caplog):
    with caplog.at_level(logging.INFO, "fedmed.server"):
        trained, stopping = scored([0.5], 3)
    assert stopping.reason == "the last 3 models in a row were not better than the best one before; 'patience' is 3"
    assert f"the training ends after {trained} rounds: {stopping.reason}" in caplog.text
    assert scored([0.5], 1)[1].reason.startswith("the last model was not better")


def test_the_state_goes_on():
    stopping, again = EarlyStopping(2), EarlyStopping(2)
    stopping.note(-1, 0.5, True)
    stopping.note(0, 0.4, False)
    again.restore(stopping.state())
    again.note(0, 0.4, False)  # the round that an interruption repeats
    assert (again.waited, again.scored) == (1, 0)
    again.restore({})
    assert (again.waited, again.scored) == (0, None)
