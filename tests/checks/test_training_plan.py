"""The plan of a study: nnU-Net's rules over the sites, within their memory, and how it is written and refused."""

import json
import math
from pathlib import Path

import pytest
import yaml

from fedmed.bundles.bundle import Bundle
from fedmed.checks import planned_study
from fedmed.checks.network_memory import NetworkMemory
from fedmed.checks.training_plan import batch_size, make_plan, patch_size, target_spacing
from fedmed.errors import JobError
from fedmed.jobs.job import Job
from tests.commands import fedmed

CT = "covid_ct_segmentation"
STUDY = {
    "name": "x",
    "bundle": CT,
    "overlays": ["demo"],
    "method": {"path": "fedmed.methods.supervised_fedavg.SupervisedFedAvg"},
    "sites": {"a": "supervised", "b": "supervised", "far": "evaluate"},
    "rounds": 1,
    "steps": 1,
}


def three(median, low=None, high=None):
    return {"low": low or median, "median": median, "high": high or median}


def site(spacing=(0.8, 0.8, 5.0), shape=(512, 512, 60), images=20, memory=16, finest=None, device="cuda"):
    axes = dict(zip("xyz", range(3), strict=True))
    return {
        "images": "volume",
        "device": device,
        "memory": memory,
        "counts": {"training": images, "unlabeled": 0},
        "size": {axis: three(shape[place]) for axis, place in axes.items()},
        "spacing": {a: three(spacing[n], finest if a == "z" else None) for a, n in axes.items()},
        "extent": {axis: three(shape[place] * spacing[place]) for axis, place in axes.items()},
    }


def per_voxel(of_one):
    """A network of so many bytes a voxel, whose sizes are multiples of 16."""
    return lambda patch, batch: math.inf if any(n % 16 for n in patch) else of_one * batch * math.prod(patch)


@pytest.mark.parametrize(
    ("sites", "expected"),
    [
        ({"a": site((1, 1, 1)), "b": site((1, 1, 1)), "c": site((2, 2, 2))}, [1, 1, 1]),
        ({"a": site((1, 1, 2), images=10), "b": site((0.7, 0.7, 1), images=100)}, [0.7, 0.7, 1]),
        ({"a": site(finest=2.5)}, [0.8, 0.8, 2.5]),
        ({"a": site(finest=0.5)}, [0.8, 0.8, 0.8]),
        ({"a": site(shape=(512, 512, 400), finest=2.5)}, [0.8, 0.8, 5]),
    ],
    ids=["median", "by images", "thick slices", "no finer than in the slice", "thick and many"],
)
def test_the_spacing_is_the_median_and_along_few_thick_slices_a_finer_one(sites, expected):
    spacing, reason = target_spacing(sites)
    assert spacing == expected and all(name in reason for name in sites)


def test_the_patch_is_the_median_image_cut_where_it_is_largest_until_two_fit():
    shape, spacing = (300, 300, 40), (0.8, 0.8, 5.0)
    whole, cut = patch_size(shape, spacing, per_voxel(1), 1e12)
    assert (whole, cut) == ([304, 304, 48], False)
    budget = 2.0 * 200 * 200 * 48
    patch, cut = patch_size(shape, spacing, per_voxel(1), budget)
    assert cut and 0.8 * budget < per_voxel(1)(patch, 2) <= budget and patch[0] == pytest.approx(patch[1], abs=16)
    assert patch_size((2000, 2000, 2000), (1, 1, 1), per_voxel(1), 1e12)[0] == [256, 256, 256]
    assert batch_size(patch, 1e12, per_voxel(1), 2 * budget)[1] == "memory"
    assert batch_size(patch, 60 * math.prod(patch), per_voxel(1), 1e12) == (3, "data")
    assert batch_size(patch, 1, per_voxel(1), 1e12)[0] == 2
    with pytest.raises(JobError, match="no patch that the network takes fits 2 times"):
        patch_size(shape, spacing, per_voxel(1), 1000)


