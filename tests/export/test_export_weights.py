"""An exported model is complete, finite, and exactly what the run or the site had."""

import json
import shutil

import pytest
import torch

from fedmed.durable_files import load_tensors, save_tensors
from fedmed.errors import ExportError
from fedmed.export.bundle import export_bundle
from fedmed.export.weights import complete_weights, fitted
from fedmed.federation.client import Client
from fedmed.federation.loop import run_job
from fedmed.federation.server import Server

# A small network with BatchNorm.
PHASES = {"bundle": "surgical_phase_classification", "method": {"path": "fedmed.systems.fixmatch.method.FedFixMatch"}}
PHASES |= {"overrides": {"image_size": [24, 32]}}
DECODER = ("conv_final.", "up_samples.", "up_layers.")


def test_a_shared_model_is_the_runs_own(finished_run, opened):
    run, store, exporter = opened(finished_run)
    weights = complete_weights(run, store, exporter, "selected")
    name = "best_FL_global_model.pt" if run.result["best_round"] is not None else "FL_global_model.pt"
    expected = load_tensors(finished_run / "server/simulate_job/app_server" / name)["model"]
    assert weights.tensors.keys() == expected.keys()
    assert all(torch.equal(weights.tensors[key], expected[key]) for key in expected)


def test_the_files_from_which_a_run_began_are_not_needed(finished_run, opened, tmp_path, monkeypatch):
    monkeypatch.delenv("FEDMED_MODELS", raising=False)
    begun = shutil.copytree(finished_run, tmp_path / "begun")
    path = begun / "server/simulate_job/fedmed/run.json"
    facts = json.loads(path.read_text())
    facts["config"]["model"] |= {"checkpoint": "gone.pt", "checkpoint_tensors": ["^convInit"], "encoder": "gone.pth"}
    path.write_text(json.dumps(facts))
    run, store, exporter = opened(begun)
    assert complete_weights(run, store, exporter, "selected").tensors.keys() == store.initial.keys()


# --- partial sharing


def test_a_model_with_private_layers_is_refused_although_it_looks_complete(partial_run, opened, tmp_path):
    run, store, exporter = opened(partial_run[0])
    (_, warm), (_, last) = run.model("selected"), run.model("last")
    assert last.keys() == store.initial.keys(), "it looks complete"
    assert all(torch.equal(last[n], warm[n]) for n in last if n.startswith(DECODER)), "the sites' own are not here"
    with pytest.raises(ExportError, match="looks complete and is not: 11 of its 25 tensors .*with --site NAME"):
        export_bundle(partial_run[0], tmp_path / "x_segmentation", model="last")
    assert not list(tmp_path.iterdir())


def test_before_the_layers_turn_private_the_model_is_complete(partial_run, opened):
    run, store, exporter = opened(partial_run[0])
    weights = complete_weights(run, store, exporter, "selected")
    assert weights.round == 0
    assert any(not torch.equal(weights.tensors[n], t) for n, t in store.initial.items() if n.startswith(DECODER))
    with pytest.raises(ExportError, match="is complete: no tensor and no setting is a site's own; leave out --site"):
        complete_weights(run, store, exporter, "selected", "ct_north")


@pytest.mark.parametrize("site", ["ct_north", "ct_south"])
def test_a_sites_merge_is_what_it_was_tested_with(partial_run, opened, site):
    folder, tested = partial_run
    run, store, exporter = opened(folder)
    weights = complete_weights(run, store, exporter, "last", site)
    other = {name for name, tensor in run.model("last")[1].items() if not torch.equal(tensor, weights.tensors[name])}
    assert other and all(name.startswith(DECODER) for name in other), "the site's own layers, and no others"
    expected = tested["last", site]
    assert list(weights.tensors) == list(expected)
    assert all(torch.equal(weights.tensors[name], expected[name]) for name in expected)


