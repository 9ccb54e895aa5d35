"""From a table's YAML to jobs: roles, schedule, overrides."""

from dataclasses import replace

import pytest
import yaml

from fedmed.bundles.bundle import Bundle
from fedmed.data.datalist import load_datalist
from fedmed.errors import JobError
from fedmed.methods.declarations import Role
from fedmed.methods.find_method import load_method
from fedmed.settings.site import parse_site
from fedmed.systems.covid_fssl.method import Consistency
from fedmed.systems.fedmoco.method import FedMoCo
from research.runner.experiment_data import load_data
from research.runner.experiment_table import load_table
from research.runner.federated_training import FederatedTraining
from research.runner.federation_data import FederationData, IterationBudget, RoundsBudget
from research.runner.site_lists import require_values
from research.runner.stages import Place
from research.runner.yaml_models import build

from .shipped_tables import EXPERIMENTS, accepted, data_of, place_of

BUNDLES = EXPERIMENTS.parents[1] / "bundles"
DEMO = data_of("demo")
TABLES = sorted(p for p in EXPERIMENTS.glob("*.yaml") if yaml.safe_load(p.read_text()).get("data") == "demo")
PAIR = {"site_1": "supervised", "site_2": "unsupervised"}
RATE = {"unsupervised": {"unsupervised_learning_rate": {"by": 0.2, "of": "learning_rate"}}}


def job(data=DEMO, **settings):
    place = place_of("a", data, ("site_1", "site_2", "site_3"), 3)
    return build(FederatedTraining, settings, "arm 'a'").job_of(place).study


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_both_readings_of_equation_6_are_called_the_papers(path):
    text = yaml.safe_load(path.read_text())
    assert "not in the paper" not in text["title"].lower() or "two_sided" not in str(text["arms"])
    for arm in text["arms"].values():
        changed = arm.get("training", {}).get("overrides", {}).get("unsupervised", {})
        if changed == {"consistency_scope": "two_sided"} and "weights" not in arm["training"]:
            assert "not in the paper" not in arm["group"].lower()


@pytest.mark.parametrize("data", ["demo", "paper"])
@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_every_table_of_the_paper_has_jobs_that_the_bundle_accepts(path, data):
    table, federation = load_table(path), data_of(data)
    table.check_data(federation)
    missing = {arm.name: arm.stages[0].lacking(federation) for arm in table.arms}
    stages = [arm.stages[0] for arm in table.arms if not missing[arm.name]]
    assert all(accepted(stage.job_of(place_of("a", federation, table.test))) for stage in stages)
    other = {"the network 'other'"} if data == "demo" and path.stem == "table3" else set()
    assert set(missing.values()) - {None} == other


def test_a_site_that_lends_its_decoder_has_the_federations_name():
    assert job(train=PAIR, job={"sharing": "block_6", "release_from": "site_1"}).release_from == "image_1"


def test_sites_that_do_not_train_are_tested():
    made = job(train={"site_1": "supervised", "pneumonia": "unsupervised"})
    roles = {"image_1": "supervised", "image_2": "evaluate", "image_3": "evaluate", "image_p": "unsupervised"}
    assert made.sites == roles and made.evaluate_last and made.seed == 3
    assert job(centralised=["site_1", "site_3"]).sites == {
        "pool": "supervised", "image_1": "evaluate", "image_2": "evaluate", "image_3": "evaluate",
    }  # fmt: skip


def test_all_arms_have_the_same_number_of_iterations():
    arms = [job(train=PAIR, interval=factor) for factor in (0.25, 0.5, 1, 2)] + [job(centralised=["site_1", "site_2"])]
    assert {made.rounds * made.steps for made in arms} == {DEMO.budget.steps}
    assert {made.warm_start.rounds * made.steps for made in arms[:-1]} == {DEMO.budget.warm_start}
    assert {made.validate_every * made.steps for made in arms} == {DEMO.budget.validate_every}
    # Nobody joins late where every site has labels, or where the arm says so.
    assert arms[-1].warm_start.rounds == 0 == job(train=PAIR, warm_start=False).warm_start.rounds