def test_a_plan_for_a_real_network_respects_the_smallest_memory_and_says_whose(monkeypatch):
    bundle = Bundle(CT, ["demo"])
    memory = NetworkMemory(bundle)
    # One for all plans, which looks at each patch once.
    monkeypatch.setattr("fedmed.checks.training_plan.NetworkMemory", lambda of: memory if of is bundle else None)
    sizes = {"spacing": (2, 2, 5), "shape": (128, 128, 48)}
    big, small = ({"a": site(memory=24, **sizes), "b": site(memory=gib, images=200, **sizes)} for gib in (24, 2))
    plans = [make_plan(sites, bundle) for sites in (big, small)]
    patches = [plan.settings["patch_size"] for plan in plans]
    assert math.prod(patches[1]) < math.prod(patches[0]) and plans[0].settings["pixdim"] == [2, 2, 5]
    assert "80% of the 2 GiB of b's GPU" in plans[1].reasons["patch_size"]
    for plan, gib in zip(plans, (24, 2), strict=True):
        assert memory.needed(plan.settings["patch_size"], plan.settings["batch_size"]) <= 0.8 * gib * 2**30
        assert plan.settings.keys() == plan.reasons.keys() == {"pixdim", "patch_size", "window_size", "batch_size"}
    assert math.prod(make_plan(big, bundle, 1.5).settings["patch_size"]) < math.prod(patches[0])
    counts = {**site(), "counts": {"training": 0}}
    with pytest.raises(JobError, match="neither spacings nor sizes"):
        make_plan({"a": {key: counts[key] for key in ("images", "device", "memory", "counts")}}, bundle)


def test_a_picture_is_not_enlarged_and_the_batch_is_halved_until_it_fits():
    pictures = {"images": "picture", "device": "cuda", "memory": 16, "counts": {"training": 100}}
    pictures["size"] = {"rows": three(200), "columns": three(300)}
    plan = make_plan({"a": pictures}, Bundle("cxr_classification"))
    assert plan.settings == {"image_size": 192, "batch_size": 64}
    assert make_plan({"a": pictures}, Bundle("cxr_classification"), 1.5).settings["batch_size"] < 64


@pytest.fixture
def run(tmp_path):
    """A run whose record has the fingerprints of two of its sites."""
    records = tmp_path / "run" / "server" / "simulate_job" / "fedmed"
    records.mkdir(parents=True)
    (records / "run.json").write_text(json.dumps({"config": {"study": Job.of(STUDY).recorded}}))
    told = {
        "sites": {"a": site(shape=(64, 64, 16)), "far": site((9, 9, 9))},
        "missing": {"b": "forbidden"},
        "findings": [],
    }
    (records / "fingerprint.json").write_text(json.dumps(told))
    return tmp_path / "run"


def test_the_command_writes_what_it_shows_and_keeps_the_rest_of_the_study(run, tmp_path, capsys):
    study = tmp_path / "study.yaml"
    study.write_text(yaml.safe_dump({**STUDY, "overrides": {"supervised": {"learning_rate": 0.5}}}) + "# mine\n")
    before = study.read_text()
    assert fedmed("study", "plan")([run]) == 0
    out = capsys.readouterr().out
    assert "pixdim: [0.8, 0.8, 5.0]" in out and "without b: forbidden" in out
    assert study.read_text() == before
    assert fedmed("study", "plan")([run, "--write", study]) == 0
    kept = Job.parse(study.read_text()).study.overrides
    assert kept["supervised"]["learning_rate"] == 0.5 and "# mine" in study.read_text()
    assert kept["supervised"]["patch_size"] == kept["evaluate"]["patch_size"]


def test_without_a_fingerprint_one_sentence_says_what_to_do(run, tmp_path):
    (next(run.rglob("fingerprint.json"))).unlink()
    with pytest.raises(JobError, match="has no fingerprint of its sites; write 'fingerprint: true' into its study"):
        planned_study.plan_of(run)
    (study := tmp_path / "study.yaml").write_text(yaml.safe_dump(STUDY))
    with pytest.raises(JobError, match="no fingerprint yet: site 'a' is not on this machine"):
        planned_study.plan_of(study)
    with pytest.raises(JobError, match="is not there"):
        planned_study.plan_of(Path("nowhere"))
