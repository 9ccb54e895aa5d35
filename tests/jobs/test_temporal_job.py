"""Temporal stages on the features of an earlier run's model: what travels, what is computed once, what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from fedmed.durable_files import load_tensors
from fedmed.errors import JobError
from fedmed.export.bundle import export_bundle
from fedmed.federation.client import Client
from fedmed.federation.loop import run_job
from fedmed.jobs.job_folder import read_job, write_job
from fedmed.privacy.disclosures import SiteDisclosures
from fedmed.reports.run import read_run
from fedmed.reports.run_page import page
from tests.federation.run_folder import model_of, result_of, rounds_of
from tests.jobs.demo_sites import demo_site, foreseen_scores, note_messages

JOB = Path(__file__).resolve().parents[2] / "studies/phases_tecno.yaml"
BUNDLE, BEST = "surgical_phase_classification", "best_FL_global_model.pt"
SIZE = {"image_size": [24, 32]}
SMALL = {"supervised": {**SIZE, "learning_rate": 1e-3}, "evaluate": SIZE}
EPOCHS = 2
LABELLED = dict.fromkeys(("lap_harbor", "lap_bay", "lap_cliff"), "supervised")


@pytest.fixture(scope="module")
def frame_model(store_of, tmp_path_factory):
    """Folder of the model of single frames that a run left: random weights, under the name that the job asks for."""
    folder = tmp_path_factory.mktemp("models")
    tensors = store_of(folder, BUNDLE, ["demo"], overrides={"supervised": SIZE}, seed=5).initial
    torch.save({"model": tensors, "meta": {}}, folder / BEST)
    return folder


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """Settings of the job's sites, each with a cache of its own."""
    folder, names = tmp_path_factory.mktemp("sites"), read_job(JOB).study.sites
    return {s: demo_site(folder, s, "lap_phases_tiny", cache_dir=str(folder / f"cache_{s}")) for s in names}


def small(folder, **changes):
    job = read_job(JOB).changed({"rounds": 2, "epochs": EPOCHS, "overrides": SMALL, **changes})
    return write_job(job, folder / "job")


@pytest.fixture(scope="module")
def passed():
    """Tasks and answers of every site: (site, task, answer)."""
    return []


@pytest.fixture(scope="module")
def run(tmp_path_factory, frame_model, sites, passed):
    """Workspace of the job with two rounds."""
    folder = tmp_path_factory.mktemp("temporal")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDMED_MODELS", str(frame_model))
        note_messages(patch, passed, "train", "validate", "evaluate")
        run_job(small(folder), folder / "ws", sites)
    return folder / "ws"


def tasks(passed, name, site):
    return [(task, answer) for who, task, answer in passed if who == site and task.name == name]


def features(tensors):
    return {name for name in tensors if name.startswith("features.")}


def test_the_job_starts_from_a_model_of_single_frames_and_scores_the_others():
    job = read_job(JOB)
    assert job.study.sites == {
        "lap_harbor": "supervised",
        **dict.fromkeys(("lap_bay", "lap_cliff", "lap_isle"), "evaluate"),
    }
    assert job.study.checkpoint == BEST and job.study.checkpoint_tensors == [r"^features\."]
    assert job.short_rule["args"]["weighting"] == "samples" and job.study.epochs == 1
    assert (job.group("supervised"), job.group("evaluate")) == ("features", "full")


def test_the_features_travel_once_and_never_back(run, passed):
    (first, update), (second, _) = tasks(passed, "train", "lap_harbor")
    model = model_of(run)
    frozen, stages = features(model), model.keys() - features(model)
    assert frozen and first.tensors.keys() == model.keys() and second.tensors.keys() == stages
    assert update.tensors.keys() == stages and all(name.startswith("stages.") for name in stages)
    for name in ("validate", "evaluate"):
        assert all(task.tensors.keys() == stages for task, _ in tasks(passed, name, "lap_harbor"))
    ((scored, _),) = tasks(passed, "evaluate", "lap_bay")
    assert scored.tensors.keys() == model.keys(), "a site that is only scored gets the whole model then"


def test_the_features_are_those_of_the_run_before_bit_for_bit(run, frame_model):
    before = load_tensors(frame_model / BEST)["model"]
    model = model_of(run, BEST)
    assert all(torch.equal(model[name], before[name]) for name in features(model))
    assert {name.split(".")[0] for name in model} == {"features", "stages"}


def test_an_update_counts_by_the_frames_that_were_seen(run, passed):
    """Of a tiny hospital with one training video, in rounds of two epochs."""
    for _, update in tasks(passed, "train", "lap_harbor"):
        assert update.n_samples > 2 * 10 and update.n_samples % EPOCHS == 0 and update.n_steps == EPOCHS


def test_every_site_is_scored_video_by_video(run):
    tested = result_of(run)["test"]
    assert set(tested) == {"lap_harbor", "lap_bay", "lap_cliff", "lap_isle"}
    for site, result in tested.items():
        assert 0 <= result["f1_mean"] <= 1 and result["n_cases"] == 1
        (table,) = run.glob(f"{site}/**/evaluation/frames/*.csv")
        assert len(table.read_text().splitlines()) == 1 + result["n_frames"]


@pytest.fixture(scope="module")
def labelled(sites, tmp_path_factory):
    """Three hospitals all of whose videos are labelled, with caches of their own."""
    caches = tmp_path_factory.mktemp("caches")
    full = {name: sites[name].data_root / "datalist_labelled.json" for name in LABELLED}
    return {n: replace(sites[n], datalist=full[n], cache_dir=caches / n) for n in LABELLED}


