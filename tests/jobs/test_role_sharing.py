"""What each role receives, sends and keeps."""

from fedmed.jobs.plan import Plan
from fedmed.jobs.role_sharing import RolePolicies

NAMES, GROUPS = ["body", "neck", "head"], {"full": [], "head": ["^head"], "most": ["^head", "^neck"]}
PLAN = Plan({"a": "supervised", "u": "unsupervised"}, rounds=3, steps=1, warm_start_rounds=1)


def test_a_role_may_send_less_than_it_receives_in_every_round():
    policies = RolePolicies(NAMES, GROUPS, PLAN, {"sharing": "full", "sends": {"unsupervised": "head"}})
    for round in (0, 1):
        assert policies.of("unsupervised", round).received(NAMES) == NAMES
        assert policies.of("unsupervised", round).sent(NAMES) == ["body", "neck"]
        assert policies.of("unsupervised", round).private(NAMES) == []
        assert policies.of("supervised", round).sent(NAMES) == NAMES
    assert policies.scorable("unsupervised", 1)


def test_statistics_stay_with_a_role_and_are_lent_to_who_has_none_yet():
    names = [*NAMES, "body.running_mean"]
    policies = RolePolicies(names, GROUPS, PLAN, {"buffers": {"unsupervised": "local"}, "sharing": "full"})
    for round in (0, 1):
        assert policies.of("unsupervised", round).private(names) == ["body.running_mean"]
        assert policies.lent_statistics("unsupervised", round) == ["body.running_mean"]
        assert policies.of("supervised", round).sent(names) == policies.of("evaluate", round).received(names) == names
        assert policies.scorable("evaluate", round) and policies.lent_statistics("supervised", round) == []
    kept = RolePolicies(names, GROUPS, PLAN, {"buffers": "local"})
    assert kept.lent_statistics("unsupervised", 1) == [] and not kept.scorable("evaluate", 1), "nobody shares any"


def test_what_is_not_received_is_not_sent():
    said = {"sharing": {"supervised": "head", "unsupervised": "most"}, "sends": {"unsupervised": "head"}}
    policies = RolePolicies(NAMES, GROUPS, PLAN, said)
    assert policies.of("unsupervised", 1).sent(NAMES) == ["body"]
    assert policies.of("supervised", 1).sent(NAMES) == policies.of("evaluate", 1).received(NAMES) == ["body", "neck"]