def test_batch_learning_rate_and_own_settings_become_overrides():
    parser = Bundle("covid_ct_segmentation", ["coarse"]).parser()
    made = job(train=PAIR, scaled=RATE, weights={"site_2": 0.5})
    rate = made.overrides["unsupervised"]["unsupervised_learning_rate"]
    assert rate == pytest.approx(0.2 * parser["learning_rate"])
    assert made.overrides["unsupervised"]["cutout_size"] == [6, 6, 2] and made.user_weights == {"image_2": 0.5}
    double = job(centralised=["site_1"], scaled={"supervised": {"batch_size": {"by": 2}}})
    assert double.overrides == {"supervised": {"batch_size": 2 * parser["batch_size"]}}


def test_factors_are_of_what_the_federation_has_set():
    """Else a double batch, say, would be the double of another batch than the single one."""
    scaled = {"supervised": {"batch_size": {"by": 2}}, **RATE}
    data = DEMO.model_copy(update={"overrides": {"supervised": {"batch_size": 3, "learning_rate": 0.5}}})
    overrides = job(data, train=PAIR, scaled=scaled).overrides
    assert overrides["supervised"]["batch_size"] == 6
    assert overrides["unsupervised"]["unsupervised_learning_rate"] == pytest.approx(0.1)
    with pytest.raises(JobError, match="'network' .*bundle|multiple of 'colour'"):
        job(train=PAIR, scaled={"supervised": {"colour": {"by": 2}}})


def test_sites_without_labels_that_are_left_out_are_only_scored():
    """The same arm without them says so in other words: the two share one run."""
    more = {"weights": {"site_1": 2, "site_2": 0.5}, "overrides": {"unsupervised": {"teacher": "ema"}}}
    made = job(train=PAIR, control="left_out", scaled=RATE, **more)
    assert made.sites == {"image_1": "supervised", "image_2": "evaluate", "image_3": "evaluate"}
    assert made == job(train={"site_1": "supervised"}, weights={"site_1": 2})
    hidden = job(train={"site_1": "supervised", "pneumonia": "unsupervised"}, control="left_out")
    assert "image_p" not in hidden.sites, "it has no masks to be scored with"


def test_a_silent_site_differs_in_what_it_learns_alone():
    made, trains = job(train=PAIR, control="silent"), job(train=PAIR)
    assert made.overrides["unsupervised"] == {**trains.overrides["unsupervised"], "learning_rate": 0.0}
    assert made.model_copy(update={"overrides": trains.overrides}) == trains
    overlays = ["coarse", *Consistency().roles()["unsupervised"].overlays]
    config = Bundle("covid_ct_segmentation", overlays, made.overrides["unsupervised"]).parser()
    assert config.get_parsed_content("learning_rate") == 0


@pytest.mark.parametrize(("buffers", "frozen"), [("average", True), ({"unsupervised": "local"}, False)])
def test_statistics_that_stay_at_home_go_on_where_nothing_is_learned(buffers, frozen):
    """As in the control of a job: they need no labels and move nobody's model."""
    said = {"method": {"path": "fedmed.systems.fedcy.method.FedCy"}, "buffers": buffers}
    made = job(train=PAIR, control="silent", job=said).overrides["unsupervised"]
    assert made["learning_rate"] == 0 and ("statistics_momentum" in made) is frozen


@pytest.mark.parametrize("said", [{"adaptation": "intensity"}, {"algorithm": "gamma_matching"}])
def test_in_one_control_alone_sites_adapt(said):
    trains = job(train=PAIR, job=said)
    for control in ("left_out", "silent"):
        assert job(train=PAIR, control=control, job=said) == job(train=PAIR, control=control)
    adapted, silent = job(train=PAIR, control="adapted", job=said), job(train=PAIR, control="silent")
    assert adapted.overrides == silent.overrides and adapted.sites == silent.sites
    assert adapted.model_copy(update={"overrides": trains.overrides}) == trains


def test_where_no_site_adapts_there_is_no_control_that_does():
    with pytest.raises(JobError, match="arm 'a': 'control' is 'adapted', but its 'job' has no 'adaptation'"):
        job(train=PAIR, control="adapted", job={"algorithm": "fedprox"})


