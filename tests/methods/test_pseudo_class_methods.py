"""FedFixMatch, FedUDA and FedRGD: who trains with what, and by what sites count."""

import pytest

from fedmed.errors import JobError
from fedmed.systems.fixmatch.method import FedFixMatch, FedRGD, FedUDA

SITES = {"a": "supervised", "b": "unsupervised", "c": "evaluate"}


@pytest.fixture
def study(job_of):
    """Return a function: the job of a method."""

    def make(kind, overlays=("demo",), **values):
        method = {"path": kind().spec()["path"], "args": values.pop("args", {})}
        spec = {"sites": SITES, "overlays": list(overlays), "rounds": 2, "epochs": 1, **values}
        return job_of(name="x", bundle="surgical_phase_classification", method=method, **spec)

    return make


@pytest.mark.parametrize(
    ("kind", "loss", "weighting", "norm"),
    [
        (FedFixMatch, "fixmatch", "samples", []),
        (FedUDA, "uda", "samples", []),
        (FedRGD, "fixmatch", "uniform", ["groupnorm"]),
    ],
)
def test_roles_and_weights(study, kind, loss, weighting, norm):
    job = study(kind)
    all_have, roles = ["demo", *norm], ("supervised", "unsupervised", "evaluate")
    assert [job.overlays(role) for role in roles] == [all_have, [*all_have, "pseudo_labels", loss], all_have]
    assert all(job.method.role(role).sends is None for role in roles) and job.all_shared
    assert job.short_rule["args"]["weighting"] == weighting and not job.keeps_private
    assert "needs at least 1 site with the role 'supervised'" in kind().validation_errors({"b": "unsupervised"})[0]


def test_published_values_of_the_third_go_to_sites_without_labels_and_a_study_may_change_them(study):
    job = study(FedRGD)
    assert job.overrides("unsupervised") == {"confidence": 0.25, "unlabelled_weight": 0.1}
    assert not job.overrides("supervised")
    changed = study(FedRGD, overrides={"unsupervised": {"confidence": 0.5}})
    assert changed.overrides("unsupervised") == {"confidence": 0.5, "unlabelled_weight": 0.1}


def test_annealing_is_asked_of_labelled_sites(study):
    plain, annealed = study(FedUDA), study(FedUDA, args={"annealing": "exp"})
    labelled, other = (
        [(job.overlays(role), job.overrides(role)) for job in (plain, annealed)]
        for role in ("supervised", "unsupervised")
    )
    assert labelled == [(["demo"], {}), (["demo", "annealed"], {"annealing": "exp"})]
    assert other[0] == other[1]
    with pytest.raises(JobError, match="'annealing' is 'cosine'"):
        FedUDA(annealing="cosine")
