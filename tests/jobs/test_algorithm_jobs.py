"""An algorithm is one line of any study; its jobs train, and what does not go together is told at its line."""

from pathlib import Path

import pytest
import torch

from fedmed.bundles.bundle import Bundle
from fedmed.durable_files import load_tensors
from fedmed.errors import JobError, OverrideError
from fedmed.federation.loop import run_job
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import read_job, write_job
from fedmed.jobs.rule_spec import load_rule
from fedmed.jobs.study_text import dumped
from fedmed.methods.declarations import Exchanged
from fedmed.methods.find_method import adaptations, algorithms, load_method
from fedmed.privacy.disclosure_preview import disclosure_preview, forecast
from fedmed.privacy.limits import read_ledger
from fedmed.reports.ledger_page import ledger_sheet
from fedmed.reports.notes import exchange_notes
from fedmed.reports.run import read_run
from fedmed.reports.run_page import page
from fedmed.reports.sheet import html
from fedmed.settings.site import load_file
from tests.federation.run_folder import result_of, rounds_of
from tests.shipped import shipped

pytestmark = pytest.mark.usefixtures("no_charts")

SMALL_BUNDLE = Path(__file__).resolve().parents[1] / "federation" / "small_bundle"
FEDAVG = {"path": "fedmed.methods.supervised_fedavg.SupervisedFedAvg"}
STUDY = {"name": "x", "bundle": "surgical_tool_classification", "method": FEDAVG, "sites": {"a": "supervised"},
         "rounds": 1, "steps": 1}  # fmt: skip
TWO = {"lap_hei1": "supervised", "lap_hei2": "supervised"}
SMALL = {"supervised": {"image_size": [24, 32], "batch_size": 8}}
UNSCORED = {"select": "last", "evaluate": False}  # scoring takes half of a short run


def made(algorithm, **changes):
    return Job.of({**STUDY, "algorithm": algorithm, **changes})


def test_the_algorithms_that_there_are():
    assert list(algorithms()) == ["fedbn", "feddg", "feddyn", "fedprox", "fedrep", "scaffold"]
    assert list(adaptations()) == ["amplitude", "colour", "intensity", "statistics"]
    for kind in (*algorithms().values(), *adaptations().values()):
        overlays = [kind.overlay] if kind.overlay else []
        assert kind.title and kind.source and Bundle("cxr_classification", overlays).overlays == overlays


JOBS = [name for name in algorithms() if shipped(f"tools_{name}").is_file()]


@pytest.mark.parametrize("name", JOBS)
def test_a_job_of_each_is_the_plain_one_with_its_overlay(name):
    job = read_job(shipped(f"tools_{name}"))
    assert job.study.sites == read_job(shipped("tools_fedavg")).study.sites
    assert job.overlays(job.role("lap_cho1"))[2:] == ([] if name == "fedbn" else [name])


@pytest.mark.parametrize("name", [name for name in JOBS if name not in ("fedbn", "feddg", "fedrep")])
def test_a_job_of_each_trains(name, allow_extras, tmp_path):
    """One round at two hospitals; those that are not here train below. A second round begins with what is left."""
    allow_extras("control_difference")
    job = read_job(shipped(f"tools_{name}"))
    small = job.changed({"sites": TWO, "rounds": 1, "epochs": 0.5, "overrides": SMALL, **UNSCORED})
    server = run_job(write_job(small, tmp_path / "job"), tmp_path / "ws")
    (line,) = rounds_of(tmp_path / "ws")
    assert sorted(line["accepted"]) == list(TWO) and not line["refused"]
    kept = server.applied.rule.state()
    if name == "fedprox":
        assert kept == {}
    else:
        (tensors,) = (kept["step"] if name == "feddyn" else kept).values()
        assert tensors.keys() <= set(server.tensors) and all(tensor.any() for tensor in list(tensors.values())[:3])
    assert bool(server.applied.values) == (name == "scaffold")


