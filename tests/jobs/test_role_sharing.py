"""Tensors that each role receives, sends and keeps."""

import pytest

from fedmed.jobs.job import RolePolicies

NAMES, GROUPS = ["body", "neck", "head"], {"full": [], "head": ["^head"], "most": ["^head", "^neck"]}
FEDCY = {"path": "fedmed.systems.fedcy.method.FedCy"}  # whose sites without labels keep their head to themselves


@pytest.fixture
def policies_of(job_of):
    """Return a function: names of tensors, and what a study says -> policies."""

    def made(names, **said):
        sites = {"a": "supervised", "u": "unsupervised"}
        job = job_of(**{"name": "x", "sites": sites, "rounds": 3, "steps": 1, "warm_start": {"rounds": 1}, **said})
        return RolePolicies(job, names, GROUPS)

    return made


def test_a_role_may_send_less_than_it_receives_in_every_round(policies_of):
    policies = policies_of(NAMES, method=FEDCY)
    for round in (0, 1):
        assert policies.of("unsupervised", round).received(NAMES) == NAMES
        assert policies.of("unsupervised", round).sent(NAMES) == ["body", "neck"]
        assert policies.of("unsupervised", round).private(NAMES) == []
        assert policies.of("supervised", round).sent(NAMES) == NAMES
    assert policies.scorable("unsupervised", 1)


def test_statistics_stay_with_a_role_and_are_lent_to_who_has_none_yet(policies_of):
    names = [*NAMES, "body.running_mean"]
    policies = policies_of(names, buffers={"unsupervised": "local"})
    for round in (0, 1):
        assert policies.of("unsupervised", round).private(names) == ["body.running_mean"]
        assert policies.released_statistics("unsupervised", round) == ["body.running_mean"]
        assert policies.of("supervised", round).sent(names) == policies.of("evaluate", round).received(names) == names
        assert policies.scorable("evaluate", round) and policies.released_statistics("supervised", round) == []
    kept = policies_of(names, buffers="local")
    assert kept.released_statistics("unsupervised", 1) == [] and not kept.scorable("evaluate", 1), "nobody shares any"


def test_what_is_not_received_is_not_sent(policies_of):
    policies = policies_of(NAMES, sharing={"supervised": "head", "unsupervised": "most"}, method=FEDCY)
    assert policies.of("unsupervised", 1).sent(NAMES) == ["body"]
    assert policies.of("supervised", 1).sent(NAMES) == policies.of("evaluate", 1).received(NAMES) == ["body", "neck"]
