"""Answers that a site lets pass, changes, holds back and writes down."""

import json
import math

import numpy as np
import pytest
import torch
import yaml

from fedmed.errors import PrivacyError
from fedmed.messages.answers import Extras, Release, Update
from fedmed.privacy.limits import SiteLimits
from fedmed.privacy.payload import payload_bytes, payload_digest
from fedmed.privacy.protection import l2_norm
from fedmed.settings.site import parse_site

NOISE = {"clip_norm": 2.0, "noise_multiplier": 0.5, "allowed_metrics": []}


@pytest.fixture
def limits(tmp_path):
    (tmp_path / "data").mkdir()

    def limits(**privacy):
        path = tmp_path / "site_a.yaml"
        privacy = {"account": "account.json", **privacy}
        path.write_text(yaml.safe_dump({"data_root": "data", "device": "cpu", "privacy": privacy}))
        return SiteLimits(parse_site("site_a", yaml.safe_load(path.read_text()), path), tmp_path / "job")

    return limits


def update(tensors=None, **facts):
    tensors = {"enc.w": torch.randn(40, 50), "dec.w": torch.randn(10)} if tensors is None else tensors
    return Update("site_a", 3, tensors, **{"n_steps": 5, "n_samples": 7, "metrics": {"train_loss": 0.5}, **facts})


def ledger(limits):
    return [json.loads(line) for line in limits.ledger.path.read_text().splitlines()]


def measured(content):
    return payload_bytes(content), payload_digest(content)


def test_without_limits_an_update_leaves_as_it_is_and_is_written_down(limits):
    gate, sent = limits(), update(metrics={"train_loss": 0.5, "val_dice": math.nan})
    passed = gate.apply(sent)
    assert all(passed.tensors[name] is tensor for name, tensor in sent.tensors.items())
    assert (passed.round, passed.n_steps, passed.n_samples) == (3, 5, 7) and passed.metrics == {"train_loss": 0.5}
    (line,) = ledger(gate)
    assert line["tensors"] == {"enc.w": "float32 40×50", "dec.w": "float32 10"}
    content = {"tensors": sent.tensors, "n_steps": 5, "n_samples": 7, "metrics": {"train_loss": 0.5}, "extras": {}}
    assert (line["bytes"], line["sha256"]) == measured(content) and 8040 <= line["bytes"] < 8060
    assert (line["site"], line["answer"], line["task"], line["round"]) == ("site_a", "update", "train", 3)
    assert not {"norm", "epsilon", "noise_std"} & set(line) and not gate.privacy.account.exists()


def test_a_tensor_that_may_not_leave_stops_the_answer_and_is_named(limits):
    gate = limits(allowed_tensors=["^enc"])
    with pytest.raises(PrivacyError, match=r"'dec.w' is not among.*'privacy.allowed_tensors' in .*site_a.yaml; noth"):
        gate.apply(update())
    assert gate.apply(update({"enc.w": torch.ones(2)})).tensors.keys() == {"enc.w"}
    assert limits(allowed_tensors=["enc", r"\.w$"]).apply(update()).tensors.keys() == {"enc.w", "dec.w"}


def test_scalars_and_extras_leave_only_if_listed_and_it_is_said_once(limits, caplog):
    caplog.set_level("INFO")
    gate = limits(allowed_metrics=["val_dice", "n_cases"])
    for _ in range(2):
        sent = gate.apply(update(metrics={"val_dice": 0.7, "train_loss": 0.5}, extras={"amplitude": [1.0]}))
    assert sent.metrics == {"val_dice": 0.7} and sent.extras == {} and sent.n_samples == 0
    assert [r.getMessage().split(" (")[0] for r in caplog.records] == [
        "site_a: scalars that stay here: n_samples, train_loss",
        "site_a: extras that stay here: amplitude",
    ]
    assert gate.metrics("validate", 3, {"val_dice": 0.5}) == {"val_dice": 0.5}
    assert gate.metrics("evaluate", 3, {"dice_mean": 0.5, "dice_std": 0.1, "n_cases": 14}) == {}  # read together
    half = {"auroc": 0.9, "auroc_low": 0.8, "accuracy": 0.7, "n_cases": 14}
    assert limits(allowed_metrics=["auroc", "n_cases"]).metrics("evaluate", 3, half) == {"auroc": 0.9}
    accuracy = {"accuracy", "n_cases"}
    assert limits(allowed_metrics=[*accuracy]).metrics("evaluate", 3, half).keys() == accuracy
    whole = limits(allowed_metrics=["dice_mean", "dice_std", "n_cases"])
    scores = {"dice_mean": 0.5, "dice_std": 0.1, "n_cases": 14}
    assert whole.metrics("evaluate", 3, {**scores, "path": "/patients/x"}) == scores
    extras = {"amplitude": [1.0]}
    assert limits(allowed_extras=["amplitude"]).apply(update(extras=extras)).extras == extras
    with pytest.raises(PrivacyError, match="'/extras/amplitude' is a PosixPath; only plain values"):
        limits(allowed_extras=["amplitude"]).apply(update(extras={"amplitude": gate.folder}))


