"""The bundle for phases of operations: complete, trains and scores alone and in a federation."""

import json

import pytest
import torch
import yaml

from fedmed.bundles.bundle_parser import parsed
from fedmed.errors import DataError
from fedmed.export.bundle import export_bundle
from fedmed.federation.loop import run_job
from fedmed.jobs.job_folder import write_job
from fedmed.settings.site import load_file
from fedmed.training.label_counts import Confusion
from fedmed_demo import demo_site
from tests.bundles.one_bundle import OneBundle
from tests.bundles.without_fedmed import run_without_fedmed

HERE = OneBundle("surgical_phase_classification")
BUNDLE, METADATA, parse = HERE.root, HERE.metadata, HERE.parse
PHASES = ["preparation", "hepatocystic_triangle_dissection", "clipping_and_cutting", "gallbladder_dissection",
          "gallbladder_packaging", "cleaning_and_coagulation"]  # fmt: skip


@pytest.fixture(scope="module")
def facts(fedmed_home, tmp_path_factory):
    """Places of a tiny labelled site, and a size at which a step takes little time."""
    out = tmp_path_factory.mktemp("out")
    root = demo_site("lap_phases_tiny", "lap_harbor", fedmed_home)
    places = {"ckpt_dir": str(out / "models"), "output_dir": str(out / "eval"), "cache_dir": str(out / "cache")}
    small = {"image_size": [24, 32], "batch_size": 16, "max_epochs": 1}
    return {"bundle_root": str(BUNDLE), "dataset_dir": str(root), "device": "cpu", **places, **small}


def test_the_phases_are_those_of_the_protocol():
    metadata = json.loads(METADATA.read_text())
    assert parse("train")["classes"] == PHASES
    assert [one["name"] for one in metadata["classes"]] == list(metadata["phase_protocol"]["starts_when"]) == PHASES


def test_the_published_values():
    """Kassem et al. 2023; every frame counts the same, and none is left out."""
    parser = parse("train")
    values = {"image_size": [224, 224], "frame_rate": 1.0, "batch_size": 64, "learning_rate": 5e-5, "groups": None,
              "weight_decay": 5e-5, "encoder_checkpoint": None}  # fmt: skip
    assert {key: parser[key] for key in values} == values
    assert not any("lr_scheduler" in handler for handler in parser["train#handlers"])
    parser["network_def"] = {"_target_": "torch.nn.Linear", "in_features": 2, "out_features": 6}
    optimizer = parsed(parser, "optimizer")
    (group,) = optimizer.param_groups
    assert type(optimizer) is torch.optim.Adam and (group["lr"], group["weight_decay"]) == (5e-5, 5e-5)
    assert parsed(parser, "loss").weight is None and parsed(parser, "frame_settings").drop == ()


def test_augmentation_moves_whole_clips_and_keeps_colours():
    views = parsed(parse("train"), "train#views")
    flat = torch.full((2, 3, 3, 32, 32), 0.5) * torch.tensor([0.2, 1.0, 1.8]).view(3, 1, 1)
    assert torch.allclose(views(flat), flat, atol=1e-6)
    clips = torch.rand(2, 1, 3, 32, 32).expand(2, 4, 3, 32, 32)
    moved = views(clips)
    assert torch.equal(moved[:, :1].expand_as(moved), moved), "one draw for all frames of a clip"
    assert (moved - clips).abs().mean() > 0.1
    still = {name: 0.0 for name in ("degrees", "zoom", "shift")}
    assert torch.equal(parsed(parse("train", **still), "train#views")(clips), clips)


def test_train_and_evaluate(facts):
    """Stand-alone: an epoch with validation, and the scores of the testing list."""
    HERE.train(**facts)
    (score,) = HERE.test_scores("f1", **facts)
    assert 0 <= score <= 1


def test_a_table_with_an_unknown_phase_is_one_clear_error(facts):
    with pytest.raises(DataError, match="phase 'clipping_and_cutting' is unknown"):
        parsed(parse("train", "demo", **facts, classes=[name for name in PHASES if "clip" not in name]), "train#videos")


@pytest.fixture(scope="module")
def run(job_of, tmp_path_factory):
    """Workspace of one round: a labelled hospital, and one that is only scored."""
    folder, sites = tmp_path_factory.mktemp("phases"), {"lap_harbor": "supervised", "lap_isle": "evaluate"}
    for site in sites:
        values = {"site": site, "demo": "lap_phases_tiny", "device": "cpu", "threads": 1}
        (folder / f"{site}.yaml").write_text(yaml.safe_dump({**values, "cache_dir": str(folder / "cache")}))
    small = {role: {"image_size": [24, 32], "batch_size": 8} for role in set(sites.values())}
    method = {"path": "fedmed.methods.supervised_fedavg.SupervisedFedAvg"}
    study = {"name": "phases", "bundle": BUNDLE.name, "method": method, "sites": sites, "overlays": ["demo"]}
    job = write_job(job_of(**study, rounds=1, steps=2, overrides=small), folder / "job")
    run_job(job, folder / "ws", {site: load_file(folder / f"{site}.yaml") for site in sites})
    return folder / "ws"


def test_one_round_of_a_federation(run):
    outcome = json.loads((run / "server/simulate_job/fedmed/result.json").read_text())["test"]
    assert set(outcome) == {"lap_harbor", "lap_isle"}
    for scores in outcome.values():
        assert 0 <= scores["f1_mean"] <= 1
        counts = Confusion.from_numbers(scores, PHASES)
        assert counts is not None and counts.scores()["f1"] == pytest.approx(scores["pooled_f1"])


def infer_after(folder, config, images, out):
    """As the exporter's own, in a process that need not load MONAI anew."""
    place = ["--bundle_root", folder, "--dataset_dir", images, "--output_dir", out]
    run_without_fedmed(out.parent, "--config_file", config, *place)
    return out


def test_an_exported_bundle_stands_alone(run, tmp_path, monkeypatch):
    """Files that the bundle shares with another by links are there, and inference gives what it gave before."""
    assert [path.name for path in (BUNDLE / "surgical_phase").iterdir() if path.is_symlink()]
    monkeypatch.setattr("fedmed.export.exporter.infer_after", infer_after)
    made = export_bundle(run, tmp_path / "phases_classification", verify=True)
    assert not [path for path in made.out.rglob("*") if path.is_symlink()]
    assert any("the same class and equal probabilities" in line for line in made.checks)
    assert "ribbons" in (made.out / "docs/README.md").read_text()
