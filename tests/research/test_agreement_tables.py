"""The tables of the agreement plan: one setting in all, seeds of their own, and arms that differ as they say."""

from itertools import product
from pathlib import Path

import pytest
import yaml

from fedmed.jobs.app_configs import files
from research.runner.chain import Place
from research.runner.experiment_data import load_data
from research.runner.experiment_table import load_table
from research.runner.judgement import judge
from research.runner.score_table import score_frame
from research.runner.table_claim import Evidence

EXPERIMENTS = Path(__file__).resolve().parents[2] / "research/experiments"
TABLES = {"demo": ["ct_demo"], "mean": ["ct_demo"]} | dict.fromkeys(
    ("in_turn", "aligned", "parts", "strong_views"), ["institutions", "lidc_long"]
)
SETTINGS = ("agree", "flips", "learned", "everywhere", "strong", "balance", "teacher", "augmentation")
DEVELOPED_ON = {0, 1, 2}  # seeds


def table(name):
    return load_table(EXPERIMENTS / f"agreement_{name}.yaml")


def studies(name, data):
    """Arm -> its study, with the sites of the data."""
    read, on = table(name), load_data(EXPERIMENTS / "data" / f"{data}.yaml")
    read.check_data(on)
    return {arm.name: arm.links[0].job_of(Place(arm.name, 10, on, read.test, Path("nowhere"))) for arm in read.arms}


@pytest.mark.parametrize(("name", "data"), [(name, data) for name, all_ in TABLES.items() for data in all_])
def test_every_arm_is_a_job_that_the_bundle_accepts(name, data):
    made = studies(name, data)
    assert all(files(job) for job in made.values())
    assert {job.study.validate_every for job in made.values()} == {1}, "labelled sites report what they validate"
    arms = {arm: job.study.model_dump_json() for arm, job in made.items()}
    assert len(set(arms.values())) == len(arms), "two arms would be one run"


def test_the_setting_that_development_chose_is_the_same_in_all_tables():
    def chosen(study):
        own = {key: study.overrides["unsupervised"][key] for key in SETTINGS}
        return yaml.safe_dump({"method": study.method.model_dump(), "algorithm": study.algorithm, "settings": own})

    found = {
        chosen(job.study)
        for name, all_ in TABLES.items()
        if name not in ("mean", "aligned")  # of other attempts
        for arm, job in studies(name, all_[0]).items()
        if arm.split(": ")[-1] in ("agreement", "agreement, strong views")
    }
    assert len(found) == 1


def test_nothing_is_confirmed_with_seeds_that_it_was_developed_on():
    assert not any(DEVELOPED_ON & set(table(name).seeds) for name in TABLES)


@pytest.mark.parametrize("name", ["demo", "parts"])
def test_each_part_differs_from_the_method_in_what_it_names(name):
    made = studies(name, TABLES[name][0])
    whole = made["agreement"].study

    def changed(arm):
        study = made[arm].study
        args = {k for k, v in study.method.args.items() if v != whole.method.args[k]}
        own, all_ = study.overrides["unsupervised"], whole.overrides["unsupervised"]
        algorithm = {"algorithm"} - ({"algorithm"} if study.algorithm == whole.algorithm else set())
        like = {"method": whole.method, "overrides": whole.overrides, "algorithm": whole.algorithm}
        same = study.model_copy(update=like) == whole
        return same and args | algorithm | {key for key in own if own[key] != all_[key]}

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
    asked = {value.name for value in made["amplitude normalisation"].method.values()}
    for site in ("ct_north", "ct_south", "ct_east"):
        facts = yaml.safe_load((EXPERIMENTS.parents[1] / "site_configs" / "demo" / f"{site}.yaml").read_text())
        assert asked <= set(facts["privacy"]["allowed_extras"])


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


def verdicts(name, gains):
    """Claim -> verdict, where these arms are so much above the others everywhere."""
    read, rows, judged = table(name), [], "selected" if name == "mean" else "last"
    for arm, seed, site in product(read.arms, read.seeds, read.test):
        gain = gains.get(arm.name.split(": ")[-1], 0.0)
        keys = {"arm": arm.name, "seed": seed, "site": site, "list": "test", "model": judged, "metric": "dice"}
        rows += [{**keys, "unit": f"case_{n}", "value": 0.3 + 0.01 * n + gain + 1e-4 * (n % 3)} for n in range(20)]
    evidence = Evidence(score_frame(rows), read.scores, {site: site for site in read.test})
    return {one.claim.id: str(one.verdict) for one in judge(read.claims, evidence)}


@pytest.mark.parametrize("name", TABLES)
def test_all_claims_can_be_judged(name):
    gains = {"agreement": 0.04, "agreement, strong views": 0.06, "left out, strong views": 0.01, "all labelled": 0.07}
    good = verdicts(name, gains)
    assert set(good.values()) - {"✓"} <= {"reported", "n.s."} and "not run" not in good.values()
    assert {v for k, v in good.items() if "gain" in k or "no harm" in k or "distance" in k} <= {"✓", "reported"}
    bad = verdicts(name, {"agreement": -0.04, "agreement, strong views": -0.04})
    assert {v for k, v in bad.items() if "gain" in k or "no harm" in k or "part" in k} <= {"✗"}