@pytest.mark.parametrize(("cases", "leaves"), [(1, False), (4, False), (5, True), (0, True)])
def test_scores_of_few_test_cases_stay_and_the_page_can_say_so(limits, cases, leaves, caplog):
    gate, scores = limits(), {"dice_mean": 0.8, "hd95_median": 4.0, "n_cases": cases}
    passed = gate.metrics("evaluate", None, scores)
    assert passed == (scores if leaves else {"n_cases": 0, "min_cases": 5})
    assert leaves or "scores of" in caplog.text and "privacy.min_cases" in caplog.text
    assert ledger(gate)[0]["metrics"] == passed


def test_a_site_chooses_how_many_cases_are_enough_and_synthetic_data_needs_one(limits, tmp_path):
    scores = {"dice_mean": 0.8, "n_cases": 2}
    assert limits(min_cases=2).metrics("evaluate", None, scores) == scores
    assert parse_site("ct_north", {"demo": "chest_ct_tiny"}, tmp_path / "x.yaml").privacy.min_cases == 1
    requested = {"demo": "chest_ct_tiny", "privacy": {"min_cases": 9}}
    assert parse_site("ct_north", requested, tmp_path / "x.yaml").privacy.min_cases == 9


def test_scalars_for_tensorboard_pass_the_same_list(limits):
    gate = limits(allowed_metrics=["train_loss", "val_dice"])
    assert gate.live("train/loss", 0.5, 1) and gate.live("validation/dice", 0.6, 0)
    assert not gate.live("train/foreground_fraction", 0.1, 1) and not gate.live("validation/auroc", 0.6, 0)
    assert [line["metrics"] for line in ledger(gate)] == [{"train_loss": 0.5}, {"val_dice": 0.6}]


def test_an_answer_may_be_too_large(limits):
    size = limits().apply(update()) and ledger(limits())[0]["bytes"]
    assert limits(max_bytes=size).apply(update())
    with pytest.raises(PrivacyError, match=f"has {size} bytes, {size - 1} are allowed: 'privacy.max_bytes'"):
        limits(max_bytes=size - 1).apply(update())
    with pytest.raises(PrivacyError, match="max_bytes"):
        limits(max_bytes=100).release(Release("site_a", 3, True, {"w": torch.ones(100)}))


def test_clipping_bounds_the_norm_over_all_floating_tensors(limits):
    gate, sent = limits(clip_norm=2.0), update()
    sent.tensors["n"] = torch.tensor(5)
    passed = gate.apply(sent)
    norm = l2_norm(sent.tensors)
    assert l2_norm(passed.tensors) == pytest.approx(2, rel=1e-6) and int(passed.tensors["n"]) == 5
    assert torch.allclose(passed.tensors["enc.w"], sent.tensors["enc.w"] * (2 / norm))
    assert (ledger(gate)[0]["norm"], ledger(gate)[0]["norm_clipped"]) == pytest.approx((norm, 2.0))
    small = update({"w": torch.tensor([0.5])})
    assert gate.apply(small).tensors["w"] is small.tensors["w"]
    with pytest.raises(PrivacyError, match="tensor 'w' has values that are NaN or infinite"):
        gate.apply(update({"w": torch.tensor([math.inf])}))


def test_noise_is_added_to_the_clipped_update_booked_and_written_down(limits):
    gate, sent = limits(**NOISE, delta=0.0001), update({"w": torch.randn(300, 100)})
    passed = gate.apply(sent)
    noise = passed.tensors["w"] - sent.tensors["w"] * (2 / l2_norm(sent.tensors))
    assert float(noise.std()) == pytest.approx(1.0, rel=0.03) and abs(float(noise.mean())) < 0.03
    (line,) = ledger(gate)
    assert line["noise_std"] == 1.0 and line["epsilon"] == gate.account.epsilon() > 0 and line["delta"] == 0.0001
    content = {"tensors": passed.tensors, "n_steps": 5, "n_samples": 0, "metrics": {}, "extras": {}}
    assert (line["bytes"], line["sha256"]) == measured(content)  # of what left, not of what was clean
    again = gate.apply(sent)
    assert not torch.equal(again.tensors["w"], passed.tensors["w"]) and gate.account.spent() == [(0.5, 2)]
    assert passed.metrics == {} and passed.n_samples == 0


