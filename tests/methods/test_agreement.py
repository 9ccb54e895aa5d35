import pytest

from fedmed.bundles.bundle import Bundle
from fedmed.errors import JobError
from fedmed.jobs.job_folder import write_job
from fedmed.messages.answers import Update
from fedmed.methods.guard import FRACTION
from fedmed.systems.agreement.method import Agreement

SITES = {"ct_north": "supervised", "ct_east": "unsupervised"}


def test_what_it_declares():
    method = Agreement()
    assert [value.name for value in method.values()] == ["agreed_share", "mean_scores"]
    assert method.roles()["supervised"].overlays == ("judged_means",)
    assert method.validation_errors(SITES) == []
    assert (
        "needs at least 1 site with the role 'supervised'" in method.validation_errors({"ct_east": "unsupervised"})[0]
    )


def test_what_is_not_asked_is_not_sent():
    off = {"gate": False, "careful": False, "align": False}
    plain = Agreement(**off)
    assert [value.name for value in plain.values()] == ["agreed_share"]
    assert plain.roles()["supervised"].overlays == ()
    for option, value, overlay in [
        ("gate", "label_confidence", ("judged_means", "label_confidence")),
        ("careful", "mean_scores", ("judged_means",)),
        ("align", "label_shares", ("judged_means", "label_shares")),
    ]:
        method = Agreement(**{**off, option: True})
        assert [sent.name for sent in method.values()] == ["agreed_share", value]
        assert method.roles()["supervised"].overlays == overlay


def test_a_study_gives_its_arguments_to_the_rule(job_of):
    method = {"path": "fedmed.systems.agreement.method.Agreement", "args": {"combine": "join", "careful": False}}
    job = job_of(name="x", method=method, sites=SITES, rounds=2, steps=1, overlays=["demo"])
    assert job.rule["args"]["combine"] == "join" and not job.rule["args"]["careful"]
    assert job.overlays(job.role("ct_east")) == ["demo", "unlabelled", "agreement"]
    assert "fixed_gate" not in job.rule["args"]
    assert Agreement(gate=True, fixed_gate=0.8).rule()["args"]["fixed_gate"] == 0.8


@pytest.mark.parametrize("algorithm", [{}, {"adaptation": "intensity"}])
@pytest.mark.parametrize("gate", [False, True])
def test_with_a_gate_only_voxels_that_count_are_learned(job_of, gate, algorithm):
    """Without one every voxel is, as the CT bundle has it."""
    method = {"path": "fedmed.systems.agreement.method.Agreement", "args": {"gate": gate}}
    job = job_of(name="x", method=method, sites=SITES, rounds=2, steps=1, overlays=["demo"], **algorithm)
    bundle = Bundle(job.study.bundle, ["demo", "unlabelled", "agreement"], job.overrides("unsupervised"))
    loss = bundle.parser().get_parsed_content("train#trainer#agreement_loss")
    assert loss.everywhere is not gate
    assert "everywhere" not in job.overrides(job.role("ct_north"))


def test_a_gate_and_a_loss_of_every_voxel_are_refused_together(job_of):
    method = {"path": "fedmed.systems.agreement.method.Agreement", "args": {"gate": True}}
    study = {"method": method, "sites": SITES, "rounds": 2, "steps": 1, "overlays": ["demo"]}
    with pytest.raises(JobError, match=r"line \d+: 'overrides.unsupervised.everywhere' is true: .*'gate'"):
        job_of(name="x", **study, overrides={"unsupervised": {"everywhere": True}})
    assert job_of(name="x", **study, overrides={"unsupervised": {"everywhere": False}})


def test_the_guards_advice_names_what_the_method_has():
    """A collapse of a site that learns by agreement; overlay ``consistency`` and its settings are not there."""

    def advice(**args):
        (guard,) = Agreement(**args).guards().values()
        updates = [Update("u", round, {}, 1, 1, {FRACTION: share}) for round, share in enumerate([0.01, 0.99])]
        return [one.message for update in updates if (one := guard.check(update))][0].partition("spreading; ")[2]

    assert advice() == "lower unsupervised_learning_rate, or lower the method's strength"
    assert "strength" not in advice(combine="join") and "careful" in advice(careful=False)
    known = Bundle("covid_ct_segmentation", []).federation["overridable"]
    assert "unsupervised_learning_rate" in known and not any(name in advice() for name in ("confidence", "scope"))


@pytest.mark.parametrize(
    "args", [{"combine": "add"}, {"strength": -1.0}, {"ramp_rounds": -1}, {"gate": True, "fixed_gate": 2}]
)
def test_arguments_that_cannot_be_meant_are_refused_before_anything_is_written(job_of, args, tmp_path):
    method = {"path": "fedmed.systems.agreement.method.Agreement", "args": args}
    with pytest.raises(JobError, match=f"'{list(args)[-1]}' is"):
        write_job(job_of(name="x", method=method, sites=SITES, rounds=2, steps=1, overlays=["demo"]), tmp_path / "job")


def test_pooled_buffers_are_refused_where_the_rule_cannot_pool(job_of, tmp_path):
    study = {"sites": SITES, "rounds": 2, "steps": 1, "overlays": ["demo"], "buffers": "pooled"}
    study["method"] = {"path": "fedmed.systems.agreement.method.Agreement"}
    with pytest.raises(JobError, match="'buffers' is 'pooled', which .*LabelledMean"):
        write_job(job_of(name="x", **study), tmp_path / "job")