@pytest.mark.parametrize("bundle", sorted(path.name for path in BUNDLES.iterdir()))
def test_every_bundle_lets_a_site_be_silenced(bundle):
    Bundle(bundle, [], dict(Role("trains", "a.B").silent))


def test_a_method_may_say_how_its_sites_are_silenced(monkeypatch):
    roles = Consistency().roles()
    roles = {**roles, "unsupervised": replace(roles["unsupervised"], silent=(("ema_decay", 1.0),))}
    monkeypatch.setattr(Consistency, "roles", lambda method: roles)
    made, trains = (job(train=PAIR, control=control).overrides["unsupervised"] for control in ("silent", None))
    assert made == {**trains, "ema_decay": 1}


def test_overlays_of_an_arm_follow_those_of_its_network():
    assert job(train=PAIR, overlays=["cpu"]).overlays == ["coarse", "cpu"]


@pytest.fixture
def site(tmp_path):
    """Return a function: names of values beside the model -> settings of a site that lets them leave."""
    (tmp_path / "images").mkdir()
    (tmp_path / "datalist.json").touch()
    values = {"data_root": str(tmp_path), "device": "cpu"}
    path = tmp_path / "north.yaml"
    return lambda names=(): parse_site("north", {**values, "privacy": {"allowed_extras": list(names)}}, path)


def test_a_site_that_would_not_send_what_the_method_works_with_is_named(site):
    """Else a table would show another method than it says, without a word."""
    method = FedMoCo()
    needed = [value.name for value in method.values() if value.needed]
    open_, closed = site(needed), site(needed[1:])
    require_values(method, [(open_, "unsupervised")])
    require_values(Consistency(), [(closed, "supervised")])
    with pytest.raises(JobError, match=rf"north\.yaml: the site 'north' does not send '{needed[0]}'.*allowed_extras"):
        require_values(method, [(open_, "unsupervised"), (closed, "unsupervised")])


def test_only_sites_that_would_send_a_value_need_to_allow_it(site):
    method = load_method({"path": "fedmed.systems.covid_fssl.method.Consistency", "adaptation": [{"name": "colour"}]})
    require_values(method, [(site(), "unsupervised")])
    with pytest.raises(JobError, match="'colour_statistics'"):
        require_values(method, [(site(), "supervised")])


def test_what_the_federation_lacks_is_named(tmp_path):
    for settings, words in (
        ({"train": {"site_9": "supervised"}}, "arm 'a' needs the site 'site_9'.*'demo'"),
        ({"train": PAIR, "network": "ahnet_huge"}, "arm 'a' needs the network 'ahnet_huge'"),
    ):
        with pytest.raises(JobError, match=words):
            build(FederatedTraining, settings, "a").steps(Place("a", 0, DEMO, ["site_1"], tmp_path), None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": {}}, "give either 'train'"),
        ({"train": {"site_1": "teacher"}}, "'train.site_1' is 'teacher'"),
        ({"control": "silent"}, "'control' is 'silent', but no site of the arm trains without labels"),
        ({"interval": -2}, "'interval' is -2"),
        ({"scaled": {"unsupervised": {"x": {"by": 1}}}}, "speaks of unsupervised sites, but the arm has none"),
        ({"overrides": {"unsup": {"teacher": "ema"}}}, "'overrides.unsup"),
        ({"trained": 1}, "unknown key 'trained'; did you mean 'train'"),
    ],
)
def test_a_wrong_setting_of_an_arm_is_named_before_anything_runs(change, message):
    with pytest.raises(JobError, match=f"arm 'a': .*{message}"):
        build(FederatedTraining, {"train": {"site_1": "supervised"}, **change}, "arm 'a'")


def test_a_job_has_no_settings_that_arms_have_words_for_or_that_do_not_exist():
    for unknown in ("seed", "colour"):
        with pytest.raises(JobError, match=f"arm 'a': 'job' may not set '{unknown}'; it may set: .*sharing"):
            job(train={"site_1": "supervised"}, job={unknown: 1})


