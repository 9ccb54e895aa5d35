"""Who takes part in which round."""

from fedmed.jobs.plan import Plan

SITES = {"b": "supervised", "a": "supervised", "u": "unsupervised", "e": "evaluate"}


def test_unsupervised_sites_sit_out_the_warm_start():
    plan = Plan(SITES, rounds=3, steps=1, warm_start_rounds=2)
    assert plan.participants(1) == ["a", "b"]
    assert plan.participants(2) == ["a", "b", "u"]
    assert (plan.needed(1), plan.needed(2)) == (2, 3)


def test_min_clients_never_asks_for_more_than_take_part():
    plan = Plan(SITES, rounds=3, steps=1, warm_start_rounds=1, min_clients=3)
    assert (plan.needed(0), plan.needed(1)) == (2, 3)


def test_without_labels_the_last_aggregate_is_the_result_and_nobody_validates():
    plan = Plan({"u": "unsupervised"}, rounds=3, epochs=0.5, select="last", evaluate=False)
    assert plan.participants(0) == ["u"] and not plan.validates(0)
    assert not Plan(SITES, rounds=3, steps=1, select="last").validates(0)
    assert not plan.exchanges(2)
    exchanging = Plan(SITES, rounds=3, steps=1, exchange={"from_round": 1, "names": ["mu"]})
    assert [exchanging.exchanges(round) for round in range(3)] == [False, True, True]