@pytest.mark.usefixtures("no_torchscript")
def test_the_card_tells_the_story_of_a_partial_model(partial_run, tmp_path):
    made = export_bundle(partial_run[0], tmp_path / "x_segmentation", model="last", site="ct_south")
    card = (made.out / "docs" / "README.md").read_text()
    fed = json.loads((made.out / "configs" / "metadata.json").read_text())["federation"]
    source = fed["private_tensors_of"]
    assert source in {"site 1", "site 2"} and f"The layers that are not shared are those of {source}." in card
    assert f"Layers of {source} alone are in it" in card and "all but group block_6" in card
    other = {"site 1": "site 2", "site 2": "site 1"}[source]
    assert f"{other} had other layers when tested" in card and "the first 1 by the sites with masks" in card
    assert "Not tested at site 3 and site 4." in card and "after round 3, the last one" in card


def test_a_site_may_give_its_own_run_folder(partial_run, opened, tmp_path):
    folder, tested = partial_run
    kit = shutil.copytree(folder / "ct_south" / "simulate_job", tmp_path / "kit" / "job_id")
    server = shutil.copytree(folder / "server" / "simulate_job", tmp_path / "download" / "workspace")
    run, store, exporter = opened(server.parent)
    with pytest.raises(ExportError, match="private state of site 'ct_south' is not in .*--site-run"):
        complete_weights(run, store, exporter, "last", "ct_south")
    for place in (kit, kit / "fedmed"):
        weights = complete_weights(run, store, exporter, "last", "ct_south", place)
        assert all(torch.equal(weights.tensors[n], t) for n, t in tested["last", "ct_south"].items())


@pytest.mark.parametrize(
    ("site", "message"),
    [
        ("ct_moon", "no site 'ct_moon'; its sites are ct_east, ct_north, ct_south, ct_west"),
        ("ct_east", r"'ct_east' \(unsupervised\) has never trained .* export at ct_north or ct_south"),
        ("ct_west", r"'ct_west' \(evaluate\) has never trained"),
    ],
)
def test_a_site_that_cannot_complete_the_model_is_refused(partial_run, opened, site, message):
    run, store, exporter = opened(partial_run[0])
    with pytest.raises(ExportError, match=message):
        complete_weights(run, store, exporter, "last", site)


def test_another_sites_folder_is_noticed(partial_run, opened):
    run, store, exporter = opened(partial_run[0])
    with pytest.raises(ExportError, match="is not of site 'ct_north' in this run"):
        complete_weights(run, store, exporter, "last", "ct_north", partial_run[0] / "ct_south" / "simulate_job")


def without_a_tensor(path):
    content = load_tensors(path)
    content["private"].pop("conv_final.2.conv.weight")
    save_tensors(path, content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "private state of round 2 cannot be read"),
        (lambda path: path.write_bytes(b"x"), "is damaged"),
        (without_a_tensor, "lacks tensor 'conv_final.2.conv.weight': the site has not trained its own layers"),
    ],
)
def test_a_damaged_state_is_named(partial_run, opened, tmp_path, damage, message):
    copy = shutil.copytree(partial_run[0] / "ct_north", tmp_path / "ct_north")
    damage(copy / "simulate_job/fedmed/state/round_2.pt")
    run, store, exporter = opened(partial_run[0])
    with pytest.raises(ExportError, match=message):
        complete_weights(run, store, exporter, "last", "ct_north", copy)


def test_a_site_whose_updates_were_all_refused_has_nothing_to_merge(partial_run, opened):
    run, store, exporter = opened(partial_run[0])
    for line in run.rounds:
        line["accepted"] = [site for site in line["accepted"] if site != "ct_north"]
    with pytest.raises(ExportError, match="'ct_north' has contributed to no round up to 2"):
        complete_weights(run, store, exporter, "last", "ct_north")


def test_a_resumed_run_is_complete_with_what_was_made_before_the_interruption(
    tmp_path, write_tiny_job, two_levels, opened, monkeypatch
):
    monkeypatch.setattr(Client, "_score", lambda self, task, parser: {"val_dice": 0.9 if task.round == 1 else 0.4})
    monkeypatch.setattr(Client, "evaluate", lambda self, task: {"dice_mean": 0.5, "dice_std": 0.1, "n_cases": 3})
    spec = {"sites": {"ct_north": "supervised"}, "rounds": 3, "steps": 1, "sharing": "block_6"}
    job = write_tiny_job(tmp_path, "study", **spec, overlays=two_levels)
    train_tasks = Server.train_tasks
    monkeypatch.setattr(Server, "train_tasks", lambda self, round: 1 / 0 if round == 2 else train_tasks(self, round))
    with pytest.raises(ZeroDivisionError):
        run_job(job, tmp_path / "ws")
    monkeypatch.setattr(Server, "train_tasks", train_tasks)
    before = load_tensors(tmp_path / "ws/ct_north/simulate_job/fedmed/state/round_0.pt")["private"]
    run_job(job, tmp_path / "ws", resume=True)
    run, store, exporter = opened(tmp_path / "ws")
    weights = complete_weights(run, store, exporter, "selected", "ct_north")
    assert weights.round == 0 and before and run.facts["resumed"]
    assert all(torch.equal(weights.tensors[name], value) for name, value in before.items())
    assert complete_weights(run, store, exporter, "last", "ct_north").round == 2


