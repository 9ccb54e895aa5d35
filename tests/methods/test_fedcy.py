"""FedCy: who sends what, by what sites are weighed, and that an untrained copy of the classifier never counts."""

import pytest
import torch
import yaml

from fedmed.aggregation.weighted_mean import SampleWeighting, WeightedMean
from fedmed.federation.reported_numbers import CollapseGuard
from fedmed.jobs.example import example
from fedmed.messages.answers import Update
from fedmed.systems.fedcy.method import FedCy

SITES = {"a": "supervised", "b": "unsupervised", "c": "unsupervised", "d": "evaluate"}
ONE_ROUNDING = {"rtol": 2e-7, "atol": 0}  # a sum may be rounded another way than a mean of one
FRAMES = {"c1": 80000, "c2": 30000, "c3": 20000, "c4": 25000, "c5": 45000}
BODY, HEAD = "features.w", "classifier.w"


@pytest.fixture
def job(job_of):
    return job_of(
        name="x",
        bundle="surgical_phase_classification",
        method={"path": "fedmed.systems.fedcy.method.FedCy"},
        sites=SITES,
        overlays=["demo"],
        rounds=2,
        epochs=1,
    )


def test_roles_and_what_each_sends(job):
    roles = ("supervised", "unsupervised", "evaluate")
    assert [job.overlays(role) for role in roles] == [["demo", "guided"], ["demo", "cycle"], ["demo"]]
    assert [job.method.role(role).sends for role in roles] == [None, "head", None]
    assert job.all_shared and not job.keeps_private, "all receive both, and can be scored"
    assert job.short_rule["args"]["weighting"] == "samples"
    assert "needs at least 1 site with the role 'supervised'" in FedCy().validation_errors({"b": "unsupervised"})[0]
    assert FedCy().validation_errors({"a": "supervised"}) == [], "without others it is supervised training, Eq. 6"


@pytest.mark.parametrize("name", ["fedcy", "fedfixmatch", "feduda", "fedmatch", "fedrgd"])
@pytest.mark.parametrize("size", ["small", "paper"])
def test_a_study_to_begin_with_lets_labels_teach_first(name, size):
    study = yaml.safe_load(example(name, size))
    assert 0 < study["warm_start"]["rounds"] < study["rounds"] and study["select"] == "mean"
    assert study["buffers"] == ("average" if name == "fedrgd" else {"unsupervised": "local"}), "GroupNorm has none"


def updates(model, senders, seed=0):
    """Updates of sites: name -> (frames, whether it sends the classifier)."""
    generator = torch.Generator().manual_seed(seed)
    sent = []
    for site, (frames, whole) in senders.items():
        shapes = {name: value.shape for name, value in model.items() if whole or name == BODY}
        tensors = {name: torch.randn(shape, generator=generator) * 0.1 for name, shape in shapes.items()}
        sent.append(Update(site, 0, tensors, 1, frames))
    return sent


@pytest.fixture
def model():
    generator = torch.Generator().manual_seed(9)
    return {BODY: torch.randn(4, 3, generator=generator), HEAD: torch.randn(2, 4, generator=generator)}


def test_the_classifier_is_that_of_the_labelled_site(model):
    """Its difference counts whole, whatever share of the frames it had, and untrained copies not at all."""
    sent = updates(model, {site: (n, site == "c1") for site, n in FRAMES.items()})
    result, turned = (WeightedMean(SampleWeighting()).aggregate(model, order).tensors for order in (sent, sent[::-1]))
    assert all(torch.equal(result[name], turned[name]) for name in model), "the order of replies changes no bit"
    torch.testing.assert_close(result[HEAD], model[HEAD] + sent[0].tensors[HEAD], **ONE_ROUNDING)
    shares = [n / 200000 for n in FRAMES.values()]
    mean = sum(p * u.tensors[BODY].double() for p, u in zip(shares, sent, strict=True))
    assert torch.allclose(result[BODY].double(), model[BODY].double() + mean, atol=1e-7)


def test_several_labelled_sites_give_their_mean(model):
    """By frames among themselves: 100 and 300 of them are 1/4 and 3/4, though the third has most of all."""
    sent = updates(model, {"a": (100, True), "b": (300, True), "c": (9600, False)})
    result = WeightedMean(SampleWeighting()).aggregate(model, sent).tensors
    expected = model[HEAD] + 0.25 * sent[0].tensors[HEAD] + 0.75 * sent[1].tensors[HEAD]
    assert torch.allclose(result[HEAD], expected, atol=1e-7)


def warned(spreads, site="u"):
    """Rounds in which a site with these spreads of features is warned of."""
    guard = CollapseGuard(FedCy().guards())
    sent = [Update(site, round, {}, 4, 10, {"train_feature_spread": s}) for round, s in enumerate(spreads)]
    return [(update.round, finding.what) for update in sent for finding in guard.check(update)]


@pytest.mark.parametrize(
    "healthy",
    [
        [0.11, 0.11, 0.12, 0.2, 0.4, 0.35],  # learning
        [0.5, 0.3, 0.2, 0.1, 0.06],  # getting more alike, slowly
        [1e-7, 0.02, 0.05, 0.1],  # an untrained network sees little
        [0.0],
    ],
)
def test_learning_is_no_collapse(healthy):
    assert warned(healthy) == []


def test_features_that_become_the_same_are_told_once():
    assert warned([0.1, 0.12, 0.11, 0.08, 0.005, 0.004, 0.1, 0.001]) == [(4, "features_same"), (7, "features_same")]
    assert warned([0.0, 0.0, 0.0]) == [(1, "features_same")]


def test_a_collapse_has_its_numbers():
    guard = FedCy().guards()["features"]
    sent = [Update("u", round, {}, 4, 10, {"train_feature_spread": s}) for round, s in enumerate([0.1, 0.001])]
    first, finding = map(guard.check, sent)
    assert first is None and (finding.value, finding.reference) == (0.001, 0.1)
    assert "0.1 %" in finding.message and "10 %" in finding.message
    assert guard.check(Update("v", 1, {}, 4, 10, {"train_loss": 1.0})) is None, "a site that reports nothing of it"
