"""The jobs for parts of instruments say what their names promise; hospitals learn with a server that trains."""

import importlib
import io
import json
from dataclasses import asdict, is_dataclass, replace

import numpy as np
import pytest
import torch
import yaml

from fedmed.durable_files import load_tensors
from fedmed.errors import ExportError
from fedmed.export.bundle import export_bundle
from fedmed.federation.loop import run_job
from fedmed.federation.server_training import ServerTraining
from fedmed.jobs.job_folder import read_job, write_job
from fedmed.recovery.model_store import ModelStore
from tests.federation.run_folder import model_of, result_of, rounds_of
from tests.jobs.demo_sites import demo_site, note_messages
from tests.shipped import shipped

BUNDLE, BEST = "instrument_segmentation", "best_FL_global_model.pt"
TRAINING = ["inst_hyst", "inst_nephro1", "inst_nephro2", "inst_prostate"]
SINGLE = ("fedavg", "fedrep", "feddp", "fedas", "fedld", "synthetic_finetune", "synthetic_mixed")
SIZE = {"image_size": [32, 40]}
ROLES = {"inst_nephro1": "supervised", "inst_hyst": "supervised", "inst_lobe": "evaluate"}
SMALL = {"sites": ROLES, "rounds": 2, "steps": 2, "overrides": {"supervised": SIZE, "evaluate": SIZE}}


@pytest.mark.parametrize("name", [*SINGLE, "fedst"])
def test_four_hospitals_train_and_a_fifth_is_scored(name):
    job = read_job(shipped(f"instruments_{name}"))
    assert job.study.sites == {**dict.fromkeys(TRAINING, "supervised"), "inst_lobe": "evaluate"}
    assert job.study.checkpoint == BEST and "demo" in job.study.overlays
    assert ("single_frame" in job.study.overlays) is (name != "fedst"), "rivals see one frame"
    assert bool(job.study.checkpoint_tensors) is (name == "fedst"), "the others have nothing that begins at random"


def test_a_hospital_alone_and_the_videos_of_all_in_one_place_are_trained_as_the_federation_is():
    together = read_job(shipped("instruments_fedavg")).study
    for name, trains, steps in (("local", "inst_nephro1", 100), ("pooled", "inst_pooled", 400)):
        study = read_job(shipped(f"instruments_{name}")).study
        assert study.of_role("supervised") == [trains] and study.sites["inst_lobe"] == "evaluate"
        assert (study.rounds, study.steps, study.checkpoint) == (together.rounds, steps, BEST)
        assert (study.overlays, study.method) == (together.overlays, together.method)
    assert study.steps == together.steps * len(TRAINING), "as many as the hospitals make together"
    assert set(study.of_role("evaluate")) == set(together.sites), "tested where the others are"


def test_what_stays_at_the_sites():
    expected = {"fedst": "encoder_q", "feddp": "encoder_q", "fedas": "head", "fedrep": "decoder", "fedavg": "full"}
    for name, group in expected.items():
        job = read_job(shipped(f"instruments_{name}"))
        assert group == job.group("supervised"), name
        assert (job.study.release_from == "all") is (group != "full"), "or the unseen hospital cannot be scored"


def test_the_pre_training_is_of_synthetic_pictures_alone():
    job = read_job(shipped("instruments_pretraining"))
    assert job.study.sites == {"inst_simulator": "supervised"} and job.study.checkpoint is None
    assert job.study.overlays == read_job(shipped("instruments_fedavg")).study.overlays


def test_the_published_job(tmp_path, monkeypatch):
    """It starts from the pre-training that its comment names, though the server knows no site's words."""
    job = read_job(shipped("instruments_fedst_paper"))
    study = job.study
    assert (study.rounds, study.steps, study.select, study.overlays, study.overrides) == (300, 100, "last", [], {})
    earlier = read_job(shipped("instruments_pretraining_paper"))
    assert earlier.study.encoder == "pvt_v2_b0.pth", "from ImageNet's weights, which are not at hand here"
    before = ModelStore(earlier.changed({"encoder": None}), tmp_path).initial
    torch.save({"model": before, "meta": {}}, tmp_path / BEST)
    monkeypatch.setenv("FEDMED_MODELS", str(tmp_path))
    after = ModelStore(job, tmp_path).initial
    assert set(before) < set(after) and all(torch.equal(after[name], before[name]) for name in before)


