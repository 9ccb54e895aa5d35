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
    overlays, own = {site: args["overlays"] for site, args in job.clients.items()}, ["demo", *norm]
    assert overlays == {"a": own, "b": [*own, "pseudo_labels", loss], "c": own} and job.persistor["overlays"] == own
    assert all(args.get("sends") is None and args["sharing"] == "full" for args in job.clients.values())
    assert job.aggregator["weighting"] == weighting and not job.keeps_private
    assert "needs at least 1 site with the role 'supervised'" in kind().misfits({"b": "unsupervised"})[0]


def test_published_values_of_the_third_go_to_sites_without_labels_and_a_study_may_change_them(study):
    clients = study(FedRGD).clients
    assert clients["b"]["overrides"] == {"confidence": 0.25, "unlabelled_weight": 0.1} and not clients["a"]["overrides"]
    changed = study(FedRGD, overrides={"unsupervised": {"confidence": 0.5}}).clients["b"]["overrides"]
    assert changed == {"confidence": 0.5, "unlabelled_weight": 0.1}


def test_annealing_is_asked_of_labelled_sites(study):
    plain, annealed = study(FedUDA).clients, study(FedUDA, args={"annealing": "exp"}).clients
    assert plain["a"]["overlays"] == ["demo"] and not plain["a"]["overrides"]
    assert annealed["a"]["overlays"] == ["demo", "annealed"] and annealed["a"]["overrides"] == {"annealing": "exp"}
    assert annealed["b"] == plain["b"]
    with pytest.raises(JobError, match="'annealing' is 'cosine'; use one of linear, exp, log, or null"):
        FedUDA(annealing="cosine")
