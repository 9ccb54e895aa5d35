"""Methods whose sites keep layers to themselves, and the one whose server trains: what they say of themselves."""

import pytest

from fedmed.aggregation.reported import ReportedWeighting
from fedmed.aggregation.weighted_mean import UniformWeighting
from fedmed.bundles.bundle import Bundle, server_bundle
from fedmed.errors import JobError, UpdateRefused
from fedmed.jobs.rule_spec import load_rule, rule_spec
from fedmed.messages.answers import Update
from fedmed.methods.supervised_fedavg import SupervisedFedAvg
from fedmed.systems.fedas.method import FedAS
from fedmed.systems.fedld.method import FedLD
from fedmed.systems.fedld.server import DirectionsMean
from fedmed.systems.fedst.method import FedDP, FedST


@pytest.mark.parametrize(("kind", "group"), [(FedDP, "encoder_q"), (FedAS, "head"), (FedST, "encoder_q")])
def test_what_stays_at_the_sites(kind, group):
    assert {role.receives for role in kind().roles().values()} == {group}
    assert {role.receives for role in kind(group="key").roles().values()} == {"key"}
    assert {role.receives for role in kind(group="full").roles().values()} == {None}
    assert f"sharing group '{group}' never leave the site" in kind().dry_run()[0]
    assert not any("never leave" in line for line in kind(group="full").dry_run())
    assert kind().validation_errors({"a": "evaluate"}) and not kind().validation_errors(
        {"a": "supervised", "b": "evaluate"}
    )
    said = list(kind().contradictions({"sharing": "key", "warm_start": {"rounds": 1, "sharing": "full"}}))
    assert [key for key, _ in said] == ["sharing", "warm_start"] and "'warm_start.sharing'" in said[1][1]
    assert not list(kind().contradictions({"warm_start": {"rounds": 1}}))


def test_how_sites_count():
    for method in (FedDP(), FedST()):
        assert isinstance(load_rule(rule_spec(method.rule())).weighting, UniformWeighting)
    weighting = load_rule(rule_spec(FedAS(most=100.0).rule())).weighting
    assert isinstance(weighting, ReportedWeighting)
    traces = {"a": 2.0, "b": 1.0, "c": 5.0}
    sent = [Update(site, 0, {}, 1, 9, {}, {"fim_trace": trace}) for site, trace in traces.items()]
    amounts = weighting.amounts(sent, {})
    assert {site: amount / 8 for site, amount in amounts.items()} == {"a": 0.25, "b": 0.125, "c": 0.625}
    for wrong in (0.0, -1.0, float("nan"), 101.0, "2"):
        with pytest.raises(UpdateRefused, match="its 'fim_trace' is .*; it must be a number above 0, at most 100"):
            weighting.check_update(Update("a", 0, {}, 1, 9, {}, {"fim_trace": wrong}))
    rule = load_rule(FedLD(share=0.5).rule())
    assert isinstance(rule, DirectionsMean) and FedLD().values() == ()
    assert FedAS().with_update(needed=True) == ["fim_trace"]


def test_a_step_along_directions_has_no_optimizer_after_it(job_of):
    study = {"name": "x", "sites": {"a": "supervised", "b": "supervised"}, "rounds": 2, "steps": 1}
    study |= {"method": FedLD().spec()}
    assert job_of(**study).rule == FedLD().rule()
    with pytest.raises(JobError, match="'server_step': FedLD makes .* by a step of its own.* leave it out") as error:
        job_of(**study, server_step="adamw")
    assert "mistakes" not in str(error.value)


def test_what_the_server_does():
    settings = {"server_separates": True, "server_steps": 100}
    assert FedST().server_training() == {"overlay": "serq", "settings": settings}
    tuned = FedST(server="fine_tuning", server_steps=20).server_training()
    assert tuned["settings"] == {"server_separates": False, "server_steps": 20}
    lower = FedST(server_settings={"server_lambda2": 0.1, "server_pooled": True}).server_training()
    assert lower["settings"] == {**settings, "server_lambda2": 0.1, "server_pooled": True}
    parser = server_bundle(Bundle("instrument_segmentation"), lower).parser()
    assert (parser["server_lambda2"], parser["server_pooled"], parser["server_lambda3"]) == (0.1, True, 0.3)
    by_frame = FedST(server_settings={"dice_batch": False}).server_training()  # Eq. 9 is the server's loss too
    losses = [server_bundle(Bundle("instrument_segmentation"), one).parser() for one in (lower, by_frame)]
    assert [one.get_parsed_content("loss").batch for one in losses] == [True, False]
    others = (FedST(server="mean"), FedDP(), FedAS(), FedLD(), SupervisedFedAvg())
    assert all(method.server_training() is None for method in others)
    cards = [FedST(server=server).card() for server in ("separation", "fine_tuning", "mean")]
    said = [("fine-tuned" in card, "on images of its own" in card) for card in cards]
    assert said == [(False, True), (True, True), (False, False)]


@pytest.mark.parametrize(
    ("kind", "args", "message"),
    [
        (FedST, {"server": "serq"}, "'server' is 'serq'"),
        (FedST, {"server_steps": 0}, "'server_steps' is 0"),
        (FedST, {"server_settings": {"server_steps": 3}}, "'server_settings' is .*without .*server_steps"),
        (FedST, {"server_settings": ["server_mu"]}, "'server_settings' is"),
        (FedLD, {"share": 0}, "'share' is 0"),
        (FedAS, {"most": -1}, "'most' is -1"),
    ],
)
def test_arguments_that_cannot_be_meant(kind, args, message):
    with pytest.raises(JobError, match=message):
        kind(**args)