def test_a_budget_is_whole_numbers_that_fit():
    for values, words in (((100, 50, 0, 20), "interval"), ((100, 120, 10, 20), "longer than the 100 steps")):
        named = dict(zip(("steps", "warm_start", "interval", "validate"), values, strict=True))
        with pytest.raises(JobError, match=words):
            build(IterationBudget, named, "budget")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sites": {"site_1": "a", "site_2": "a"}}, r"'sites' names \['a', 'a'\]; they must differ"),
        ({"sites": {"site_1": "pool"}}, "and not be 'pool'"),
        ({"networks": {"big": []}}, "'default'"),
        ({"budget": [1]}, "'budget' is"),
        ({"seeds": [0, 0]}, "none twice"),
        ({"colour": "red"}, "colour"),
        ({"path": None}, "must name a class"),
    ],
)
def test_malformed_federations_are_named(tmp_path, change, message):
    budget = {"steps": 320, "warm_start": 160, "interval": 20, "validate": 40}
    content = {"path": "research.runner.federation_data.FederationData", "bundle": "covid_ct_segmentation"}
    content |= {"sites": {"site_1": "a"}, "networks": {"default": []}, "budget": budget}
    (tmp_path / "d.yaml").write_text(yaml.safe_dump(content))
    assert isinstance(load_data(tmp_path / "d.yaml"), FederationData)
    (tmp_path / "d.yaml").write_text(yaml.safe_dump({**content, **change}))
    with pytest.raises(JobError, match=rf"d\.yaml: .*{message}"):
        load_data(tmp_path / "d.yaml")
    (tmp_path / "d.yaml").write_text(yaml.safe_dump({"sites": {}}))
    with pytest.raises(JobError, match=r"'path' is missing.*FederationData"):
        load_data(tmp_path / "d.yaml")


def test_each_site_alone_is_the_run_of_that_site(tmp_path, tiny_site_configs):
    sites = {"site_1": "ct_north", "site_2": "ct_south"}
    data = DEMO.model_copy(update={"sites": sites, "networks": {"default": ["demo"]}})
    place = Place("a", 0, data, ["site_1", "site_2"], tmp_path)
    one, two = FederatedTraining(local=["site_1", "site_2"]).steps(place, None)
    assert (one.node, two.node) == ("ct_north", "ct_south") and one.path != two.path
    (same,) = FederatedTraining(train={"site_1": "supervised"}).steps(place, None)
    assert same.path == one.path and one.job.study.sites == {"ct_north": "supervised", "ct_south": "evaluate"}


def test_a_budget_of_rounds_lets_larger_sites_train_longer():
    data = DEMO.model_copy(update={"budget": RoundsBudget(rounds=12, epochs=2, validate=3)})
    for more, wanted in (({}, (12, 2, None, 3)), ({"interval": 3}, (4, 6, None, 1)), ({"job": {"epochs": 4}}, (12, 4))):
        made = job(data, train={"site_1": "supervised"}, **more)
        assert (made.rounds, made.epochs, made.steps, made.validate_every)[: len(wanted)] == wanted


def test_old_names_are_read_with_a_warning(caplog):
    new = FederatedTraining(centralised=["a", "b"], leave_one_out=True)
    assert FederatedTraining(pool=["a", "b"], in_turn=True) == new and "called 'centralised' now" in caplog.text
    with pytest.raises(JobError, match="'pool' and 'centralised' are one setting"):
        build(FederatedTraining, {"pool": ["a"], "centralised": ["a"]}, "x")


def test_each_site_is_left_out_once_and_tested(tmp_path, tiny_site_configs):
    data = DEMO.model_copy(update={"sites": {"a": "ct_north", "b": "ct_south"}, "networks": {"default": ["demo"]}})
    place = Place("x", 0, data, ["a", "b"], tmp_path)
    made = FederatedTraining(train={"a": "supervised", "b": "supervised"}, leave_one_out=True).steps(place, None)
    assert [one.node for one in made] == ["without ct_north", "without ct_south"]
    assert made[0].job.study.sites == {"ct_north": "evaluate", "ct_south": "supervised"}
    pooled = FederatedTraining(centralised=["a", "b"], leave_one_out=True).steps(place, None)
    assert [len(load_datalist(one.sites["pool"].data_root, one.sites["pool"].datalist, "training")) for one in pooled]
    with pytest.raises(JobError, match="needs two sites or more"):
        job(train={"site_1": "supervised"}, leave_one_out=True)
