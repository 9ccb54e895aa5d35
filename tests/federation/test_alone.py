"""Labelled sites that also train alone: the model that they would have without the others."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from PIL import Image

from fedmed.data.cases import LoadCased
from fedmed.durable_files import load_tensors
from fedmed.errors import DataError, FedMedError, JobError
from fedmed.federation import alone_training, client, opened_model
from fedmed.federation.client import Client
from fedmed.federation.loop import run_job
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import write_job
from fedmed.recovery import site_state
from fedmed.reports.alone import hospitals
from fedmed.reports.run import read_run
from fedmed.reports.run_page import page
from fedmed.seeds import derive_seed
from fedmed.settings.site import load_file, load_site
from fedmed.training.case_recorder import CaseRecorder
from tests.federation.run_folder import Killed, kept_of, model_of, records, result_of, same

pytestmark = pytest.mark.usefixtures("no_charts")

ONE = {"ct_north": "supervised"}
TWO = {**ONE, "ct_south": "supervised"}
SITES = {**TWO, "ct_east": "unsupervised"}
COARSE = {"overlays": ["demo", "coarse"]}  # a network whose masks two trainings change
SPEC = {"sites": SITES, "rounds": 2, "steps": 1}


def alone_of(workspace, site, round=1):
    return kept_of(workspace, site, round)["alone"]["tensors"]


@pytest.fixture(scope="module")
def whole(write_tiny_job, lively, tmp_path_factory):
    """A run of two rounds with gain, all that its sites answered, and what each read to test its own model."""
    folder, given, read = tmp_path_factory.mktemp("whole"), [], []
    job = write_tiny_job(folder, **SPEC, **COARSE, overrides=lively, gain=True)

    def counted(path):
        read.append(path.name)
        return load_tensors(path)

    def answer(client, task):
        with pytest.MonkeyPatch.context() as patch:
            if task.model == "alone":
                patch.setattr(site_state, "load_tensors", counted)
            given.append(client.answer(task))
        return given[-1]

    run_job(job, folder / "ws", answer=answer)
    return SimpleNamespace(job=job, workspace=folder / "ws", given=given, read=read)


def test_a_gain_is_the_difference_on_the_test_list_and_changes_nothing_of_the_run(tiny_job, lively, whole, tmp_path):
    run_job(tiny_job("plain", **SPEC, **COARSE, overrides=lively), tmp_path / "plain")
    workspace, result = whole.workspace, result_of(whole.workspace)
    assert set(result["test_alone"]) == set(TWO)
    model = model_of(workspace)
    for site in TWO:
        test, alone = result["test"][site], result["test_alone"][site]
        assert alone["gain"] == pytest.approx(test["dice_mean"] - alone["dice_mean"], abs=1e-5)
        assert alone["gain_patients"] == test["n_cases"] == 3 and 0 <= alone["gain_better"] <= 3
        folder, shown = records(workspace, site), (records(workspace, site) / "gain.html").read_text()
        changed = min(5, alone["gain_better"]) + min(5, 3 - alone["gain_better"])
        assert "Dice together" in shown and shown.count('<svg class="slice"') == 2 * changed
        assert not list(folder.rglob("every_case")) and (folder / "evaluation_alone" / "best.npz").is_file()
        # In the first round both trainings are one and the same; after it nothing of the site's own model is sent.
        before, after = (alone_of(workspace, site, round) for round in (0, 1))
        assert not same(after, model)
        own = {t.numpy().tobytes() for name in after for t in (after[name], after[name] - before[name])}
        updates = [one for one in whole.given if getattr(one, "round", 0) == 1]
        sent = {t.numpy().tobytes() for update in updates for t in update.tensors.values() if bool(t.any())}
        assert sent and not own & sent
    assert same(model_of(tmp_path / "plain"), model)
    assert result_of(tmp_path / "plain")["test"] == result["test"]
    assert "alone" not in kept_of(workspace, "ct_east", 1)


def test_released_layers_are_tested_by_labelled_sites_in_place_of_their_own(tiny_job, lively, tmp_path, monkeypatch):
    willing = {site: replace(load_site(site), allow_release=True) for site in TWO}
    spec = {"sites": TWO, "sharing": "block_6", "overrides": lively, "steps": 1, "release_from": "ct_north", **COARSE}
    run_job(tiny_job(**spec, gain=True), tmp_path / "ws", willing)
    result = result_of(tmp_path / "ws")
    assert {site: row["decoder_of"] for site, row in result["test_released"].items()} == {"ct_south": "ct_north"}
    folder = records(tmp_path / "ws", "ct_south")
    released, own = ((folder / name / "cases.csv").read_text() for name in ("evaluation_released", "evaluation"))
    assert released != own, "the same scores with another hospital's layers"
    assert "together, with layers that hospitals released" in (folder / "gain.html").read_text()
    (row,) = (row for row in hospitals(read_run(tmp_path / "ws")) if row.name == "ct_south")
    assert row.scores["released layers"] == pytest.approx(result["test_released"]["ct_south"]["dice_mean"])
    assert "released layers" in page(read_run(tmp_path / "ws"))
    monkeypatch.setattr(Client, "evaluate", lambda self, task: {"n_cases": 3, "dice_mean": 0.5})  # what is tested?
    run_job(tiny_job("kept", **spec, gain=True), tmp_path / "kept")
    assert "test_released" not in result_of(tmp_path / "kept"), "ct_north's own settings do not allow it"


def test_what_others_do_not_bring_is_no_gain(tiny_job, lively, tmp_path, monkeypatch):
    """Two sites with the same images and draws."""
    for module in (client, opened_model):
        monkeypatch.setattr(module, "derive_seed", lambda seed, site, *rest: derive_seed(seed, *rest))
    north = load_site("ct_north")
    settings = {site: replace(north, site=site) for site in TWO}
    decoded = []
    load = LoadCased.__call__
    monkeypatch.setattr(
        LoadCased, "__call__", lambda self, case: decoded.append(str(case["image"])) or load(self, case)
    )
    run_job(tiny_job(**{**SPEC, "sites": TWO}, gain=True, overrides=lively), tmp_path / "ws", settings)
    result = result_of(tmp_path / "ws")
    for site in TWO:
        assert result["test_alone"][site]["gain"] == 0.0 and result["test_alone"][site]["gain_better"] == 0
        assert same(alone_of(tmp_path / "ws", site), model_of(tmp_path / "ws", "FL_global_model.pt"))
    assert len(decoded) == len(set(decoded)), "an image was decoded a second time"


def test_a_resumed_run_goes_on_with_the_models_trained_alone_and_leaves_no_pictures_of_every_case(whole, tmp_path):
    """It is killed before its second round, then before a hospital's page is written, which leaves its pictures.

    A site whose job is aborted deletes them itself, and the job that goes on those of the one before.
    """

    def left(folder):
        return [path for path in folder.rglob("every_case") if any(path.iterdir())]

    def killed(client, task):
        if (task.name, task.round) == ("train", 1):
            raise Killed
        return client.answer(task)

    def ended(client, task):
        if task.model == "alone" and client.site.site == "ct_south":
            raise Killed
        if task.model == "alone":
            client.should_abort = lambda: True
        return client.answer(task)

    for resume, answer in ((False, killed), (True, ended)):
        with pytest.raises(Killed):
            run_job(whole.job, tmp_path, resume=resume, answer=answer)
    assert not left(tmp_path / "ct_north") and left(tmp_path / "ct_south")
    run_job(whole.job, tmp_path, resume=True)
    assert not left(tmp_path)
    for site in TWO:
        assert same(alone_of(whole.workspace, site), alone_of(tmp_path, site))
    assert result_of(whole.workspace)["test_alone"] == result_of(tmp_path)["test_alone"]
    assert result_of(tmp_path)["test_alone"]["ct_south"]["gain_patients"] == 3
    assert '<svg class="slice"' in (records(tmp_path, "ct_south") / "gain.html").read_text()


def test_a_site_reads_its_own_model_once_to_test_it(whole):
    assert whole.read == ["alone_best.pt"] * len(TWO)


def test_a_gain_of_few_patients_a_site_that_forbids_it_and_one_without_validation_or_room(
    tiny_job, tmp_path, monkeypatch, caplog
):
    def full(*args):
        raise DataError("no space left")

    monkeypatch.setattr(CaseRecorder, "write_every_case", full)
    north, south = load_site("ct_north"), load_site("ct_south")
    few = replace(north, privacy=north.privacy.model_copy(update={"min_gain_cases": 4}))
    settings = {"ct_north": few, "ct_south": replace(south, train_alone=False)}
    run_job(tiny_job(sites=TWO, gain=True), tmp_path / "ws", settings)
    result = result_of(tmp_path / "ws")
    assert result["test_alone"] == {"ct_north": {"n_cases": 0, "min_cases": 4}, "ct_south": {"n_cases": 0}}
    assert "no pictures to compare single cases by: no space left" in caplog.text
    assert "no picture of case" not in caplog.text
    assert "Dice together" in (records(tmp_path / "ws", "ct_north") / "gain.html").read_text()
    assert "min_gain_cases" in caplog.text and "'train_alone' is false" in caplog.text
    assert (records(tmp_path / "ws", "ct_north") / "evaluation_alone" / "cases.csv").is_file()
    assert "alone" not in kept_of(tmp_path / "ws", "ct_south", 0)


@pytest.mark.usefixtures("unscored")
def test_a_loss_that_is_not_a_number_ends_the_training_alone_and_not_the_round(tiny_job, tmp_path, monkeypatch, caplog):
    def fails(*args):
        raise FedMedError("the loss is nan")

    monkeypatch.setattr(alone_training, "train_round", fails)
    run_job(tiny_job(sites=ONE, gain=True), tmp_path / "ws")
    assert "the loss is nan" in caplog.text
    assert result_of(tmp_path / "ws")["contributed"] == {"ct_north": 1}


@pytest.mark.parametrize(
    "wrong",
    [{"evaluate": False}, {"sites": {"ct_east": "unsupervised"}, "select": "last"}],
    ids=["unscored", "no labels"],
)
def test_a_study_that_cannot_tell_a_gain(tiny_job, wrong):
    with pytest.raises(JobError, match="'gain' needs"):
        tiny_job(gain=True, **wrong)


@pytest.mark.slow
def test_a_hospital_whose_labels_have_slipped_by_a_row_is_better_off_together(tmp_path):
    """Its own model learns nothing true of the classes; that of the two others does."""
    folders = {site: write_pictures(tmp_path / "sites" / site, seed) for seed, site in enumerate("abc")}
    datalist = folders["c"] / "datalist.json"
    lists = json.loads(datalist.read_text())
    names = [entry["label"] for entry in lists["training"]]
    names = names[1:] + names[:1]
    lists["training"] = [entry | {"label": name} for entry, name in zip(lists["training"], names, strict=True)]
    datalist.write_text(json.dumps(lists))
    values = {"name": "pictures", "bundle": "cxr_classification", "overlays": ["demo"], "classes": ["dark", "light"]}
    values |= {"method": {"path": "fedmed.methods.supervised_fedavg.SupervisedFedAvg"}, "rounds": 3, "steps": 12}
    values |= {"overrides": {"supervised": {"image_size": 16, "batch_size": 8}}, "gain": True}
    job = write_job(Job.of({**values, "sites": dict.fromkeys("abc", "supervised")}), tmp_path / "job")
    settings = {}
    for site, folder in folders.items():
        file = tmp_path / f"{site}.yaml"
        file.write_text(yaml.safe_dump({"data_root": str(folder), "device": "cpu", "threads": 1}))
        settings[site] = load_file(file)
    run_job(job, tmp_path / "ws", settings)
    alone = result_of(tmp_path / "ws")["test_alone"]
    assert alone["c"]["auroc"] < 0.8 and alone["c"]["gain"] > 0.2 and alone["c"]["gain_low"] > 0
    assert max(abs(alone[site]["gain"]) for site in "ab") < 0.1


def write_pictures(folder, seed):
    """16 pictures for each list, every second one with a light square."""
    draw, lists = np.random.default_rng(seed), {}
    folder.mkdir(parents=True)
    for name in ("training", "validation", "testing"):
        lists[name] = []
        for number in range(16):
            pixels = draw.integers(60, 120, (16, 16))
            pixels[4:12, 4:12] += 80 * (number % 2)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{name}_{number}.png")
            lists[name].append({"image": f"{name}_{number}.png", "label": ["dark", "light"][number % 2]})
    (folder / "datalist.json").write_text(json.dumps(lists))
    return folder
