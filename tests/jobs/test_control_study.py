"""Controls of a study: the same, in which the sites that train without labels are left out, or learn nothing."""

import pytest

from fedmed.errors import JobError
from fedmed.jobs.app_configs import files
from fedmed.jobs.control_study import control_job, kinds_for, left_out
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import read_job, write_job
from fedmed.methods.control_kinds import ADAPTED, LEFT_OUT, SILENT, kind_of_control

TEXT = """\
name: study
bundle: covid_ct_segmentation
overlays: [demo]  # small
method: {path: fedmed.systems.covid_fssl.method.Consistency}
sites:
  a: supervised   # with masks
  b: unsupervised
  c: evaluate
  d: unsupervised
rounds: 4
steps: 2
warm_start: {rounds: 1}  # alone first
min_clients: 3
user_weights: {b: 2, d: 3}
overrides: {unsupervised: {confidence: 0.9}}
seed: 5
"""


def job(text=TEXT):
    return Job.parse(text)


def without(*lines, text=TEXT):
    """The study without some of its lines."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.lstrip().startswith(lines))


def test_sites_without_labels_are_only_scored_and_all_else_is_equal():
    study = job().study
    result = left_out(study)
    assert result.sites == {"a": "supervised", "b": "evaluate", "c": "evaluate", "d": "evaluate"}
    assert result.min_clients == 1
    assert result.model_dump(exclude={"sites", "min_clients"}) == study.model_dump(exclude={"sites", "min_clients"})
    assert study.sites["b"] == "unsupervised"


def test_sites_that_are_only_scored_see_images_at_the_scale_that_they_had():
    coarse = "overrides: {supervised: {pixdim: [8, 8, 16]}, unsupervised: {pixdim: [8, 8, 16], batch_size: 1}"
    text = without("overrides") + coarse
    for scored in ("}\n", ", evaluate: {window_batch: 2, pixdim: [8, 8, 16]}}\n"):
        result = control_job(job((text + scored).replace("  c: evaluate\n", "")))
        assert result.study.overrides["evaluate"]["pixdim"] == [8, 8, 16]
        assert "batch_size" not in result.study.overrides["evaluate"]
        assert files(result), "and the bundle accepts it"


@pytest.mark.parametrize("kind", [LEFT_OUT, SILENT, ADAPTED])
def test_what_the_run_itself_has_found_out_is_not_asked_for_again(kind):
    run = job(f"{TEXT}adaptation: intensity\ngain: true\nfingerprint: true\n")
    control = control_job(run, kind=kind)
    assert (run.study.gain, control.study.gain) == (True, False)
    assert "fingerprint" in run.extras and "fingerprint" not in control.extras


def test_a_site_without_a_test_list_is_taken_out_altogether():
    result = left_out(job().study, unscored=["d", "c", "a"])  # the others have their work in any case
    assert result.sites == {"a": "supervised", "b": "evaluate", "c": "evaluate"}
    assert result.user_weights == {"b": 2}


def test_min_clients_that_the_labelled_sites_can_meet_stays():
    assert left_out(job(without("min_clients")).study).min_clients is None
    assert left_out(job(TEXT.replace("min_clients: 3", "min_clients: 1")).study).min_clients == 1


def test_the_job_has_a_name_of_its_own_and_the_comments_of_the_study(tmp_path):
    control = control_job(job(), unscored=["d"])
    assert control.name == "study control"
    assert "overlays: [demo]  # small" in control.text and "# alone first" in control.text
    assert control.role("b") == "evaluate" and control.study.user_weights == {"b": 2}
    for role in ("supervised", "evaluate"):
        assert (control.overlays(role), control.overrides(role)) == (job().overlays(role), job().overrides(role))
    assert read_job(write_job(control, tmp_path / "job")).study == control.study


def test_in_a_silent_control_they_take_part_and_learn_nothing(tmp_path):
    control = control_job(job(), unscored=["d"], kind=SILENT)
    assert control.name == "study silent control" and "overlays: [demo]  # small" in control.text
    assert control.study.overrides["unsupervised"] == {"confidence": 0.9, "learning_rate": 0.0}
    changed = {"name", "overrides"}
    assert control.study.model_dump(exclude=changed) == job().study.model_dump(exclude=changed)
    assert read_job(write_job(control, tmp_path / "job")).study == control.study


@pytest.mark.parametrize(
    "said", ["adaptation: intensity  # own", "adaptation: [colour, statistics]", "algorithm: gamma_matching"]
)
def test_of_an_adaptation_that_of_the_run_alone_is_left_in_one_control(said):
    adapting = job(f"{TEXT}{said}\n")
    assert kinds_for(adapting) == (LEFT_OUT, ADAPTED) and kinds_for(adapting, SILENT) == (SILENT,)
    kept = control_job(adapting, kind=ADAPTED)
    assert kept.name == "study adapted control" and said in kept.text
    assert kept.method.spec() == adapting.method.spec()
    assert kept.study.overrides["unsupervised"] == {"confidence": 0.9, "learning_rate": 0.0}
    assert kept.study.sites == adapting.study.sites
    for kind in (LEFT_OUT, SILENT):
        dropped = control_job(adapting, kind=kind)
        plain = control_job(job(), kind=kind)
        assert dropped.study == plain.study and dropped.rule == plain.rule
        assert not dropped.study.adapts and "gamma_matching" not in dropped.text


@pytest.mark.parametrize(
    ("args", "more", "alone"),
    [
        ("", "", True),
        (", args: {combine: average}", "", False),
        ("", "select: mean\n", False),
        ("", "buffers: {unsupervised: local}\n", False),
        ("", "sharing: {unsupervised: no_last_upsampling}\n", False),
    ],
)
def test_where_silent_sites_would_change_nothing_the_control_that_adapts_trains_as_the_other(args, more, alone):
    text = without("user_weights").replace("covid_fssl.method.Consistency", f"agreement.method.Agreement{args}")
    control = control_job(job(f"{text}adaptation: intensity\n{more}"), kind=ADAPTED)
    assert control.study.warm_start.rounds == (4 if alone else 1)
    assert control.study.participants(3) == (["a"] if alone else ["a", "b", "d"])


def test_an_algorithm_beside_an_adaptation_stays():
    for kind in (LEFT_OUT, SILENT, ADAPTED):
        both = job(f"{TEXT}adaptation: intensity\nalgorithm: fedprox\n")
        assert control_job(both, kind=kind).study.algorithm == "fedprox"


def test_without_an_adaptation_there_is_no_control_that_adapts():
    assert kinds_for(job()) == (LEFT_OUT,)
    with pytest.raises(JobError, match="study has no control that adapts: its study has no 'adaptation'"):
        control_job(job(), kind=ADAPTED)


@pytest.mark.parametrize(
    ("buffers", "settings"),
    [
        ("", {"learning_rate": 0.0, "statistics_momentum": 0.0}),
        ("buffers: {unsupervised: local}\n", {"learning_rate": 0.0}),
    ],
)
def test_a_method_names_the_settings_with_which_its_sites_learn_nothing(buffers, settings):
    """Statistics that stay at home are taken in a silent control too."""
    text = (
        "name: phases\nbundle: surgical_phases\noverlays: [demo]\nmethod: {path: fedmed.systems.fedcy.method.FedCy}\n"
        f"sites: {{a: supervised, b: unsupervised}}\nrounds: 1\nsteps: 1\n{buffers}"
    )
    assert control_job(job(text), kind=SILENT).study.overrides["unsupervised"] == settings


@pytest.mark.parametrize("kind", [LEFT_OUT, SILENT, ADAPTED])
def test_a_long_name_stays_a_name_and_tells_the_kind(kind):
    text = TEXT.replace("name: study", f"name: {'n' * 200}") + "adaptation: intensity\n"
    name = control_job(job(text), kind=kind).name
    assert len(name) == 200 and kind_of_control(name) == kind


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (without("b:", "d:", "min_clients", "user_weights"), "none of its sites trains without labels"),
        (without("a:", "warm_start", "min_clients") + "select: last\n", "no site has labels"),
        (TEXT + "resume: {job: first}\n", "it continues the job 'first'"),
        (TEXT + "evaluate: false\n", "'evaluate' is false"),
        (
            "name: moco\nbundle: cxr_moco_pretraining\n"
            "method: {path: fedmed.systems.fedmoco.method.FedMoCo, args: {exchange_from: 0}}\n"
            "sites: {a: unsupervised, b: unsupervised}\nrounds: 1\nsteps: 1\nselect: last\nevaluate: false\n",
            "no site has labels",
        ),
    ],
)
def test_a_study_without_a_control_says_why(text, says):
    for kind in (LEFT_OUT, SILENT):
        with pytest.raises(JobError, match="has no control") as error:
            control_job(job(text), kind=kind)
        assert says in str(error.value)


def test_a_method_that_needs_its_unlabelled_sites_says_so(monkeypatch):
    from dataclasses import replace

    from fedmed.systems.covid_fssl import method as consistency

    needed = replace(consistency.UNLABELLED, least=1)
    monkeypatch.setattr(consistency, "UNLABELLED", needed)
    with pytest.raises(JobError, match="has no control: it cannot run without its unlabelled sites") as error:
        control_job(job())
    assert "needs at least 1 site with the role 'unsupervised'" in str(error.value)