def settings_of(site, folder, **more):
    """A tiny site's; it releases what stays with it."""
    values = more | {"allow_release": True, "allow_kept_release": True, "cache_dir": str(folder / f"cache_{site}")}
    return demo_site(folder, site, "lap_instruments_tiny", **values)


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """Settings of two hospitals that train, and of one that never does."""
    folder = tmp_path_factory.mktemp("sites")
    return {site: settings_of(site, folder) for site in ROLES}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a pre-trained model, random here, and settings of a server that has a simulator's pictures."""
    folder = tmp_path_factory.mktemp("instruments")
    before = read_job(shipped("instruments_pretraining")).changed({"overrides": {"supervised": SIZE}, "seed": 5})
    tensors = ModelStore(before, folder).initial
    torch.save({"model": tensors, "meta": {}}, folder / BEST)
    server = {"demo": "lap_instruments_tiny", "demo_site": "inst_simulator", "device": "cpu", "threads": 1}
    (folder / "server.yaml").write_text(yaml.safe_dump({**server, "cache_dir": str(folder / "cache")}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDMED_MODELS", str(folder))
        patch.setenv("FEDMED_SERVER_CONFIG", str(folder / "server.yaml"))
        yield folder


@pytest.fixture(scope="module")
def passed():
    """Tasks and answers: (site, task, answer)."""
    return []


@pytest.fixture(scope="module")
def never_sent():
    """Descriptor of each site, and the server's after each round."""
    return {"indicator": [], "domain": []}


@pytest.fixture(scope="module")
def run(place, sites, passed, never_sent):
    """Workspace of two rounds."""
    job = write_job(brief_fedst(), place / "job")
    with pytest.MonkeyPatch.context() as patch:
        note_messages(patch, passed, "train", "validate", "evaluate", "release")
        note(patch, never_sent)
        run_job(job, place / "ws", sites)
    return place / "ws"


def brief_fedst(**changes):
    """The job of FedST on small frames, whose server trains three steps a phase."""
    job = read_job(shipped("instruments_fedst"))
    method = {**job.study.method.model_dump(), "args": {"server_steps": 3}}
    return job.changed({**SMALL, "method": method, **changes})


def note(patch, never_sent):
    """Write down indicators as they are made, and descriptors as they are kept."""
    indicators = importlib.import_module("instrument_nets.indicators")
    made, restore = indicators.gaussian, ServerTraining.restore

    def gaussian(*args):
        never_sent["indicator"].append(made(*args))
        return never_sent["indicator"][-1]

    def kept(self, state):
        never_sent["domain"] += [state["state"]["separation"]["domain"]] if state else []
        restore(self, state)

    patch.setattr(indicators, "gaussian", gaussian)
    patch.setattr(ServerTraining, "restore", kept)


def private(names):
    return {name for name in names if name.startswith("selection.") or ".attention.query." in name}


def test_queries_and_selection_stay_at_the_hospitals(run, passed):
    model = model_of(run)
    trained = [(task, answer) for _, task, answer in passed if task.name == "train"]
    assert len(trained) == 4 and len(private(model)) > 4
    for task, update in trained:
        assert not private(update.tensors) and set(update.tensors) == model.keys() - private(model)
        assert not private(task.tensors) or task.round == 0
        assert "temporal.query.weight" in update.tensors, "the query of attention over time is shared"
    one, other = (task.tensors for task, _ in trained if task.round == 1)
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one), "the rest is shared"
    kept = [load_tensors(run / site / "simulate_job/fedmed/state/round_1.pt")["private"] for site in TRAINING[:2]]
    assert set(kept[0]) == private(model)
    assert any(not torch.equal(kept[0][name], kept[1][name]) for name in kept[0]), "each hospital has its own"


def written(message):
    """All of a message, with the bytes of its tensors as they are."""
    buffer = io.BytesIO()
    torch.save(asdict(message) if is_dataclass(message) else message, buffer)
    return buffer.getvalue()


def numbers(tensor):
    """Its bytes, in single and in double precision."""
    return [tensor.detach().to(dtype).numpy().tobytes() for dtype in (torch.float32, torch.float64)]


def test_neither_indicator_nor_what_the_server_learns_alone_travels(run, passed, never_sent):
    messages = [written(message) for _, *both in passed for message in both]
    reported = [tensor for tensors in never_sent.values() for tensor in tensors]
    assert len({data for tensor in never_sent["indicator"] for data in numbers(tensor)}) == 2 * 3, "two sites, one more"
    assert len(never_sent["domain"]) == 2 and all(tensor.unique().numel() >= 8 for tensor in reported)
    assert not [
        tensor for tensor in reported for data in numbers(tensor) if any(data in message for message in messages)
    ]
    sent = next(answer.tensors["head.weight"] for _, task, answer in passed if task.name == "train")
    assert [numbers(sent)[0] in message for message in messages].count(True) == 1, "what is sent is found"
    for _, task, answer in passed:
        for tensors in (task.tensors, getattr(answer, "tensors", None) or {}):
            assert not [name for name in tensors if "indicator" in name or "domain" in name or "descriptor" in name]
            assert not [name for name in tensors if name.split(".")[0] not in
                        ("encoder", "temporal", "selection", "decoder", "head")]  # fmt: skip


def test_the_server_trains_after_each_round(run):
    rows = rounds_of(run)
    assert len(rows) == 2
    for row in rows:
        assert sorted(row["accepted"]) == sorted(TRAINING[:2])
        assert row["server_seconds"] > 0 and row["domain_norm"] > 0 and row["feature_gap"] >= 0


def test_the_unseen_hospital_is_scored_with_the_mean_of_what_the_others_released(run, passed):
    tested = result_of(run)["test"]
    assert set(tested) == set(ROLES)
    assert all(0 <= row["dice_mean"] <= 1 and "dice_wrist" in row for row in tested.values())
    assert {site for site, task, _ in passed if task.name == "release"} == {"inst_nephro1", "inst_hyst"}


@pytest.mark.usefixtures("unscored")
def test_the_same_seed_gives_the_same_result(run, place, sites):
    again = run_job(place / "job", place / "again", {name: replace(site) for name, site in sites.items()})
    model = model_of(run)
    other = model_of(place / "again")
    assert all(torch.equal(other[name], model[name]) for name in model) and again.tensors


def test_what_was_trained_in_one_place_is_tested_at_a_hospital_that_took_no_part(place, tmp_path):
    shown = {"inst_pooled": "supervised", "inst_lobe": "evaluate"}
    write_job(
        read_job(shipped("instruments_pooled")).changed({**SMALL, "sites": shown, "rounds": 1, "steps": 1}),
        tmp_path / "job",
    )
    run_job(tmp_path / "job", tmp_path / "ws", {site: settings_of(site, tmp_path) for site in shown})
    tested = result_of(tmp_path / "ws")["test"]
    assert tested["inst_pooled"] == {"n_cases": 0} and 0 <= tested["inst_lobe"]["dice_mean"] <= 1


@pytest.mark.usefixtures("no_torchscript")
def test_hospitals_say_what_they_are_and_an_unseen_one_gets_a_model_of_its_own_words(place, tmp_path, monkeypatch):
    """ξ comes from a file at each site, which the server has not."""
    overrides = {role: {**SIZE, "indicator": "file"} for role in ("supervised", "evaluate")}
    trains = {"inst_nephro1": "supervised", "inst_lobe": "evaluate"}
    fewer = {"sites": trains, "overrides": overrides, "rounds": 1, "release_keep": True}
    write_job(brief_fedst(**fewer), tmp_path / "job")
    words = {"procedure": "lobectomy", "indicator_path": "indicator.txt"}
    sites = {site: settings_of(site, tmp_path, words=words) for site in trains}
    run_job(tmp_path / "job", tmp_path / "ws", sites)
    tested = result_of(tmp_path / "ws")["test"]
    assert tested["inst_lobe"]["n_cases"]

    with pytest.raises(ExportError, match="words of site inst_lobe: give --word indicator_path=…"):
        export_bundle(tmp_path / "ws", tmp_path / "none_segmentation", unseen="inst_lobe")
    monkeypatch.chdir(sites["inst_lobe"].data_root)
    made = export_bundle(tmp_path / "ws", tmp_path / "out_segmentation", unseen="inst_lobe", words=words)
    config = yaml.safe_load((made.out / "configs/inference.yaml").read_text())
    assert config["indicator_vector"] == pytest.approx(np.loadtxt("indicator.txt").tolist(), rel=1e-6)
    assert "{{" not in (made.out / "docs/README.md").read_text()


@pytest.mark.slow
def test_a_hospitals_model_is_exported_with_onnx(run, place):
    made = export_bundle(run, place / "exported_segmentation", site="inst_nephro1", onnx=True, verify=True)
    card = (made.out / "docs/README.md").read_text()
    assert "equal pixel for pixel" in card and "{{" not in card and (made.out / "models/model.onnx").is_file()
    image = json.loads((made.out / "configs/metadata.json").read_text())["network_data_format"]["inputs"]["image"]
    assert image["spatial_shape"] == SIZE["image_size"] and image["num_channels"] == 12
