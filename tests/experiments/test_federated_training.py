"""From a table's YAML to jobs: roles, schedule, overrides."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from fedmed.bundles.load import Bundle
from fedmed.errors import JobError
from fedmed.experiments.claims import check_claims
from fedmed.experiments.federation import Budget, Federation, load_federation
from fedmed.experiments.plan import job_of, lacking
from fedmed.experiments.table import Arm, Table, load_table, only

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
DEMO = load_federation(EXPERIMENTS / "data" / "demo.yaml")
TABLES = sorted(path for path in EXPERIMENTS.glob("*.yaml") if "experiment" not in yaml.safe_load(path.read_text()))


def table(**arm):
    return Table("t", "T", [0], ["site_1", "site_2", "site_3"], [Arm("a", **arm)])


def job(**arm):
    return job_of(table(**arm).arms[0], table(**arm), DEMO, 3)


@pytest.mark.parametrize("data", ["demo", "paper"])
@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_every_table_of_the_paper_has_jobs_that_the_bundle_accepts(path, data):
    loaded, federation = load_table(path), load_federation(EXPERIMENTS / "data" / f"{data}.yaml")
    check_claims(loaded.claims, [arm.name for arm in loaded.arms], loaded.test)
    missing = {arm.name: lacking(arm, federation) for arm in loaded.arms}
    assert all(job_of(arm, loaded, federation, 0).files() for arm in loaded.arms if not missing[arm.name])
    other = {"the network 'other'"} if data == "demo" and path.stem == "table3" else set()
    assert set(missing.values()) - {None} == other


def test_a_site_that_lends_its_decoder_has_the_federations_name():
    pair = {"site_1": "supervised", "site_2": "unsupervised"}
    assert job(train=pair, job={"sharing": "block_6", "release_from": "site_1"}).release_from == "image_1"


def test_sites_that_do_not_train_are_tested():
    made = job(train={"site_1": "supervised", "pneumonia": "unsupervised"})
    roles = {"image_1": "supervised", "image_2": "evaluate", "image_3": "evaluate", "image_p": "unsupervised"}
    assert made.sites == roles and made.evaluate_last and made.seed == 3
    assert job(pool=["site_1", "site_3"]).sites == {
        "pool": "supervised", "image_1": "evaluate", "image_2": "evaluate", "image_3": "evaluate",
    }  # fmt: skip


def test_all_arms_have_the_same_number_of_iterations():
    pair = {"site_1": "supervised", "site_2": "unsupervised"}
    arms = [job(train=pair, interval=factor) for factor in (0.25, 0.5, 1, 2)] + [job(pool=["site_1", "site_2"])]
    assert {made.rounds * made.steps for made in arms} == {DEMO.budget.steps}
    assert {made.warm_start_rounds * made.steps for made in arms[:-1]} == {DEMO.budget.warm_start}
    assert {made.validate_every * made.steps for made in arms} == {DEMO.budget.validate}
    # Nobody joins late where every site has labels, or where the arm says so.
    assert arms[-1].warm_start_rounds == 0 == job(train=pair, warm_start=False).warm_start_rounds


def test_batch_learning_rate_and_own_settings_become_overrides():
    rate = Bundle("covid_ct_segmentation", ["coarse"]).parser()["learning_rate"]
    batch = Bundle("covid_ct_segmentation", ["coarse"]).parser()["batch_size"]
    made = job(train={"site_1": "supervised", "site_2": "unsupervised"}, learning_rate=0.2, weights={"site_2": 0.5})
    assert made.overrides["unsupervised"]["unsupervised_learning_rate"] == pytest.approx(0.2 * rate)
    assert made.overrides["unsupervised"]["cutout_size"] == [6, 6, 2] and made.user_weights == {"image_2": 0.5}
    assert job(pool=["site_1"], batch=2).overrides == {"supervised": {"batch_size": 2 * batch}}


def test_what_the_federation_lacks_is_named():
    with pytest.raises(JobError, match="site 'site_9'.*'demo'.*image|site_1"):
        job(train={"site_9": "supervised"})
    with pytest.raises(JobError, match="arm 'a' needs the network 'ahnet_huge'"):
        job(train={"site_1": "supervised"}, network="ahnet_huge")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": None, "arms": {"a": {"trained": 1}}}, "arm 'a' has an unknown key 'trained'; known are train"),
        ({"arms": {"a": {}}}, "arm 'a': give either 'train'"),
        ({"arms": {"a": {"train": {"site_1": "teacher"}}}}, "arm 'a': site_1 has the role 'teacher'"),
        ({"colour": "red"}, "is no table.*colour"),
        ({"arms": None}, "'arms' is None; it must be names with settings"),
        ({"arms": {"a": None}}, "'arms' is .*None.*it must be names with settings"),
        ({"defaults": [1]}, r"'defaults' is \[1\]"),
        ({"seeds": "012"}, "'seeds' is '012'; it must be a list of different whole numbers"),
        ({"seeds": [0, 0]}, r"'seeds' is \[0, 0\]"),
        ({"test": "site_1"}, "'test' is 'site_1'; it must be a list of different names"),
        ({"baseline": "b"}, "'baseline' is 'b'; it must be one of the arms: a"),
    ],
)
def test_malformed_tables_are_named(tmp_path, change, message):
    content = {"title": "T", "seeds": [0], "test": ["site_1"], "arms": {"a": {"train": {"site_1": "supervised"}}}}
    (tmp_path / "t.yaml").write_text(yaml.safe_dump({**content, **change}))
    with pytest.raises(JobError, match=message) as error:
        load_table(tmp_path / "t.yaml")
    assert "t.yaml" in str(error.value)
    with pytest.raises(JobError, match=r"missing\.yaml"):
        load_table(tmp_path / "missing.yaml")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": ["site_1"]}, r"'train' is \['site_1'\]; it must be sites with their roles"),
        ({"train": {}, "pool": "site_1"}, "'pool' is 'site_1'; it must be a list"),
        ({"x": "big"}, "'x' is 'big'; it must be a number"),
        ({"batch": 0.5}, "'batch' is 0.5; it must be a whole number"),
        ({"interval": -2}, "'interval' is -2; it must be a number above 0"),
        ({"learning_rate": "1e-2"}, "'learning_rate' is '1e-2'.*write 1.0e-2"),
        ({"learning_rate": 0.1}, "'learning_rate' is that of unsupervised sites, but the arm has none"),
        ({"warm_start": "no"}, "'warm_start' is 'no'; it must be true or false"),
        ({"overrides": {"unsup": {"teacher": "ema"}}}, "'overrides' is .*unsup.* below supervised or unsupervised"),
        ({"job": "full"}, "'job' is 'full'"),
    ],
)
def test_a_wrong_setting_of_an_arm_is_named_before_anything_runs(change, message):
    with pytest.raises(JobError, match=f"arm 'a': {message}"):
        table(**{"train": {"site_1": "supervised"}, **change})


def test_a_job_has_no_settings_that_arms_have_words_for_or_that_do_not_exist():
    for unknown in ("seed", "colour"):
        with pytest.raises(JobError, match=f"arm 'a': 'job' may not set '{unknown}'; it may set: .*sharing"):
            job(train={"site_1": "supervised"}, job={unknown: 1})


def test_factors_are_of_what_the_federation_has_set():
    """Else a double batch, say, would be the double of another batch than the single one."""
    pair = Arm("a", train={"site_1": "supervised", "site_2": "unsupervised"}, batch=2, learning_rate=0.1)
    federation = replace(DEMO, overrides={"supervised": {"batch_size": 3, "learning_rate": 0.5}})
    overrides = job_of(pair, table(train=pair.train), federation, 0).overrides
    assert overrides["supervised"]["batch_size"] == 6
    assert overrides["unsupervised"]["unsupervised_learning_rate"] == pytest.approx(0.05)


def test_a_budget_is_whole_numbers_that_fit():
    with pytest.raises(JobError, match="interval"):
        Budget(100, 50, 0, 20)
    with pytest.raises(JobError, match="longer than the 100 steps"):
        Budget(100, 120, 10, 20)


def test_a_federation_needs_a_default_network(tmp_path):
    content = {"sites": {"site_1": "a"}, "networks": {"big": []}, "budget": vars(DEMO.budget)}
    (tmp_path / "d.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(JobError, match="'default'"):
        load_federation(tmp_path / "d.yaml")
    (tmp_path / "d.yaml").write_text(yaml.safe_dump({**content, "networks": {"default": []}}))
    assert load_federation(tmp_path / "d.yaml") == Federation("d", {"site_1": "a"}, {"default": []}, DEMO.budget)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sites": ["a"]}, "'sites' is"),
        ({"sites": {"site_1": "a", "site_2": "a"}}, r"'sites' is \['a', 'a'\]; it must be a list of different names"),
        ({"sites": {"site_1": "pool"}}, "'pool' is that of the pooled cases"),
        ({"networks": {"default": "demo"}}, "'networks' is .*lists of overlays"),
        ({"budget": [1]}, "'budget' is .*steps, warm_start"),
        ({"seeds": 3}, "'seeds' is 3"),
        ({"labelled": 3}, "'labelled' is 3"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_malformed_federations_are_named(tmp_path, change, message):
    content = {"sites": {"site_1": "a"}, "networks": {"default": []}, "budget": vars(DEMO.budget)}
    (tmp_path / "d.yaml").write_text(yaml.safe_dump({**content, **change}))
    with pytest.raises(JobError, match=rf"d\.yaml: .*{message}"):
        load_federation(tmp_path / "d.yaml")


def test_some_arms_keep_the_claims_about_them():
    loaded = load_table(EXPERIMENTS / "table1.yaml")
    few = only(loaded, ["Image_2", "Unsup_1 + Sup_2"])
    assert [arm.name for arm in few.arms] == ["Image_2", "Unsup_1 + Sup_2"] and few.baseline is None
    assert few.claims == []
    assert only(loaded, ["Image_1", "Sup_1 + Unsup_2"]).claims[0]["id"] == "2a"
    with pytest.raises(JobError, match="no arm 'Image_7'"):
        only(loaded, ["Image_7"])
