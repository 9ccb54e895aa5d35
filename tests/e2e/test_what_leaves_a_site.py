"""A run in the simulator: no byte that its processes send, and nothing that the server keeps, holds a site's secret.

It has the most that can be added to a run of labelled and unlabelled sites: layers that stay at a site, models that a
site trains alone, and SCAFFOLD, the algorithm that keeps and sends the most on both sides. The same run equals the
in-process loop bit by bit.
"""

import shutil
from dataclasses import replace

import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedmed.bundles.find import find_bundle
from fedmed.durable_files import load_tensors
from fedmed.federation.loop import run_job
from fedmed.jobs.job_folder import read_job
from fedmed.privacy.limits import read_ledger
from fedmed.recovery.model_store import ModelStore
from fedmed.settings.site import load_site
from tests.e2e import runs
from tests.e2e.runs import PATIENT

SITES = {"ct_north": "supervised", "ct_south": "supervised", "ct_east": "unsupervised"}
SMALL = {"_target_": "SegResNet", "spatial_dims": 3, "in_channels": 1, "out_channels": 2, "init_filters": 8}
SMALL |= {"blocks_down": [1, 1], "blocks_up": [1]}  # a twentieth of the demo's bytes, and of the time to search them


@pytest.fixture(scope="module")
def run(tmp_path_factory, write_tiny_job, lively, tiny_site_configs, tap):
    """A finished run; ct_south has lost an image that lies in a folder named after a patient."""
    root = tmp_path_factory.mktemp("leaves")
    (root / "configs").mkdir()
    for site in ("ct_north", "ct_east"):
        values = yaml.safe_load((tiny_site_configs / f"{site}.yaml").read_text())
        values["privacy"] = {"allowed_extras": ["control_difference"]}
        (root / "configs" / f"{site}.yaml").write_text(yaml.safe_dump(values))
    data = shutil.copytree(load_site("ct_south").data_root, root / "ct_south_data")
    runs.lose(data, "training", "image")
    values = {"data_root": str(data), "device": "cpu", "cache_dir": str(root / "cache")}
    (root / "configs" / "ct_south.yaml").write_text(yaml.safe_dump(values))
    bundle = shutil.copytree(find_bundle("covid_ct_segmentation"), root / "bundles" / "covid_ct_segmentation")
    (bundle / "configs" / "small.yaml").write_text(yaml.safe_dump({"network_def": SMALL}))
    spec = {"rounds": 2, "sharing": "block_6", "min_clients": 2, "gain": True, "overlays": ["demo", "small"]}
    spec |= {"algorithm": "scaffold", "server_step": "adamw"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDMED_BUNDLES", str(bundle.parent))
        job = write_tiny_job(root, "leaves", sites=SITES, overrides=lively, **spec)
        environment = {**tap(root), "FEDMED_SITE_CONFIGS": str(root / "configs")}
        printed = runs.simulate(job, root / "ws", 3, environment)
        assert f"{PATIENT}.nii.gz" in printed, "the site itself is told why it cannot work"
        yield root


@pytest.fixture(scope="module")
def secrets(run, secrets_type):
    outcome, job = secrets_type(), read_job(run / "leaves")
    initial = ModelStore(job, run).initial  # of the seed, known to everybody
    for site in SITES:
        config = load_site(site) if site != "ct_south" else None
        data = config.data_root if config else run / "ct_south_data"
        outcome.add_site(data, data / "datalist.json", [PATIENT])
        state = run / "ws" / site / "simulate_job/fedmed/state"
        for path in state.glob("round_*.pt"):
            private = load_tensors(path)["private"]
            trained = {name: tensor for name, tensor in private.items() if not torch.equal(tensor, initial[name])}
            assert len(trained) > len(private) / 2
            outcome.add_tensors(f"{site} {path.stem}", trained)
            if (best := state / "own_best.pt").is_file():
                local = {name: tensor for name, tensor in load_tensors(best)["tensors"].items() if name in private}
                outcome.add_tensors(
                    f"{site} own best", {n: t for n, t in local.items() if not torch.equal(t, initial[n])}
                )
    north = run / "ws/ct_north/simulate_job/fedmed"
    assert (north / "state/own_best.pt").is_file()
    alone = load_tensors(north / "state/round_1.pt")["alone"]  # in the first round both trainings are one and the same
    moments = {
        f"{n}.{k}": t for n, kept in alone["optimizer"]["state"].items() for k, t in kept.items() if t.numel() > 16
    }
    assert moments and (north / "evaluation_alone/cases.csv").is_file()
    outcome.add_tensors("ct_north alone", {name: t for name, t in alone["tensors"].items() if t.numel() > 16})
    outcome.add_tensors("ct_north alone optimizer", moments)
    return outcome


def test_the_loop_gives_the_same_models_and_scores(run, monkeypatch):
    monkeypatch.setenv("FEDMED_SITE_CONFIGS", str(run / "configs"))
    run_job(run / "leaves", run / "loop")
    assert runs.same_models(run / "ws", run / "loop")
    for site in ("ct_north", "ct_east"):  # its layers, its optimizer, the algorithm's state
        kept = [load_tensors(run / ws / site / "simulate_job/fedmed/state/round_1.pt") for ws in ("ws", "loop")]
        assert runs.same(*kept) and kept[0]["engine"]["corrections"], site
    flare, ours = runs.result(run / "ws"), run / "ws" / runs.SERVER
    assert flare["test"] == runs.result(run / "loop")["test"] and set(flare["test"]) == {"ct_north"}
    assert flare["untested"]["ct_south"] == "none of its updates entered the model", "it could not train"
    events = {path.parent.name for path in (ours / "tb_events").rglob("events.out.tfevents.*")}
    assert events >= {"ct_north", "ct_east"}
    (reported,) = (ours / "tb_events").rglob("*server*/events.out.tfevents.*")
    tags = EventAccumulator(str(reported)).Reload().Tags()["scalars"]
    assert {"updates_cosine/ct_north", "updates_distance/ct_east"} <= set(tags), "written by the server itself"


def test_nothing_secret_is_on_the_wire(run, secrets):
    final = runs.model(run / "ws")
    shared = {name: tensor for name, tensor in final.items() if name.startswith("down_layers") and tensor.numel() > 16}
    control = type(secrets)().add_tensors("shared", shared)
    both = replace(secrets, content=secrets.content | control.content)  # one search takes half the time of two
    assert set(both.found_in(runs.captured(run))) == set(control.content)  # what must be there, and nothing else


def test_nothing_secret_is_at_the_server(run, secrets):
    assert secrets.found_in(runs.kept_by_the_server(run / "ws")) == []
    assert [[r["site"] for r in line["refused"]] for line in runs.rounds(run / "ws")] == [["ct_south"]] * 2


def test_every_site_has_written_down_what_it_sent(run):
    ledgers = {site: read_ledger(run / "ws" / site) for site in SITES}
    answers = {site: [line["answer"] for line in lines if line["answer"] != "live"] for site, lines in ledgers.items()}
    # the last ones: of its own best, and of the one that it trained alone
    assert answers["ct_north"] == ["update", "update", "scores", "scores", "scores", "scores"]
    assert answers["ct_east"] == ["update", "update"]  # it has no decoder of its own to be tested with
    assert answers["ct_south"][:2] == ["refused", "refused"] and "update" not in answers["ct_south"]
    assert not any(name.startswith("conv_final") for line in ledgers["ct_north"] for name in line.get("tensors", {}))
    assert PATIENT in (run / "ws/ct_south/simulate_job/fedmed/progress.jsonl").read_text()