@pytest.mark.parametrize(
    ("name", "private"),
    [("fedrep", {"classifier.weight", "classifier.bias"}), ("fedbn", {"encoder.bn1.weight", "encoder.bn1.bias"})],
)
def test_each_site_is_scored_with_its_own_layers_and_one_that_never_trains_says_why_not(
    name, private, tiny_site_configs, tmp_path
):
    """In the demo's network GroupNorm layers are those that FedBN keeps at the sites: 20 layers with 40 tensors."""
    job = read_job(shipped(f"tools_{name}"))
    sites = {"lap_hei1": "supervised", "lap_hei2": "evaluate"}
    small = {role: SMALL["supervised"] for role in set(sites.values())}
    job = job.changed({"sites": sites, "rounds": 1, "epochs": 0.5, "overrides": small})
    server = run_job(write_job(job, tmp_path / "job"), tmp_path / "ws")
    (line,) = rounds_of(tmp_path / "ws")
    assert line["accepted"] == ["lap_hei1"] and server.applied.rule.state() == {} and not server.applied.values
    result = result_of(tmp_path / "ws")
    assert set(result["test"]) == {"lap_hei1"} and result["untested"] == {"lap_hei2": "it trains nothing"}
    untested = "Not tested: lap_hei2, which has no private layers of its own: it trains nothing."
    assert untested in page(read_run(tmp_path / "ws"))
    local = load_tensors(tmp_path / "ws/lap_hei1/simulate_job/fedmed/state/round_0.pt")["private"]
    layers = {key.rpartition(".")[0] for key in local}
    assert private <= local.keys() and len(local) == 2 * len(layers)
    kinds = {type(server.store._network.get_submodule(layer)).__name__ for layer in layers}
    assert kinds == ({"Linear"} if name == "fedrep" else {"GroupNorm"})


def test_sites_that_do_not_allow_it_are_refused_by_name(write_tiny_tools_job, tmp_path, caplog):
    folder = write_tiny_tools_job(tmp_path, rounds=1, steps=1, algorithm="scaffold", max_failed_rounds=1)
    with pytest.raises(Exception, match="0 of 2 updates accepted"):
        run_job(folder, tmp_path / "ws")
    assert "no 'control_difference'" in caplog.text and "must list it under 'privacy.allowed_extras'" in caplog.text


def kept(workspace, site, round):
    """The bank that a site has kept with the state of a round."""
    state = load_tensors(workspace / site / f"simulate_job/fedmed/state/round_{round}.pt")
    (correction,) = state["engine"]["corrections"]
    return correction["state"]["bank"]


def test_amplitudes_travel_once_and_stay(allow_extras, tmp_path):
    """Two entries of each site; 24 × 32 pixels."""
    allow_extras("amplitude")
    short = {"sites": TWO, "rounds": 2, "epochs": None, "steps": 1, "overrides": SMALL, **UNSCORED}
    job = read_job(shipped("tools_feddg"))
    job = job.changed({**short, "algorithm": {"name": "feddg", "args": {"bank_images": 2}}})
    assert job.exchange == Exchanged(("amplitude",), once=True, entries=True)
    server = run_job(write_job(job, tmp_path / "job"), tmp_path / "ws")
    first, second = rounds_of(tmp_path / "ws")
    assert sorted(second["accepted"]) == list(TWO) and server.applied.rule.state() == {} and not server.applied.values
    size = 2 * 3 * 24 * 17 * 2
    assert first["bytes_told"] == dict.fromkeys(TWO, size) and first["bytes_extras"] == 4 * size
    assert "bytes_told" not in second and "bytes_extras" not in second and not first["warnings"] + second["warnings"]
    banks = {site: kept(tmp_path / "ws", site, 1) for site in TWO}
    for site, other in (("lap_hei1", "lap_hei2"), ("lap_hei2", "lap_hei1")):
        assert banks[site].shape == (4, 3, 24, 17) and banks[site].dtype == torch.float16
        assert torch.equal(banks[site][:2], banks[other][2:]), "first its own, then the other's, bit for bit"
        reported = [line for line in read_ledger(tmp_path / "ws" / site) if line["answer"] == "metadata"]
        assert [(line["extras"], line["bytes"]) for line in reported] == [({"amplitude": "float16 2×3×24×17"}, size)]
        page = html(ledger_sheet(read_ledger(tmp_path / "ws" / site)))
        assert "extras: amplitude, 4.9 kB" in page and "an image that somebody has can be recognised" in page
    (note,) = exchange_notes(read_run(tmp_path / "ws"))
    assert note == (
        "Before round 1 sites told one another amplitude, once: lap_hei1 4.9 kB and lap_hei2 4.9 kB were sent."
    )


