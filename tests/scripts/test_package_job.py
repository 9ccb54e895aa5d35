"""The command that writes a job from a study."""

import pytest

from fedmed.jobs.job_folder import read_job
from fedmed.methods.declarations import Exchanged
from fedmed.methods.find_method import installed
from tests.commands import fedmed
from tests.shipped import JOBS, shipped

STUDY = """\
# A comment at the top.
name: study
bundle: covid_ct_segmentation  # which network
method: {path: fedmed.systems.covid_fssl.method.Consistency}
sites:
  a: supervised
  b: unsupervised
  c: evaluate
# how long
rounds: 50
steps: 400
user_weights:
  b: 0.5
# the end
"""
PRETRAINING = """\
name: study
bundle: cxr_classification
method: {path: fedmed.systems.fedmoco.method.FedMoCo}
sites: {a: unsupervised, b: unsupervised}
rounds: 200
epochs: 1
select: last
evaluate: false
"""


@pytest.fixture
def package(capsys, tmp_path):
    """Return a function that runs the script in this process with a study: exit code, and what it says of errors."""
    script = fedmed("study", "package")

    def package(text, folder, *settings):
        (tmp_path / "study.yaml").write_text(text)
        options = [part for setting in settings for part in ("--set", setting)]
        code = script([str(tmp_path / "study.yaml"), str(folder), *options])
        return code, capsys.readouterr().err

    return package


def test_one_command_writes_the_papers_job_for_own_sites(package, tmp_path):
    settings = ["overrides.unsupervised.confidence=8e-1", "overrides.supervised.batch_size=2"]
    code, said = package(STUDY, tmp_path / "study", *settings)
    assert code == 0, said
    job = read_job(tmp_path / "study")
    assert job.name == "study" and job.study.sites == {"a": "supervised", "b": "unsupervised", "c": "evaluate"}
    assert job.rule["args"]["user_weights"] == {"b": 0.5}
    assert job.overrides(job.role("b")) == {"confidence": 0.8}
    assert job.overlays(job.role("b")) == ["unlabelled", "consistency"]
    assert job.overrides(job.role("a")) == {"batch_size": 2}


def test_without_settings_the_study_is_carried_byte_for_byte_and_with_them_its_comments_stay(package, tmp_path):
    assert package(STUDY, tmp_path / "plain")[0] == 0
    for app in ("app_server", "app_supervised", "app_unsupervised", "app_evaluate"):
        assert (tmp_path / "plain" / app / "config/study.yaml").read_text() == STUDY
    assert package(STUDY, tmp_path / "changed", "rounds=3", "user_weights.b=2", "seed=7")[0] == 0
    text = (tmp_path / "changed/app_server/config/study.yaml").read_text()
    expected = STUDY.replace("rounds: 50", "rounds: 3").replace("user_weights:\n  b: 0.5", "user_weights: {b: 2}")
    assert text == expected + "seed: 7\n"


def test_what_sites_must_allow_is_said_with_the_line(tmp_path, capsys):
    agreement = STUDY.replace("covid_fssl.method.Consistency", "agreement.method.Agreement")
    agreement = agreement.replace("user_weights:\n  b: 0.5\n", "")
    agreement += "warm_start: {rounds: 6}\n"
    line = "    privacy: {allowed_extras: [agreed_share, mean_scores]}\n"
    other = "    privacy: {allowed_extras: [mu, n, rsa, sigma]}\n"
    for text, lines in ((agreement, [line]), (STUDY, []), (PRETRAINING, [other])):
        (tmp_path / "study.yaml").write_text(text)
        assert fedmed("study", "package")([str(tmp_path / "study.yaml"), str(tmp_path / "job"), "--replace"]) == 0
        assert [said for said in capsys.readouterr().out.splitlines(True) if "privacy:" in said] == lines


def test_a_misspelt_bundle_is_told_once_with_what_was_meant(package, tmp_path):
    code, said = package(STUDY.replace("covid_ct_segmentation", "covid_ct_segmentaton"), tmp_path / "job")
    assert code == 2 and said.count("not found") == 1 and "did you mean 'covid_ct_segmentation'?" in said


def test_one_command_writes_fedmoco_for_own_sites(package, tmp_path):
    code, said = package(PRETRAINING, tmp_path / "study", "method.args.exchange_from=60")
    assert code == 0, said
    job = read_job(tmp_path / "study")
    assert job.exchange == Exchanged(("mu", "sigma", "n"), 60)
    assert job.short_rule["args"]["weighting"]["name"] == "rsa"
    texts = {path.name: path.read_text() for path in (tmp_path / "study").rglob("config_fed_*.json")}
    assert all(word in texts["config_fed_client.json"] for word in ("executors.ContrastiveExecutor", '"metadata"'))
    assert "SelfAdaptiveAggregator" in texts["config_fed_server.json"]


def test_a_job_for_sites_without_custom_code_differs_by_nothing_but_the_folders(package, tmp_path):
    assert package(STUDY, tmp_path / "with" / "study")[0] == 0
    assert package(STUDY, tmp_path / "without" / "study", "custom=false")[0] == 0
    files = {
        kind: {path.relative_to(tmp_path / kind): path.read_text() for path in (tmp_path / kind).rglob("*.*")}
        for kind in ("with", "without")
    }
    for path, text in files["without"].items():
        assert text.removesuffix("custom: false\n") == files["with"][path]
    assert len(files["with"]) == len(files["without"]) + 4 and not list((tmp_path / "without").rglob("custom"))


