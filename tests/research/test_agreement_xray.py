"""The table of agreement on X-rays: every arm is a job, one setting is that of the job, parts differ as they say."""

from functools import cache
from itertools import product

import numpy as np
import pytest
import yaml

from fedmed.bundles.bundle import Bundle
from fedmed.jobs.job_folder import read_job
from research.runner.score_table import joined, score_frame
from research.runner.table_claim import Evidence

from .shipped_tables import EXPERIMENTS, check_runs, data_of, differences, place_of, table_of, verdicts

TABLE = table_of("agreement_xray")
DATA = ["cxr_agreement_demo", "cxr_agreement_real"]


@cache
def jobs(name):
    """(arm, turn) -> its job."""
    data, made = data_of(name), {}
    TABLE.check_data(data)
    for arm, (turn, on) in product(TABLE.arms, enumerate(data.turns())):
        made[arm.name, turn] = arm.stages[0].among(on).job_of(place_of(arm.name, on, list(on.sites), 10))
    return made


@pytest.mark.parametrize("name", DATA)
def test_every_arm_is_a_job_that_the_bundle_accepts(name):
    made = jobs(name)
    for turn in {turn for _, turn in made}:
        check_runs({arm: [job] for (arm, at), job in made.items() if at == turn})
    assert {job.study.validate_every for job in made.values()} == {1}, "labelled sites report what they validate"


@pytest.mark.parametrize("name", DATA)
def test_one_hospital_has_labels_and_all_are_tested(name):
    for (arm, turn), job in jobs(name).items():
        everyone = data_of(name).turns()[turn].sites
        labelled = list(everyone.values()) if arm == "all labelled" else [everyone["labelled"]]
        assert sorted(job.study.of_role("supervised")) == sorted(labelled)
        assert set(job.study.sites) == set(everyone.values()) and job.study.evaluate and job.study.evaluate_last
        assert bool(job.study.of_role("unsupervised")) == (arm not in ("left out", "all labelled"))


def test_the_setting_is_that_of_the_job_and_the_budget_that_of_the_plan():
    """The job's warm start is longer since, and statistics stay at home; the scores of the table are of neither."""
    job = read_job(EXPERIMENTS.parents[1] / "studies" / "cxr_agreement.yaml")
    made = jobs("cxr_agreement_demo")["agreement", 0]
    same_hospitals = {site.removesuffix("_tested"): role for site, role in made.study.sites.items()}
    assert made.method == job.method and same_hospitals == dict(job.study.sites)
    for key in ("bundle", "overlays", "algorithm"):
        assert getattr(made.study, key) == getattr(job.study, key)
    assert (made.study.rounds, made.study.steps, made.study.warm_start.rounds) == (12, 30, 6)
    assert (made.study.buffers, made.study.select) == ("average", "best")
    assert job.study.warm_start.rounds > 6 and job.study.buffers == {"unsupervised": "local"}
    of_the_bundle = Bundle(job.study.bundle, ["demo", *job.method.roles()["unsupervised"].overlays]).parser()
    settings = made.study.overrides["unsupervised"]
    assert {key: of_the_bundle[key] for key in settings} == settings


def test_each_part_differs_from_the_method_in_what_it_names():
    made = {arm: job.study for (arm, _), job in jobs("cxr_agreement_demo").items()}
    whole = made["agreement"]

    def changed(arm):
        return differences(made[arm], whole)

    assert changed("silent") == {"learning_rate"} and changed("without the gate") == {"gate"}
    assert changed("no strong views") == {"strong"} and changed("nobody judges") == {"careful"}
    assert changed("mean teacher without agreement") == {"agree", "teacher"}
    assert changed("plain average") == {"combine"} and changed("with gamma matching") == {"algorithm"}
    assert made["with gamma matching"].algorithm == "gamma_matching"


def test_hospitals_may_send_what_the_method_asks_for():
    for (_, _), job in jobs("cxr_agreement_demo").items():
        for site in job.study.sites:
            facts = yaml.safe_load((EXPERIMENTS.parents[1] / "site_configs" / "demo" / f"{site}.yaml").read_text())
            assert {value.name for value in job.method.values()} <= set(facts["privacy"]["allowed_extras"])
    allowed = data_of("cxr_agreement_real").privacy["allowed_extras"]
    assert all({value.name for value in job.method.values()} <= set(allowed) for job in jobs(DATA[1]).values())


def judged(errors):
    """Claim -> verdict, where probabilities of these arms are so noisy at hospitals without labels."""
    frames, truth = [], np.array([0, 1] * 40)
    for arm, seed, (site, at) in product(TABLE.arms, TABLE.seeds, (("a", "internal"), ("b", "external"))):
        noise = np.random.default_rng([seed, len(arm.name), at == "internal"]).normal(0, 1, 80)
        error = errors.get(arm.name, 1.5) if at == "external" else 0.1
        p = 1 / (1 + np.exp(-(truth * 2 - 1 + error * noise)))
        rows = {
            "unit": [f"image_{i}" for i in range(80)] * 2,
            "metric": ["p_no"] * 80 + ["p_yes"] * 80,
            "value": [*(1 - p), *p],
            "label": [("no", "yes")[i] for i in truth] * 2,
        }
        keys = {"site": site, "task": site, "list": at, "model": "last", "protocol": "labels of a"}
        frames.append(score_frame(rows, arm=arm.name, seed=seed, **keys))
    return verdicts(TABLE, Evidence(joined(frames), TABLE.scores, {}))


def test_all_claims_can_be_judged():
    good = judged({"agreement": 0.3, "with gamma matching": 0.1, "all labelled": 0.1, "left out": 2.5})
    assert set(good.values()) <= {"✓", "n.s."} and {good[k] for k in ("gain", "no harm", "labelled hospital")} == {"✓"}
    assert all(good[key] == "✓" for key in good if key.startswith("part") and "gamma" not in key)
    bad = judged({"agreement": 4.0, "all labelled": 0.1, "with gamma matching": 0.1})
    assert bad["gain"] == bad["no harm"] == "✗" and bad["labelled hospital"] == "✓"
    assert bad["part: with gamma matching"] == bad["to gain"] == "✓"
