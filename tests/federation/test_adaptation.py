"""Whole federations whose sites without labels, and those that never train, adapt to their own images."""

import pytest
import torch

from fedmed.errors import JobError
from fedmed.federation.loop import run_job
from fedmed.federation.workflow import Closing
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import read_job
from fedmed.reports.run import read_run
from fedmed.reports.run_page import page
from fedmed.training.corrections.colour import MatchedColours
from fedmed.training.corrections.statistics import OwnStatistics
from tests.federation.run_folder import kept_of

pytestmark = pytest.mark.usefixtures("no_charts")

PLAN = {"rounds": 2, "epochs": 0.5, "steps": None, "warm_start": {"rounds": 1}, "select": "last"}


@pytest.fixture
def phases(write_tiny_phases_job, tmp_path):
    return lambda **changes: write_tiny_phases_job(tmp_path, **{**PLAN, **changes})


@pytest.fixture
def moved(monkeypatch):
    """Sites' colours lie far apart, whatever they are; site -> images that it saw changed when it scored a model."""
    monkeypatch.setattr("fedmed.training.corrections.colour.distance", lambda local, wanted: 9.0)
    result, change = [], MatchedColours.change_scored_images

    def noted(self, images):
        result.append(not torch.equal(shown := change(self, images), images))
        return shown

    monkeypatch.setattr(MatchedColours, "change_scored_images", noted)
    return result


def roles(folder):
    return read_job(folder).study.sites


@pytest.fixture
def scored(monkeypatch):
    """Whether other statistics, and nothing else of the network, were changed, each time a model was scored."""
    result, change = [], OwnStatistics.change_network

    def noted(self, network, infer, change_images):
        before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        change(self, network, infer, change_images)
        other = [name for name, tensor in network.state_dict().items() if not torch.equal(tensor, before[name])]
        result.append(bool(other) and all("running" in name for name in other))

    monkeypatch.setattr(OwnStatistics, "change_network", noted)
    return result


def test_sites_with_labels_tell_their_colours_and_all_others_take_them_and_score_with_their_own_statistics(
    phases, allow_extras, moved, scored, seen, tmp_path
):
    allow_extras("colour_statistics")
    own = {"name": "statistics", "args": {"dead_zone": 0, "judged": False}}
    folder = phases(adaptation=["colour", own], evaluate_first=True)
    given, tasks = {}, Closing.evaluation_tasks

    def noted(self, name="best"):
        result = tasks(self, name)
        given.update({site: len(task.extras.get("others", ())) for site, task in result.items()})
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Closing, "evaluation_tasks", noted)
        run_job(folder, tmp_path / "ws")
    reported = [site for site, task, _ in seen if task.name == "metadata"]
    assert reported == [site for site, role in roles(folder).items() if role == "supervised"]
    trained = {site: len(task.extras["others"]) for site, task, _ in seen if "others" in task.extras}
    assert trained == {site: 1 for site, role in roles(folder).items() if role == "unsupervised"}
    assert given == {site: int(role == "evaluate") for site, role in roles(folder).items()}
    assert moved and all(moved)
    adapting = [site for site, role in roles(folder).items() if role != "supervised"]
    assert scored == [True] * 2 * len(adapting), "the starting model and the last, at each such site"
    run = read_run(tmp_path / "ws")
    adapted = {site.name: site.adapted for site in run.sites if site.adapted}
    assert set(adapted) == set(adapting)
    assert all(words.startswith("images in the colours of the others, 9 times") for words in adapted.values())
    assert f"Adapted without labels: {next(iter(adapted))}: images in" in page(run).replace("&#39;", "'")
    for site in trained:
        corrections = kept_of(tmp_path / "ws", site, 1)["engine"]["corrections"]
        (kept,) = (one for one in corrections if one["path"].endswith(MatchedColours.__name__))
        assert kept["state"]["colours"].shape == (2, 3, 3)


def test_where_only_scored_sites_are_left_out_they_see_their_images_as_they_are(phases, allow_extras, tmp_path):
    allow_extras("colour_statistics")
    job = read_job(phases(adaptation={"name": "colour", "args": {"scored_sites": False}}))
    assert job.exchange.given_to == ("unsupervised",) and not job.exchange.receives("evaluate")
    evaluated = next(site for site, role in job.study.sites.items() if role == "evaluate")
    assert "colour_matching" not in job.overlays(job.role(evaluated))


def test_adaptations_go_together(phases, allow_extras):
    allow_extras("colour_statistics")
    job = read_job(phases(adaptation=["colour", {"name": "statistics", "args": {"prior": 4}}]))
    of_role = {role: job.overlays(job.role(site)) for site, role in job.study.sites.items()}
    assert of_role["supervised"][-1] == "own_colours"
    assert of_role["unsupervised"][-3:] == ["training_images", "colour_matching", "own_statistics"]
    assert of_role["evaluate"][-3:] == ["scored_images", "colour_matching", "own_statistics"]
    assert job.method.title == "FedCy with colour matching and own statistics of normalisation"


@pytest.mark.parametrize(
    ("adaptation", "message"),
    [
        ("colours", r"line \d+.*adaptation 'colours' is unknown; did you mean 'colour'"),
        (["colour", "intensity"], "both exchange values before training; use one of them"),
        ({"name": "statistics", "args": {"prior": -1}}, "'prior' is -1; give how many images the model's statistics"),
        ({"name": "statistics", "args": {"dead_zone": -1}}, "'dead_zone' is -1; give a number of deviations"),
        ({"name": "statistics", "args": {"scored_sites": 1}}, "'scored_sites' is 1; write true or false"),
        ({"name": "statistics", "args": {"judged": 1}}, "'judged' is 1; write true or false"),
        ({"name": "colour", "args": {"scored_sites": 1}}, "'scored_sites' is 1; write true or false"),
    ],
)
def test_what_does_not_go_is_told(phases, adaptation, message):
    with pytest.raises(JobError, match=f"(?s){message}"):
        phases(adaptation=adaptation)


@pytest.mark.parametrize("none", [None, "none", []])
def test_none_is_no_adaptation(phases, none):
    study = read_job(phases()).study
    values = study.model_dump(exclude_defaults=True)
    assert Job.of({**values, "adaptation": none}).study == study and study.adaptation == []


def test_a_study_of_earlier_is_read_under_the_name_of_today(phases, caplog):
    job = read_job(phases(algorithm="gamma_matching"))
    assert job.method.spec()["adaptation"] == [{"name": "intensity", "args": {"scored_sites": False}}]
    assert "algorithm" not in job.method.spec() and job.exchange.given_to == ("unsupervised",)