@pytest.mark.parametrize("size", ["small", "paper"])
@pytest.mark.parametrize("method", [*installed(), "fedmed.systems.fedmoco.method.FedMoCo"])
def test_a_commented_study_of_every_method_becomes_a_job(package, tmp_path, capsys, method, size):
    assert fedmed("study", "init")([method, "--size", size]) == 0
    text = capsys.readouterr().out
    assert text.count("#") > 30 and "# federated rounds\nrounds:" in text
    code, said = package(text, tmp_path / "job")
    assert code == 0, said
    job = read_job(tmp_path / "job")
    assert job.method.spec()["path"].startswith(("fedmed.systems.", "fedmed.methods."))
    sizes = set(job.study.overlays) - {"single_frame"}  # a network of another kind, of any size
    assert bool(sizes) == (size == "small"), "the bundle itself has the paper's size"


@pytest.mark.parametrize(("size", "start"), [("small", 5), ("paper", 50)])
def test_fedmoco_s_study_exchanges_statistics_within_its_rounds_or_is_refused(package, tmp_path, capsys, size, start):
    assert fedmed("study", "init")(["fedmoco", "--size", size]) == 0
    text = capsys.readouterr().out
    assert package(text, tmp_path / "job")[0] == 0
    assert read_job(tmp_path / "job").exchange.first_round == start
    code, said = package(text, tmp_path / "short", "rounds=3")
    assert code == 2 and f"'method.args.exchange_from' is {start}" in said and "give at most 2" in said


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["sites={a: boss}"], "'sites.a' is 'boss'; it must be 'supervised', 'unsupervised' or 'evaluate'"),
        (["overrides.supervised.bundle_root=/etc"], "'bundle_root'"),
        (["sharing=half"], "sharing group 'half'"),
        (["x"], "'x' is not KEY=VALUE"),
        (["rounds.x=1"], "50 does not hold 'key: value' lines"),
        (["colour=red", "rounds=0"], "2 mistakes"),
    ],
)
def test_mistakes_are_told_and_leave_nothing(package, tmp_path, settings, message):
    code, said = package(STUDY, tmp_path / "job", *settings)
    assert code == 2 and said.startswith("error: ") and message in said
    assert not (tmp_path / "job").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["package", "{tmp}/no.yaml", "{tmp}/job"], "no.yaml is not there"),
        (["package", "{tmp}", "{tmp}/job"], "{tmp} is a folder that holds no job (meta.json is missing)"),
        (["package", "{job}/meta.json", "{tmp}/job"], "give the job's folder, {job}"),
        (["init", "fedmocco"], "'fedmocco' is unknown; there are agreement, consistency, "),
        (["init", "os.system"], "a job may not name the class"),
    ],
)
def test_what_is_no_study_and_no_method_is_told(tmp_path, capsys, arguments, message):
    places = {"tmp": tmp_path, "job": JOBS / "covid_fssl"}
    assert fedmed("study")([argument.format(**places) for argument in arguments]) == 2
    assert message.format(**places) in capsys.readouterr().err and not (tmp_path / "job").exists()


def test_an_algorithm_is_added_to_any_study(tmp_path, capsys):
    (tmp_path / "study.yaml").write_text(STUDY)
    main, options = fedmed("study", "package"), [str(tmp_path / "study.yaml"), str(tmp_path / "job")]
    assert main([*options, "--algorithm", "fedprox"]) == 0
    job = read_job(tmp_path / "job")
    assert job.overlays(job.role("b")) == ["unlabelled", "consistency", "fedprox"]
    assert job.text.startswith("# A comment at the top.") and "algorithm: fedprox" in job.text
    assert main([*options, "--replace", "--algorithm", "fedyn"]) == 2
    assert "algorithm 'fedyn' is unknown; did you mean 'feddyn'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "line", "setting"),
    [
        ("cxr_finetune", ["--set", "server_step=adamw"], ("server_step", "adamw")),
        ("tools_paper", ["--algorithm", "feddyn", "--set", "name=dynamic"], ("algorithm", "feddyn")),
    ],
)
def test_any_job_of_fedmed_gets_an_algorithm_or_an_optimizer_by_one_line(name, line, setting, tmp_path):
    """All else stays as it was, comments included, and the job itself too."""
    main, key = fedmed("study", "package"), setting[0]
    before = read_job(shipped(name)).text
    assert main([str(shipped(name)), str(tmp_path / "job"), *line]) == 0
    made, old = read_job(tmp_path / "job"), read_job(shipped(name))
    assert (getattr(made.study, key), getattr(old.study, key)) == (setting[1], None)
    same = {key: None, "name": old.study.name}
    assert made.study.model_copy(update=same) == old.study and old.text == before
    assert set(made.text.splitlines()) - set(before.splitlines()) <= {": ".join(setting), "name: dynamic"}


def test_an_algorithm_takes_the_place_of_that_of_a_job(tmp_path):
    main = fedmed("study", "package")
    assert main([str(shipped("tools_fedprox")), str(tmp_path / "job"), "--algorithm", "feddyn"]) == 0
    job = read_job(tmp_path / "job")
    assert job.study.algorithm == "feddyn" and "fedprox" not in job.overlays(job.role("lap_cho1"))
