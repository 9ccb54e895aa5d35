"""Warm starts that runs have in common: trained once, and the same to the last bit."""

import shutil

import pytest
import yaml

from fedmed.federation.client import Client
from fedmed.federation.warm_starts import FOLDER
from research.runner.experiment_data import load_data
from research.runner.federated_training import FederatedTraining
from research.runner.stages import Place
from tests.research.test_job_step import DATA, SMALL

BOTH = {"site_1": "supervised", "site_2": "unsupervised"}
BUDGET = {"steps": 3, "warm_start": 2, "interval": 1, "validate": 1}
TELLS = {"adaptation": "intensity"}  # labelled sites then tell others of their intensities
UNSCORED = {"evaluate": False}  # scoring takes half of a run


FAST = {"overrides": {"unsupervised": {**SMALL, "unsupervised_learning_rate": 0.01}}}


def runner(home, rounds, patch):
    """Return a function: folder, settings of an arm -> its scores, and the rounds that sites trained for them."""
    (home / "tiny.yaml").write_text(yaml.safe_dump({**DATA, "budget": BUDGET}))
    data, train = load_data(home / "tiny.yaml"), Client.train

    def counted(self, task):
        rounds.append((self.site.site, task.round))
        return train(self, task)

    patch.setattr(Client, "train", counted)

    def run(folder, **settings):
        rounds.clear()
        place = Place("arm", settings.pop("seed", 0), data, ["site_1", "site_2"], home / folder)
        (step,) = FederatedTraining(train=BOTH, **settings).steps(place, None)
        step.make()
        scores = step.scores()
        return scores if scores is None else scores.drop(columns=["run"], errors="ignore"), list(rounds)

    return run


@pytest.fixture(scope="module", autouse=True)
def _telling_sites(tiny_site_configs, tmp_path_factory):
    """Sites that may tell others of their intensities: settings of a site are part of what a round depends on."""
    folder = tmp_path_factory.mktemp("telling")
    for path in tiny_site_configs.glob("ct_*.yaml"):
        values = yaml.safe_load(path.read_text()) | {"privacy": {"allowed_extras": ["intensity_shares"]}}
        (folder / path.name).write_text(yaml.safe_dump(values))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDMED_SITE_CONFIGS", str(folder))
        yield


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """``runner`` in the folder of a test."""
    return runner(tmp_path, [], monkeypatch)


def share(tmp_path):
    (tmp_path / "shared" / FOLDER).mkdir(parents=True)
    return tmp_path / "shared" / FOLDER


@pytest.fixture(scope="module")
def _before(tmp_path_factory):
    home = tmp_path_factory.mktemp("before")
    share(home)
    with pytest.MonkeyPatch.context() as patch:
        run = runner(home, [], patch)
        return home, run("alone", **FAST), run("shared", job={**TELLS, **UNSCORED})[1]


@pytest.fixture
def before(_before, tmp_path):
    """Scores and rounds of a fast arm that trained alone, and the rounds of another one whose labelled site tells the
    other one something; what that one has left to share lies in the folder of the test."""
    home, alone, first = _before
    shutil.copytree(home / "shared", tmp_path / "shared")
    return alone, first


def test_the_second_arm_trains_only_what_differs_and_has_the_same_scores(before, trained, tmp_path):
    """What labelled sites of the first arm told others changed nothing of their rounds."""
    (alone, everything), first = before
    scores, second = trained("shared", **FAST)
    assert first == everything and ("ct_north", 0) in first
    assert second == [each for each in everything if each[1] >= 2]
    assert scores.equals(alone)
    whole = {"supervised": SMALL, "evaluate": SMALL}
    left_out = trained("shared", control="left_out", overrides=whole, job={**TELLS, **UNSCORED})[1]
    assert left_out and not any(round < 2 for _, round in left_out)  # fewer sites, the same start
    shutil.rmtree(tmp_path / "shared" / FOLDER)  # nothing of a finished run lies there alone
    assert trained("shared", **FAST)[1] == []


@pytest.mark.slow
def test_another_seed_and_other_settings_of_labelled_sites_are_trained(trained, tmp_path):
    share(tmp_path)
    _, first = trained("shared")
    for other in ({"seed": 1}, {"overrides": {"supervised": {**SMALL, "learning_rate": 0.01}}}):
        assert trained("shared", **other)[1] == first, other


def test_a_damaged_round_is_trained_and_so_is_half_a_folder(before, trained, tmp_path):
    (alone, _), first = before
    kept = tmp_path / "shared" / FOLDER
    for path in kept.rglob("state.pt"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 255
        path.write_bytes(content)
    scores, second = trained("shared", **FAST)
    assert second == first and scores.equals(alone)
    for answer in kept.rglob("update.pt"):
        answer.unlink()
    half = {"unsupervised": {**SMALL, "unsupervised_learning_rate": 0.02}}
    assert trained("shared", overrides=half, job=UNSCORED)[1] == first


def test_a_run_that_was_stopped_goes_on_by_itself(before, trained, monkeypatch):
    (alone, _), first = before
    train = Client.train

    def stop(self, task):
        if task.round == 2:
            raise KeyboardInterrupt
        return train(self, task)

    with monkeypatch.context() as patch:
        patch.setattr(Client, "train", stop)
        with pytest.raises(KeyboardInterrupt):
            trained("shared", **FAST)
    scores, rounds = trained("shared", **FAST)
    assert rounds == [each for each in first if each[1] >= 2]
    assert scores.equals(alone)