def test_a_site_that_keeps_its_amplitudes_trains_with_the_others(write_tiny_tools_job, allow_extras, tmp_path, caplog):
    allow_extras("amplitude")
    silent = tmp_path / "allowing_sites" / "lap_hei2.yaml"
    silent.write_text(silent.read_text().replace("amplitude", "something"))
    algorithm = {"name": "feddg", "args": {"bank_images": 2, "exclude_self": True}}
    folder = write_tiny_tools_job(tmp_path, rounds=2, steps=1, algorithm=algorithm)
    run_job(folder, tmp_path / "ws")
    (warning,) = [warning for line in rounds_of(tmp_path / "ws") for warning in line["warnings"]]
    assert warning["site"] == "lap_hei2" and "'privacy.allowed_extras' in its own settings" in warning["message"]
    assert len(kept(tmp_path / "ws", "lap_hei2", 1)) == 2 and len(kept(tmp_path / "ws", "lap_hei1", 1)) == 0
    assert caplog.text.count("images stay as they are") == 1


def test_what_a_site_would_send_is_foretold_with_what_it_tells(write_tiny_tools_job, tmp_path):
    folder = write_tiny_tools_job(tmp_path, rounds=2, steps=1, algorithm="feddg")
    path = tmp_path / "lap_hei1.yaml"
    for allowed, said in (
        ([], "The job asks for amplitude, which 'privacy.allowed_extras' does not list"),
        (["amplitude"], "In 1 round amplitude of single training images is sent. It goes on to the other sites"),
    ):
        path.write_text(dumped({"data_root": str(tmp_path), "privacy": {"allowed_extras": allowed}}))
        made = forecast(folder, load_file(path))
        first = made.disclosures[0]
        assert (first.task, first.times, first.rounds) == ("metadata", 1, (0, 0))
        page = html(disclosure_preview(made)).replace("&#39;", "'")
        assert said in page and "can be recognised by its amplitude" in page and "at most 100 images" in page


def test_semi_supervised_training_with_fedprox_by_one_line(write_tiny_job, tmp_path):
    two = {"ct_north": "supervised", "ct_east": "unsupervised"}
    job = read_job(write_tiny_job(tmp_path, sites=two, algorithm={"name": "fedprox", "args": {"mu": 0.5}}))
    for site in two:
        assert job.overlays(job.role(site))[-1] == "fedprox" and job.overrides(job.role(site))["mu"] == 0.5
    assert job.overlays(job.role("ct_east"))[-2] == "consistency"
    assert job.short_rule == job.method.rule() and job.method.guards().keys() == {"pseudo_labels"}
    server = run_job(tmp_path / "tiny", tmp_path / "ws")
    assert server.model_round == 0


def test_server_and_sites_get_the_same_strength_and_a_step_of_the_study_follows():
    then = {"by": "adamw", "rate": 0.5}
    job = made({"name": "feddyn", "args": {"alpha": 0.2}}, server_step=then)
    assert job.overrides(job.role("a")) == {"alpha": 0.2}
    rule = load_rule(job.rule)
    assert rule.weighting.kind == "uniform" and rule.step.alpha == 0.2 and rule.step.then.rate == 0.5
    assert not rule.step.delayed_h
    scaffold = load_rule(made("scaffold", server_step="sgd").rule)
    assert scaffold.mean.weighting.kind == "uniform" and scaffold.mean.step.rate == 1.0
    assert load_rule(made("fedprox", server_step=then).rule).step.rate == 0.5
    assert load_rule(read_job(shipped("tools_feddyn_adamw")).rule).step.then.rate == 1e-3


