"""Whole federations whose sites tell one another how bright their images are, or how strong their frequencies."""

import pytest
import torch
import yaml

from fedmed.data.augment.bands import with_factors
from fedmed.durable_files import load_tensors, save_tensors
from fedmed.errors import ExportError
from fedmed.export.bundle import export_bundle
from fedmed.federation.loop import run_job
from fedmed.federation.selection import ModelSelection
from fedmed.privacy.limits import read_ledger
from fedmed.training.corrections.bands import MatchedBands
from fedmed.training.corrections.gamma import MatchedGamma
from tests.federation.run_folder import kept_of, model_of, rounds_of, same

SITES = {"ct_north": "supervised", "ct_south": "supervised", "ct_east": "unsupervised"}
PLAN = {"rounds": 2, "steps": 1, "warm_start": {"rounds": 1}}
METHOD = {"path": "fedmed.systems.agreement.method.Agreement"}
VALUES = {"intensity": ("intensity_shares", 100), "amplitude": ("amplitude_bands", 17)}  # name and count of numbers


@pytest.fixture
def job(tiny_job, lively, allow_extras):
    """Return a function: an adaptation, values of a study -> a job whose sites may tell what it needs."""

    def job(adaptation, **changes):
        allow_extras("agreed_share", "mean_scores", VALUES[adaptation][0])
        return tiny_job(sites=SITES, method=METHOD, overrides=lively, adaptation=adaptation, **{**PLAN, **changes})

    return job


def corrected(workspace, site, kind, value, round):
    """Value that a correction has kept at a site after a round; None where the site has no such correction."""
    corrections = kept_of(workspace, site, round)["engine"].get("corrections", [])
    return next((entry["state"][value] for entry in corrections if entry["path"].endswith(kind.__name__)), None)


@pytest.fixture
def changes(monkeypatch):
    """Return a function: a correction and the images it must make -> whether it did, each time a model was scored."""

    def watch(kind, expected):
        seen, change = [], kind.change_scored_images

        def noted(self, images):
            seen.append(torch.equal(changed := change(self, images), expected(images)))
            return changed

        monkeypatch.setattr(kind, "change_scored_images", noted)
        return seen

    return watch


pytestmark = pytest.mark.usefixtures("no_torchscript")


def exported(workspace, **settings):
    """Settings of the inference of the last model's export."""
    out = workspace.parent / "x_segmentation"
    export_bundle(workspace, out, model="last", **settings)
    return yaml.safe_load((out / "configs/inference.yaml").read_text())


@pytest.mark.parametrize("adaptation", VALUES)
def test_sites_tell_once_and_an_interrupted_run_ends_as_one_without_interruption(
    job, adaptation, seen, killed_before, unscored, tmp_path
):
    """Of intensities sites with labels tell and the other matches; of amplitudes all do both."""
    workspace, (name, count) = tmp_path / "ws", VALUES[adaptation]
    last = 1 if adaptation == "amplitude" else 2  # some site has trained once more since it got the values
    folder = job(adaptation, rounds=last + 1)
    run_job(folder, workspace)
    telling = SITES if adaptation == "amplitude" else ("ct_north", "ct_south")
    first, *later = rounds_of(workspace)
    assert first["bytes_told"] == dict.fromkeys(telling, 4 * count)
    assert not first["warnings"] and not any("bytes_told" in line for line in later)
    reported = {(site, task.round): len(task.extras["others"]) for site, task, _ in seen if "others" in task.extras}
    assert reported == {("ct_east", 1): 2} | (
        {("ct_north", 0): 2, ("ct_south", 0): 2} if adaptation == "amplitude" else {}
    )
    for site in SITES:
        sent = [line["extras"] for line in read_ledger(workspace / site) if line["answer"] == "metadata"]
        assert sent == ([{name: f"float32 {count}"}] if site in telling else [])
    if adaptation == "amplitude":
        factors = [corrected(workspace, site, MatchedBands, "factors", last) for site in SITES]
        assert {tuple(values.shape) for values in factors} <= {(1, 17), (0,)} and any(map(len, factors))
    else:
        assert corrected(workspace, "ct_north", MatchedGamma, "gamma", last) is None
        assert 0.4 <= corrected(workspace, "ct_east", MatchedGamma, "gamma", last) <= 2.5
    with killed_before(1):
        run_job(folder, tmp_path / "cut")
    run_job(folder, tmp_path / "cut", None, True)
    assert same(model_of(workspace), model_of(tmp_path / "cut"))


def test_a_model_is_scored_with_images_as_bright(job, changes, tmp_path, monkeypatch):
    monkeypatch.setattr(ModelSelection, "mean", lambda self, scores: None)  # the last model is selected and tested
    monkeypatch.setattr("fedmed.training.corrections.gamma.matching_gamma", lambda local, wanted: 4.0)
    shown = changes(MatchedGamma, lambda images: images.clamp(0, 1) ** 2)
    run_job(job("intensity"), tmp_path / "ws")
    assert corrected(tmp_path / "ws", "ct_east", MatchedGamma, "gamma", 1) == 2.0 and shown and all(shown)
    with pytest.raises(ExportError, match="no setting is a site's own; leave out --site"):
        exported(tmp_path / "ws", site="ct_north")
    assert exported(tmp_path / "ws", site="ct_east")["image_gamma"] == 2.0


def test_an_export_is_one_sites_and_sees_images_as_it_was_scored(job, changes, tmp_path, monkeypatch):
    monkeypatch.setattr(ModelSelection, "mean", lambda self, scores: None)  # the last model is selected and tested
    wanted = torch.linspace(1.5, 0.6, 17)[None].round(decimals=4)
    monkeypatch.setattr("fedmed.training.corrections.bands.band_factors", lambda *args: wanted)
    shown = changes(MatchedBands, lambda images: with_factors(images, wanted))
    run_job(job("amplitude"), tmp_path / "ws")
    before = [scan for scan in shown if not scan]  # of the model before the first round, at the two with labels
    assert shown == before + [True] * (len(shown) - len(before)) and len(before) == 2 * 3 < len(shown) / 2
    assert torch.equal(corrected(tmp_path / "ws", "ct_north", MatchedBands, "factors", 1), wanted)
    with pytest.raises(ExportError, match="images changed in a way of its own.*--site NAME"):
        exported(tmp_path / "ws")
    said = exported(tmp_path / "ws", site="ct_north", verify=True)["image_bands"]
    assert torch.equal(torch.tensor(said), wanted)
    alike(tmp_path / "ws", "ct_south")
    assert exported(tmp_path / "ws", site="ct_south", replace=True)["image_bands"] is None


def alike(workspace, site):
    """Make what a site has kept that of images like the others', for which ``MatchedBands`` has no factors."""
    path = workspace / site / "simulate_job/fedmed/state/round_1.pt"
    kept = load_tensors(path)
    (state,) = (one["state"] for one in kept["engine"]["corrections"] if one["path"].endswith(MatchedBands.__name__))
    state["factors"] = torch.ones(0)
    save_tensors(path, kept)