def test_private_batch_norm_statistics_make_a_model_incomplete_too(written, opened):
    run, store, exporter = opened(written(**PHASES, buffers="local"))
    with pytest.raises(ExportError, match="looks complete and is not: .*bn1.running_mean"):
        complete_weights(run, store, exporter, "selected")
    statistics = {n: t + 1 for n, t in store.initial.items() if "running_" in n or "num_batches" in n}
    for site in ("ct_north", "ct_east"):  # a site without labels has statistics of its own images
        save_tensors(run.folder / site / "simulate_job/fedmed/state/round_0.pt", {"private": statistics})
        tensors = complete_weights(run, store, exporter, "selected", site).tensors
        assert all(torch.equal(tensors[n], statistics.get(n, t)) for n, t in store.initial.items())


# --- what does not fit


def test_whole_numbers_survive_a_journey_as_floats(written, opened):
    """FLARE and averaging may carry counters as float64; BatchNorm wants int64."""

    def change(tensors):
        return {n: v.double() + (0 if v.is_floating_point() else 3) for n, v in tensors.items()}

    run, store, exporter = opened(written(**PHASES, change=change))
    tensors = complete_weights(run, store, exporter, "selected").tensors
    counter = tensors["features.bn1.num_batches_tracked"]
    assert counter.dtype == torch.int64 and counter == 3
    assert all(tensors[n].dtype == t.dtype and tensors[n].shape == t.shape for n, t in store.initial.items())


NAME = "convInit.conv.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(NAME) is None, f"tensor '{NAME}' is missing"),
        (lambda t: t.update(surplus=torch.zeros(1)), "tensor 'surplus' is unknown"),
        (lambda t: t.update({NAME: t[NAME][:1]}), rf"tensor '{NAME}' has the shape \(1, 1, 3, 3, 3\), the network's"),
        (lambda t: t[NAME].view(-1)[3:4].fill_(float("nan")) is None, f"tensor '{NAME}' has values that are NaN"),
        (lambda t: t.update({NAME: t[NAME].double() * 1e300}), f"tensor '{NAME}' does not fit into torch.float32"),
    ],
)
def test_tensors_that_do_not_fit_are_named_and_nothing_is_written(written, tmp_path, change, message):
    def changed(tensors):
        change(tensors)
        return tensors

    run = written(change=changed)
    with pytest.raises(ExportError, match=message):
        export_bundle(run, tmp_path / "out" / "x_segmentation")
    assert not (tmp_path / "out").exists()


def test_a_counter_between_two_whole_numbers_is_refused():
    with pytest.raises(ExportError, match="tensor 'n' must be torch.int64, but holds 1.5"):
        fitted({"n": torch.tensor(1.5)}, {"n": torch.tensor(0)}, "the model")


# --- settings that are a site's own


@pytest.mark.parametrize(("name", "refused"), [("image_gamma", False), ("image_tint", True)])
def test_what_inference_cannot_do_to_images_is_not_left_out_without_a_word(
    finished_run, opened, monkeypatch, name, refused
):
    run, store, exporter = opened(finished_run)
    monkeypatch.setattr("fedmed.export.weights.site_settings", lambda *args: {name: 2.0})
    if refused:
        with pytest.raises(ExportError, match="'ct_north' saw its images changed.*does not have 'image_tint'"):
            complete_weights(run, store, exporter, "selected", "ct_north")
    else:
        assert complete_weights(run, store, exporter, "selected", "ct_north").settings == {name: 2.0}
