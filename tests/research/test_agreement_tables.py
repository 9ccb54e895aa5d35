"""The tables of the agreement plan: one setting in all, seeds of their own, and arms that differ as they say."""

from functools import cache
from itertools import product

import pytest
import yaml

from research.runner.score_table import score_frame
from research.runner.table_claim import Evidence

from .shipped_tables import EXPERIMENTS, check_runs, data_of, differences, place_of, table_of, verdicts

TABLES = {"demo": ["ct_demo"], "mean": ["ct_demo"]} | dict.fromkeys(
    ("in_turn", "aligned", "parts", "strong_views"), ["institutions", "lidc_long"]
)
SETTINGS = ("agree", "flips", "learned", "everywhere", "strong", "balance", "teacher", "augmentation")
DEVELOPED_ON = {0, 1, 2}  # seeds


@cache
def studies(name, data):
    """Arm -> its study, with the sites of the data."""
    table, on = table_of(f"agreement_{name}"), data_of(data)
    table.check_data(on)
    return {arm.name: arm.stages[0].job_of(place_of(arm.name, on, table.test, 10)) for arm in table.arms}


@pytest.mark.parametrize(("name", "data"), [(name, data) for name, all_ in TABLES.items() for data in all_])
def test_every_arm_is_a_job_that_the_bundle_accepts(name, data):
    made = studies(name, data)
    check_runs({arm: [job] for arm, job in made.items()})
    assert {job.study.validate_every for job in made.values()} == {1}, "labelled sites report what they validate"


def test_the_setting_that_development_chose_is_the_same_in_all_tables():
    def chosen(study):
        settings = {key: study.overrides["unsupervised"][key] for key in SETTINGS}
        return yaml.safe_dump({"method": study.method.model_dump(), "algorithm": study.algorithm, "settings": settings})

    settings = {
        chosen(job.study)
        for name, all_ in TABLES.items()
        if name not in ("mean", "aligned")  # of other attempts
        for arm, job in studies(name, all_[0]).items()
        if arm.split(": ")[-1] in ("agreement", "agreement, strong views")
    }
    assert len(settings) == 1


def test_nothing_is_confirmed_with_seeds_that_it_was_developed_on():
    assert not any(DEVELOPED_ON & set(table_of(f"agreement_{name}").seeds) for name in (*TABLES, "xray"))


@pytest.mark.parametrize("name", ["demo", "parts"])
def test_each_part_differs_from_the_method_in_what_it_names(name):
    made = studies(name, TABLES[name][0])
    whole = made["agreement"].study

    def changed(arm):
        return differences(made[arm].study, whole)

    assert changed("with the gate") == {"gate", "everywhere"} and changed("with alignment") == {"align"}
    assert changed("brightness as it is") == {"algorithm"}
    unlearned = made["as bright, nothing learned"].study
    assert unlearned.adapts and unlearned.algorithm == whole.algorithm
    assert unlearned.overrides["unsupervised"] == {**whole.overrides["unsupervised"], "learning_rate": 0.0}
    assert changed("one view") == {"flips"} and changed("only where both agree") == {"everywhere"}
    assert changed("nobody judges") == {"careful"}
    assert changed("joined") == changed("plain average") == {"combine"}
    assert changed("classes learned") == {"learned"} and changed("patch as it is") == {"augmentation"}
    assert changed("strong views for the student") == {"strong", "augmentation"}
    assert changed("mean teacher without agreement") == {"agree", "teacher"}


def test_alignment_is_all_that_its_table_changes():
    plain, aligned = (studies(name, "institutions")["site_2: agreement"].study for name in ("in_turn", "aligned"))
    assert aligned.method.args == {**plain.method.args, "align": True}
    assert aligned.model_copy(update={"method": plain.method}) == plain


def test_the_demo_has_the_options_that_the_other_tables_lack():
    made = studies("demo", "ct_demo")
    assert made["amplitude normalisation"].study.algorithm == "amplitude_normalisation"
    region = made["two-sided region"].study.overrides["unsupervised"]
    assert made["two-sided region, L2"].study.overrides["unsupervised"] == {**region, "consistency_loss": "l2"}
    sent = {value.name for value in made["amplitude normalisation"].method.values()}
    for site in ("ct_north", "ct_south", "ct_east"):
        facts = yaml.safe_load((EXPERIMENTS.parents[1] / "site_configs" / "demo" / f"{site}.yaml").read_text())
        assert sent <= set(facts["privacy"]["allowed_extras"])


@pytest.mark.parametrize("name", ["in_turn", "aligned", "strong_views"])
def test_each_site_is_once_the_one_without_labels(name):
    for arm, job in studies(name, "institutions").items():
        without = job.study.of_role("unsupervised")
        if arm == "all labelled":
            assert len(job.study.of_role("supervised")) == 3
        elif ": left out" in arm:
            assert not without and job.study.of_role("evaluate") == [arm.split(":")[0].replace("site", "image")]
        else:
            assert without == [arm.split(":")[0].replace("site", "image")]


def judged(name, gains):
    """Claim -> verdict, where these arms are so much above the others everywhere."""
    table, rows, model = table_of(f"agreement_{name}"), [], "selected" if name == "mean" else "last"
    for arm, seed, site in product(table.arms, table.seeds, table.test):
        gain = gains.get(arm.name.split(": ")[-1], 0.0)
        keys = {"arm": arm.name, "seed": seed, "site": site, "list": "test", "model": model, "metric": "dice"}
        rows += [{**keys, "unit": f"case_{n}", "value": 0.3 + 0.01 * n + gain * (1 + 1e-3 * n)} for n in range(20)]
    return verdicts(table, Evidence(score_frame(rows), table.scores, {site: site for site in table.test}))


@pytest.mark.parametrize("name", TABLES)
def test_all_claims_can_be_judged(name):
    gains = {"agreement": 0.04, "agreement, strong views": 0.06, "left out, strong views": 0.01, "all labelled": 0.07}
    good = judged(name, gains)
    assert set(good.values()) - {"✓"} <= {"reported", "n.s."} and "not run" not in good.values()
    assert {v for k, v in good.items() if "gain" in k or "no harm" in k or "distance" in k} <= {"✓", "reported"}
    bad = judged(name, {"agreement": -0.04, "agreement, strong views": -0.04})
    assert {v for k, v in bad.items() if "gain" in k or "no harm" in k or "part" in k} <= {"✗"}