@pytest.fixture(scope="module")
def shared(labelled, frame_model, tmp_path_factory):
    """Folder with a ``job`` of the three and its run in ``whole``; its server; frames of each pass of an encoder."""
    from surgical_phase.encoders import FrameEncoder

    folder, passes, original = tmp_path_factory.mktemp("shared"), [], FrameEncoder.forward

    def forward(self, x):
        passes.append(len(x))
        return original(self, x)

    job = small(folder, sites=LABELLED, overrides={"supervised": SMALL["supervised"]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDMED_MODELS", str(frame_model))
        patch.setattr(FrameEncoder, "forward", forward)
        server = run_job(job, folder / "whole", labelled)
    return folder, server, passes


def test_hospitals_with_labels_share_their_stages(labelled, shared):
    """Every video's features are computed once in the whole run; each hospital counts by its frames."""
    folder, server, passes = shared
    assert [line["accepted"] for line in rounds_of(folder / "whole")] == [sorted(labelled)] * 2
    made = [path for site in labelled.values() for path in site.cache_dir.rglob("*.features")]
    videos = [path for site in labelled.values() for path in site.cache_dir.rglob("*.frames")]
    assert len(made) == len(videos) == 3 * len(labelled)
    frames = sum(json.loads(path.with_suffix(".json").read_text())["frames"] for path in videos)
    assert sum(passes) == frames, "each frame once"
    assert all(not torch.equal(server.tensors[n], server.store.initial[n]) for n in ("stages.0.first.weight",))


def test_a_killed_run_that_is_resumed_ends_where_another_does(labelled, shared, frame_model, monkeypatch):
    monkeypatch.setenv("FEDMED_MODELS", str(frame_model))
    folder = shared[0]
    original, calls = Client.train, []

    def killed(self, task):
        calls.append(task.round)
        if len(calls) == 5:  # the second site in the second round
            raise KeyboardInterrupt
        return original(self, task)

    monkeypatch.setattr(Client, "train", killed)
    with pytest.raises(KeyboardInterrupt):
        run_job(folder / "job", folder / "cut", labelled)
    run_job(folder / "job", folder / "cut", labelled, resume=True)
    assert calls == [0, 0, 0, 1, 1, 1, 1, 1]
    for name in ("FL_global_model.pt", BEST):
        whole, cut = (model_of(folder / ws, name) for ws in ("whole", "cut"))
        assert all(torch.equal(whole[key], cut[key]) for key in whole)
    results = [result_of(folder / ws) for ws in ("whole", "cut")]
    assert results[0]["test"] == results[1]["test"] and results[0]["best_round"] == results[1]["best_round"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"checkpoint": None, "checkpoint_tensors": []}, "'checkpoint' is missing.*best_FL_global_model.pt"),
        ({"checkpoint": None, "checkpoint_tensors": [], "algorithm": "fedprox"}, "'checkpoint' is missing"),
        ({"sharing": "features"}, "'sharing': sites share the stages alone"),
        ({"warm_start": {"rounds": 1, "sharing": "full"}}, "'warm_start': sites share the stages alone"),
        ({"algorithm": "fedrep"}, "both say what stays at the sites"),
    ],
)
def test_a_study_that_cannot_mean_this(changes, message):
    with pytest.raises(JobError, match=message):
        read_job(JOB).changed(changes)


def test_a_model_that_is_missing_or_of_another_network_is_one_clear_error(tmp_path, sites, frame_model, monkeypatch):
    monkeypatch.setenv("FEDMED_MODELS", str(tmp_path / "models"))
    job = small(tmp_path)
    with pytest.raises(JobError, match=f"checkpoint '{BEST}' is not in .*models.*put it there, at the server"):
        run_job(job, tmp_path / "ws", sites)
    (tmp_path / "models").mkdir()
    whole, name = load_tensors(frame_model / BEST)["model"], "features.conv1.weight"
    others = {
        "does not hold": {"encoder.conv1.weight": torch.zeros(1)},
        "holds as float32 2×2": {**whole, name: torch.zeros(2, 2)},
    }
    for message, tensors in others.items():
        torch.save({"model": tensors, "meta": {}}, tmp_path / "models" / BEST)
        message = f"checkpoint .*{BEST} does not fit the job's model at tensor '{name}', which it {message}"
        with pytest.raises(JobError, match=message):
            run_job(job, tmp_path / "ws", sites)
    assert not (tmp_path / "ws" / "lap_harbor").exists()


def test_a_site_can_foresee_what_it_sends(run, sites):
    job, site = read_job(JOB), sites["lap_harbor"]
    assert set(result_of(run)["test"]["lap_harbor"]) <= foreseen_scores(job, site)
    updates = [sending for sending in SiteDisclosures(job, site).training() if not sending.refused]
    assert all(name.startswith("stages.") for sending in updates for name in sending.tensors)


def test_the_report_shows_videos_along_time(run):
    text = page(read_run(run))
    assert "F1 of each phase" in text and text.count('class="videos') == 4


@pytest.mark.parametrize("onnx", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_run_becomes_a_bundle_that_infers_whole_videos(run, tmp_path, onnx):
    """Inference on generated frames gives the same before and after, the second without FedMed."""
    made = export_bundle(run, tmp_path / "phases_classification", verify=True, onnx=onnx)
    card = (made.out / "docs/README.md").read_text()
    assert not any("label.sh" in line for line in (*made.next_steps, card)), "it needs whole videos"
    assert "equal probabilities" in card and "which stayed as it was" in card and "{{" not in card
    config = yaml.safe_load((made.out / "configs/inference.yaml").read_text())
    assert config["network_def"]["_target_"] == "surgical_phase.temporal_net.TemporalPhaseNet"
    assert config["network_def"]["widths"] == [16, 32, 64, 64] and (made.out / "models/model.onnx").is_file() == onnx