def test_who_asks_the_method_hears_of_the_algorithm_too():
    job = made("scaffold")
    assert job.method.with_update(needed=True) == ["control_difference"] and "SCAFFOLD" in job.method.card()
    assert job.method.title == "supervised federated averaging with SCAFFOLD"
    assert load_method(job.study.method_spec) == load_method(job.method.spec()) == job.method
    assert "algorithm" not in Job.of(STUDY).study.method_spec


def test_what_an_algorithm_does_not_change_is_the_methods():
    agreement = {"path": "fedmed.systems.agreement.method.Agreement"}
    plain, both = map(load_method, (agreement, {**agreement, "adaptation": [{"name": "intensity"}]}))
    assert both.caution == plain.caution != "" and both.scalars() == plain.scalars()
    assert both.guards().keys() == plain.guards().keys() and both.frozen is None
    assert load_method({"path": "fedmed.systems.tecno.method.TeCNO", "algorithm": {"name": "fedprox"}}).frozen


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": "fedprx"}, r"line \d+.*algorithm 'fedprx' is unknown; did you mean 'fedprox'"),
        ({"algorithm": "os.path.Join"}, "line .*may not name the class"),
        ({"algorithm": {"name": "fedprox", "args": {"m": 1}}}, "line .*algorithm 'fedprox' has no argument 'm'"),
        ({"algorithm": {"name": "feddyn", "args": {"alpha": 0}}}, "line .*'alpha' is 0; give a number above 0"),
        ({"algorithm": {"name": "feddyn", "args": {"delayed_h": 1}}}, "'delayed_h' is 1; write true or false"),
        ({"algorithm": {"path": "fedprox"}}, "algorithm"),
        ({"algorithm": "feddyn", "user_weights": {"a": 2}}, "line .*'user_weights' asks for another mean"),
        ({"algorithm": "feddyn", "clip_norm": 2}, "'clip_norm' asks for another mean, and in FedDyn all sites count"),
        ({"algorithm": "scaffold", "rule": {"args": {"weighting": "samples"}}}, "line .*'rule.args.weighting' asks"),
        ({"algorithm": "feddyn", "rule": {"args": {"weighting": {"by": "samples"}}}}, "'rule.args.weighting' asks"),
        ({"algorithm": "feddyn", "rule": {"args": {"step": "adamw"}}}, "'rule.args.step': write it as 'server_step'"),
        ({"algorithm": "scaffold", "rule": {"args": {"rule": "median"}}}, "'rule.args.rule' asks for another mean"),
        (
            {"algorithm": "feddyn", "rule": {"path": "fedmed.systems.algorithms.scaffold.ControlledMean"}},
            "'algorithm': FedDyn needs the plain mean.*the rule is 'fedmed.systems.algorithms.scaffold.ControlledMean'",
        ),
        (
            {"algorithm": "feddyn", "method": {"path": "fedmed.systems.agreement.method.Agreement"}},
            "needs the plain mean.*server.LabelledMean'; use another method or rule, or leave 'algorithm' out",
        ),
        (
            {
                "algorithm": "feddyn",
                "method": {"path": "fedmed.systems.fedmoco.method.FedMoCo", "args": {"exchange_from": 0}},
            },
            "needs the plain mean of the sites at the server, and the rule is one weighted by",
        ),
        (
            {"algorithm": "fedprox", "overrides": {"supervised": {"mu": 1}}},
            "'overrides.supervised.mu': say it once, as 'algorithm.args.mu'",
        ),
        (
            {"algorithm": {"name": "fedrep", "args": {"head_share": 1}}},
            "line .*'head_share' is 1; .* above 0 and below 1",
        ),
        ({"algorithm": "fedrep", "sharing": "head"}, "line .*'sharing': in FedRep the layers of group 'head' stay at"),
        (
            {"algorithm": "fedbn", "warm_start": {"rounds": 1, "sharing": "full"}},
            "line .*'warm_start.sharing': in FedBN the layers of group 'norm' stay at the sites in all rounds",
        ),
        ({"algorithm": {"name": "feddg", "args": {"bank_images": 0}}}, "line .*'bank_images' is 0; give a number of"),
        ({"algorithm": {"name": "feddg", "args": {"low_frequency": 2}}}, "line .*'low_frequency' is 2; give a share"),
        ({"algorithm": {"name": "feddg", "args": {"exclude_self": 1}}}, "line .*'exclude_self' is 1; write true or"),
        (
            {"adaptation": [{"name": "amplitude", "args": {"band_strength": 0}}]},
            "line .*'band_strength' is 0; give a number above 0 and at most 1",
        ),
        (
            {
                "algorithm": "feddg",
                "method": {"path": "fedmed.systems.fedmoco.method.FedMoCo", "args": {"exchange_from": 0}},
            },
            "line .*FedDG and FedMoCo both exchange values before training; use one of them",
        ),
        ({"overlays": ["feddg"]}, "overlay 'feddg' alone lacks the server's part: write 'algorithm: feddg'"),
        (
            {"overlays": ["amplitude_normalisation"]},
            "overlay 'amplitude_normalisation' alone lacks the server's part: write 'adaptation: amplitude'",
        ),
        ({"overlays": ["feddyn"]}, "overlay 'feddyn' alone lacks the server's part: write 'algorithm: feddyn'"),
        ({"overlays": ["fedprox"], "algorithm": "fedprox"}, "'fedprox' is what 'algorithm: fedprox' adds"),
    ],
)
def test_what_does_not_go_together_is_told_at_its_line(changes, message):
    with pytest.raises(JobError, match=f"(?s){message}"):
        Job.parse(dumped({**STUDY, **changes}))