def test_the_site_decides_what_is_known_of_its_protection(limits):
    assert limits(clip_norm=2.0).apply(update()).metrics == {"train_loss": 0.5, "clip_norm": 2.0}
    listed = ["clip_norm", "noise_multiplier", "epsilon", "delta"]
    gate = limits(**{**NOISE, "allowed_metrics": listed})
    known = gate.apply(update()).metrics
    assert known == {"clip_norm": 2.0, "noise_multiplier": 0.5, "epsilon": gate.account.epsilon(), "delta": 1e-5}
    assert ledger(gate)[-1]["metrics"] == known
    assert limits(**NOISE).apply(update()).metrics == {}


def test_noise_repeats_with_a_seed_which_is_shouted_about(limits, caplog):
    first, second = (limits(**NOISE, noise_seed=4).apply(update({"w": torch.zeros(20)})) for _ in range(2))
    assert torch.equal(first.tensors["w"], second.tensors["w"]) and bool(first.tensors["w"].any())
    other = update({"w": torch.zeros(20)})
    other.round = 4
    assert not torch.equal(limits(**NOISE, noise_seed=4).apply(other).tensors["w"], first.tensors["w"])
    assert "protects NOTHING" in caplog.text


@pytest.mark.parametrize("name", ["bn.running_var", "bn.running_mean", "bn.num_batches_tracked", "table"])
def test_statistics_counters_and_tables_do_not_go_with_noise(limits, name):
    value = torch.zeros(3) if "running" in name else torch.tensor(3)
    with pytest.raises(PrivacyError, match=f'\'{name}\' is a statistic, counter or table.*"buffers": "local"'):
        limits(**NOISE).apply(update({"w": torch.ones(1), name: value}))
    assert limits(clip_norm=1.0).apply(update({"w": torch.ones(1), name: value}))


def test_a_spent_account_stops_updates_but_not_scores(limits):
    gate = limits(**NOISE)
    gate.apply(update())
    spent = limits(**{**NOISE, "allowed_metrics": ["val_dice"]}, max_epsilon=gate.account.epsilon() + 0.1)
    with pytest.raises(PrivacyError, match="above 'privacy.max_epsilon'"):
        spent.apply(update())
    assert spent.metrics("validate", 4, {"val_dice": 0.5}) == {"val_dice": 0.5}
    assert spent.account.spent() == [(0.5, 1)]


def test_a_release_passes_the_same_gate(limits):
    answer = Release("site_a", 3, True, {"dec.w": torch.ones(3)})
    assert limits().release(answer) is answer and ledger(limits())[0]["answer"] == "release"
    with pytest.raises(PrivacyError, match="'dec.w'.*allowed_tensors"):
        limits(allowed_tensors=["^enc"]).release(answer)
    with pytest.raises(PrivacyError, match="released layers would carry no noise"):
        limits(**NOISE).release(answer)
    assert limits(**NOISE).release(Release("site_a", 3)).allowed is False


def test_what_cannot_be_written_down_is_not_sent(limits, tmp_path):
    (tmp_path / "job").write_text("a file where a folder should be")
    for send in (lambda g: g.apply(update()), lambda g: g.metrics("evaluate", 1, {}), lambda g: g.live("a/b", 1.0, 1)):
        with pytest.raises(PrivacyError, match="ledger .* cannot be written.*nothing is sent"):
            send(limits())
    limits().refused("train", 0, "why")  # reporting an error must not fail


def test_a_refusal_is_written_down_with_its_reason(limits):
    gate = limits()
    gate.refused("train", 2, "scan of patient 17 is missing")
    assert ledger(gate)[0]["answer"] == "refused" and "patient 17" in ledger(gate)[0]["reason"]


@pytest.mark.parametrize("answer", [update(), Release("site_a", 1), {"val_dice": 0.5}])
def test_every_kind_of_answer_has_one_door(limits, answer):
    gate = limits()
    assert type(gate.answer("validate", 1, answer)) is type(answer)
    assert len(ledger(gate)) == 1


VALUES = {"mu": torch.randn(4000), "sigma": torch.randn(3).double(), "n": 9, "secret": torch.ones(2)}


def test_values_for_other_sites_leave_only_if_listed_and_are_written_down(limits):
    assert limits().answer("metadata", 3, Extras("site_a", 3, dict(VALUES))) == Extras("site_a", 3, {})
    gate = limits(allowed_extras=["mu", "n", "sigma"])
    passed = gate.answer("metadata", 3, Extras("site_a", 3, dict(VALUES)))
    assert list(passed.values) == ["mu", "sigma", "n"] and all(passed.values[n] is VALUES[n] for n in passed.values)
    line = ledger(gate)[-1]
    assert (line["answer"], line["task"], line["round"]) == ("metadata", "metadata", 3)
    assert line["extras"] == {"mu": "float32 4000", "n": 9, "sigma": "float64 3"} and "extras_noise" not in line
    assert (line["bytes"], line["sha256"]) == measured({"extras": passed.values}) and line["bytes"] == 16000 + 24 + 1
    with pytest.raises(PrivacyError, match="has 16001 bytes, 9000 are allowed"):
        limits(allowed_extras=["mu", "n"], max_bytes=9000).metadata(Extras("site_a", 3, dict(VALUES)))
    with pytest.raises(PrivacyError, match="'/extras/mu' is a float; only plain values"):
        limits(allowed_extras=["mu"]).metadata(Extras("site_a", 3, {"mu": math.nan}))


