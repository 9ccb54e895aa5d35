"""The command that writes a job."""

import pytest

from fedmed.jobs.job_folder import read_job


@pytest.fixture
def package(capsys, load_script):
    """Return a function that runs the script in this process: exit code and what it says."""
    script = load_script("package_job")

    def package(*arguments):
        code = script.main([str(argument) for argument in arguments])
        return code, capsys.readouterr().err

    return package


def test_one_command_writes_the_papers_job_for_own_sites(package, tmp_path):
    options = ["--sites", "a:supervised", "b:unsupervised:0.5", "c:evaluate", "--rounds", "50"]
    code, said = package(tmp_path / "study", *options, "--set", "unsupervised.confidence=8e-1", "batch_size=2")
    assert code == 0, said
    job = read_job(tmp_path / "study")
    assert job.name == "study" and job.controller["sites"] == {"a": "supervised", "b": "unsupervised", "c": "evaluate"}
    assert job.aggregator["user_weights"] == {"b": 0.5}
    assert job.clients["b"]["overrides"] == {"confidence": 0.8, "batch_size": 2}
    assert job.clients["a"]["overrides"] == {"batch_size": 2} and job.clients["b"]["overlays"] == ["consistency"]


def test_one_command_writes_fedmoco_for_own_sites(package, tmp_path):
    options = ["--sites", "a:unsupervised", "b:unsupervised", "--bundle", "cxr_classification", "--overlay", "pretrain"]
    options += ["--method", "contrastive", "--rounds", "200", "--epochs", "1", "--weighting", "self_adaptive"]
    code, said = package(tmp_path / "study", *options, "--exchange-from", "50", "--select", "last", "--no-evaluate")
    assert code == 0, said
    job = read_job(tmp_path / "study")
    assert job.controller["exchange"] == {"from_round": 50, "names": ["mu", "sigma", "n"]}
    assert (job.controller["select"], job.controller["evaluate"], job.controller["epochs"]) == ("last", False, 1)
    assert "steps" not in job.controller and job.aggregator["weighting"] == "self_adaptive"
    assert job.persistor["overlays"] == job.clients["a"]["overlays"] == ["pretrain"]
    texts = {path.name: path.read_text() for path in (tmp_path / "study").rglob("config_fed_*.json")}
    assert "executors.ContrastiveExecutor" in texts["config_fed_client.json"]
    assert (
        '"metadata"' in texts["config_fed_client.json"] and "SelfAdaptiveAggregator" in texts["config_fed_server.json"]
    )


def test_a_job_may_start_from_a_part_of_a_checkpoint(package, tmp_path):
    options = ["--sites", "a:supervised", "--bundle", "cxr_classification", "--overlay", "linear", "--epochs", "50"]
    code, said = package(
        tmp_path / "study", *options, "--checkpoint", "encoder.pt", "--checkpoint-tensor", r"^encoder\."
    )
    assert code == 0, said
    persistor = read_job(tmp_path / "study").persistor
    assert (persistor["checkpoint"], persistor["checkpoint_tensors"]) == ("encoder.pt", [r"^encoder\."])


def test_a_job_for_sites_without_custom_code_differs_by_nothing_but_the_folders(package, tmp_path):
    options = ["--sites", "a:supervised", "b:unsupervised"]
    assert package(tmp_path / "with" / "study", *options)[0] == 0
    assert package(tmp_path / "without" / "study", *options, "--no-custom")[0] == 0
    files = {
        kind: {path.relative_to(tmp_path / kind): path.read_text() for path in (tmp_path / kind).rglob("*.*")}
        for kind in ("with", "without")
    }
    assert files["without"] == {path: text for path, text in files["with"].items() if "custom" not in path.parts}
    assert len(files["with"]) == len(files["without"]) + 3 and not list((tmp_path / "without").rglob("custom"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sites", "a"], "'a' is not a new SITE:ROLE"),
        (["--sites", "a:supervised:much"], "weight in 'a:supervised:much'"),
        (["--sites", "a:unsupervised"], "no site is 'supervised'"),
        (["--sites", "a:supervised", "--set", "bundle_root=/etc"], "'bundle_root'"),
        (["--sites", "a:supervised", "--overlay", "nothing"], "no overlay 'nothing'"),
        (["--sites", "a:supervised", "--sharing", "half"], "sharing group 'half'"),
        (["--sites", "a:supervised", "--set", "x"], "'x' is not ID=VALUE"),
        (["--sites", "a:supervised", "--steps", "3", "--epochs", "1"], "either 'steps' or 'epochs'"),
        (["--sites", "a:supervised", "--floor", "0.1"], "'floor' is for weighting 'self_adaptive'"),
        (["--sites", "a:supervised", "--checkpoint-tensor", "^encoder"], "name that too"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(package, tmp_path, options, message):
    code, said = package(tmp_path / "study", *options)
    assert code == 2 and said.startswith("error: ") and message in said
    assert not (tmp_path / "study").exists()