def test_what_stays_at_the_sites_is_the_algorithms_word():
    job = made("fedrep")
    assert job.group(job.role("a")) == "head" and job.keeps_private
    other = made({"name": "fedrep", "args": {"group": "block_6", "head_share": 0.75}}, bundle="covid_ct_segmentation")
    assert other.group(other.role("a")) == "block_6" and other.overrides(other.role("a")) == {"head_share": 0.75}
    assert made("fedbn", release_from="a").group("supervised") == "norm"


def test_a_group_that_the_bundle_lacks_is_told_at_the_algorithm(tmp_path):
    message = (
        r"line \d+: role 'supervised': sharing group 'block_6' is not in bundle 'surgical_tool_classification'; "
        "it has full, head, norm"
    )
    with pytest.raises(JobError, match=message):
        write_job(made({"name": "fedrep", "args": {"group": "block_6"}}), tmp_path / "x")


def test_a_group_that_is_nothing_to_the_network_is_told_with_those_there_are(tmp_path):
    message = r"line \d+: role 'supervised': .*'norm': no tensor is private.*; its AlexNet has full, head, norm"
    with pytest.raises(JobError, match=message):
        write_job(made("fedbn", overlays=[]), tmp_path / "x")


def test_a_bundle_without_plain_images_cannot_mix_them(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDMED_BUNDLES", str(SMALL_BUNDLE.parent))
    job = made("feddg", bundle=SMALL_BUNDLE.name, overlays=[])
    with pytest.raises(JobError, match=f"bundle '{SMALL_BUNDLE.name}': .* has no 'train::plain', which 'metadata#prov"):
        write_job(job, tmp_path / "job")
    xrays = made("feddg", bundle="cxr_classification", overlays=["demo"])
    assert read_job(write_job(xrays, tmp_path / "xrays")).overlays("supervised")[-1] == "feddg"


def test_a_uniform_mean_may_be_said():
    assert made("feddyn", rule={"args": {"weighting": "uniform"}}).short_rule["args"]["weighting"] == "uniform"


@pytest.mark.parametrize("bundle", ["covid_ct_segmentation", "cxr_classification", "surgical_tool_classification"])
def test_settings_of_an_overlay_may_be_changed_where_it_is_used(bundle):
    assert Bundle(bundle, ["fedprox"], {"mu": 0.5}).parser()["mu"] == 0.5
    assert Bundle(bundle, ["one_cycle", "fedprox"], {"pct_start": 0.1, "mu": 0.5}).parser()["pct_start"] == 0.1
    with pytest.raises(OverrideError, match="override 'mu': a job may not set this"):
        Bundle(bundle, ["one_cycle"], {"mu": 0.5})