def test_noise_of_extras_reaches_every_array_also_of_an_update_and_no_number(limits):
    gate = limits(allowed_extras=["mu", "sigma", "n", "rsa"], extras_noise=0.5)
    passed = gate.metadata(Extras("site_a", 3, {"mu": VALUES["mu"], "sigma": VALUES["sigma"], "n": 9}))
    noise = passed.values["mu"] - VALUES["mu"]
    assert float(noise.std()) == pytest.approx(0.5, rel=0.05) and abs(float(noise.mean())) < 0.04
    assert passed.values["sigma"].dtype == torch.float64 and not torch.equal(passed.values["sigma"], VALUES["sigma"])
    assert passed.values["n"] == 9 and ledger(gate)[0]["extras_noise"] == 0.5
    nested = {"rsa": 0.25, "mu": [torch.zeros(2), {"deep": torch.zeros(1)}]}
    extras = gate.apply(update(extras=nested)).extras
    assert extras["rsa"] == 0.25 and extras["mu"][0].all() and extras["mu"][1]["deep"].all()
    with pytest.raises(PrivacyError, match="array of torch.int64 cannot carry noise: 'privacy.extras_noise'"):
        gate.metadata(Extras("site_a", 3, {"mu": torch.ones(2).long()}))
    assert not gate.privacy.account.exists(), "extras are outside the account"


@pytest.mark.parametrize("value", [[0.1, 0.2], {"x": 1.0}, [torch.ones(1), [3]]])
def test_numbers_that_would_get_no_noise_do_not_leave_where_noise_is_asked_for(limits, value):
    assert limits(allowed_extras=["mu"]).metadata(Extras("site_a", 3, {"mu": value})).values["mu"] is value
    with pytest.raises(PrivacyError, match="'mu' holds numbers outside of an array, without noise: 'privacy.extras_n"):
        limits(allowed_extras=["mu"], extras_noise=0.5).metadata(Extras("site_a", 3, {"mu": value}))


def test_what_is_neither_a_tensor_nor_a_plain_value_does_not_leave(limits):
    with pytest.raises(PrivacyError, match="'/extras/mu' is a ndarray; only plain values and tensors may leave"):
        limits(allowed_extras=["mu"]).metadata(Extras("site_a", 3, {"mu": np.ones(2)}))


def test_seeded_noise_of_extras_is_not_that_of_the_update(limits):
    zeros = {"w": torch.zeros(50)}
    seeded = {**NOISE, "clip_norm": 1.0, "noise_multiplier": 1.0, "noise_seed": 3}
    gate = limits(**seeded, allowed_extras=["mu"], extras_noise=1.0)
    first, again = (gate.apply(update(dict(zeros), extras={"mu": torch.zeros(50)})) for _ in range(2))
    assert torch.equal(first.extras["mu"], again.extras["mu"])
    assert not torch.allclose(first.extras["mu"], first.tensors["w"])


FINGERPRINT = {"images": "picture", "device": "cpu", "memory": 8, "counts": {"training": 10}}


def test_a_fingerprint_leaves_only_where_it_is_listed_and_takes_nothing_with_it(limits):
    gate = limits(allowed_extras=["fingerprint", "other"])
    passed = gate.fingerprint(Extras("site_a", 0, {"fingerprint": FINGERPRINT, "other": 1.0}))
    assert passed.values == {"fingerprint": FINGERPRINT}
    (line,) = ledger(gate)
    assert (line["answer"], line["sha256"]) == ("fingerprint", payload_digest({"extras": passed.values}))
    assert limits().fingerprint(Extras("site_a", 0, {"fingerprint": FINGERPRINT})).values == {}
    assert gate.fingerprint(Extras("site_a", 0, {})).values == {}, "a site without one answers all the same"


def test_what_is_no_fingerprint_does_not_leave_as_one(limits):
    gate = limits(allowed_extras=["fingerprint"])
    with pytest.raises(PrivacyError, match="the fingerprint does not leave"):
        gate.fingerprint(Extras("site_a", 0, {"fingerprint": {**FINGERPRINT, "patient": "Smith"}}))
    assert not gate.ledger.path.exists(), "and none of it stands in the ledger"
