"""A bundle adapted to a hospital's images: whole, equal to FedMed's own scoring, and careful."""

import json
import shutil

import nibabel as nib
import numpy as np
import pytest
import torch
import yaml

from fedmed.adapting.bundle import adapt_bundle
from fedmed.adapting.folder_images import FolderImages
from fedmed.bundles.digests import changed_files, write_digests
from fedmed.bundles.given_bundle import open_given
from fedmed.bundles.infer import run_inference
from fedmed.data.augment.colours import COLOURS, colours
from fedmed.data.augment.intensities import INTENSITIES, mean_values
from fedmed.errors import BundleError, DataError, ExportError
from fedmed.training.corrections.own_images import OwnImages
from fedmed.training.corrections.statistics import OwnStatistics

PHASES = "surgical_phase_classification"
DARK = torch.nn.functional.one_hot(torch.full((50,), 12), 100).float().mean(0)  # a hospital of dark images
NOISE = torch.rand(3, 9, 9, generator=torch.Generator().manual_seed(0))
GREEN = colours([NOISE * torch.tensor([0.3, 0.8, 0.4])[:, None, None]])


def weights(root):
    return torch.load(root / "models" / "model.pt", weights_only=True)


def inference(root):
    return yaml.safe_load((root / "configs" / "inference.yaml").read_text())


def made(adapted):
    return {one.name: one.made for one in adapted.decisions}


def why(adapted, name):
    return next(one.why for one in adapted.decisions if one.name == name)


def predicted(root, folder, place):
    values = {"bundle_root": str(root), "dataset_dir": str(folder), "output_dir": str(place), "device": "cpu"}
    run_inference(root, [root / "configs" / "inference.yaml"], values)
    rows = json.loads((place / "predictions.json").read_text())
    return torch.tensor([list(row["probabilities"].values()) for row in rows])


@pytest.mark.parametrize("name", ["cxr_classification", PHASES])
def test_statistics_are_those_with_which_a_federation_scores(bundle, images, tmp_path, name):
    root, folder, out = bundle(name), images(44), tmp_path / "own_classification"
    result = adapt_bundle(root, folder, out, adaptations=["statistics"])
    assert made(result.adapted) == {"intensity": False, "colour": False, "statistics": True}
    before, after = weights(root), weights(out)
    changed = {key for key in before if not torch.equal(before[key], after[key])}
    assert changed and all(key.endswith(("running_mean", "running_var")) for key in changed)
    local = FolderImages(open_given(root, tmp_path / "place"), folder, {"device": "cpu"}, tmp_path / "none")
    network = local.network()
    scoring = OwnStatistics(OwnImages(local), dead_zone=0)
    scoring.change_network(network, lambda batch: local.infer(batch, network), lambda batch: batch)
    assert all(torch.equal(after[key], tensor) for key, tensor in network.state_dict().items())
    scored = local.infer(torch.stack([local[place]["image"] for place in range(len(local))]), network)
    assert torch.allclose(predicted(out, folder, tmp_path / "results"), scored, atol=2e-6)
    assert not torch.allclose(predicted(root, folder, tmp_path / "before"), scored, atol=1e-3)


@pytest.mark.usefixtures("charts")
def test_the_bundle_is_whole_and_says_what_was_done(bundle, images, tmp_path):
    folder, out = images(), tmp_path / "own_classification"
    (folder / "notes.png").write_text("no picture")
    result = adapt_bundle(bundle(), folder, out, adaptations=["statistics"])
    assert not changed_files(out) and open_given(out, tmp_path / "place").is_dir()
    assert "24 images" in (out / "docs" / "README.md").read_text()
    metadata = json.loads((out / "configs" / "metadata.json").read_text())
    assert metadata["version"] == result.version and metadata["federation"]["adapted"]["images"] == "24 images"
    page = (out / "docs" / "page.html").read_text()
    assert "Distance of statistics by layer" in page and "notes.png" in page
    assert page.count("data:image/png") == 6 and "http" not in page.replace("http://www.w3.org", "")
    (out / "docs" / "page.html").unlink()
    assert not changed_files(out), "whoever gives the bundle on removes the page"


def test_by_itself_it_leaves_what_is_alike(bundle, images, tmp_path, monkeypatch):
    monkeypatch.setattr("fedmed.adapting.decisions.DEAD_ZONE", 1e9)
    root, out = bundle(), tmp_path / "own_classification"
    result = adapt_bundle(root, images(), out)
    assert not any(made(result.adapted).values()) and "from 1e+09 on" in why(result.adapted, "statistics")
    assert "carries no 'intensity_shares'" in why(result.adapted, "intensity")
    assert "has no 'image_colours'" in why(result.adapted, "colour")
    assert (root / "models/model.pt").read_bytes() == (out / "models/model.pt").read_bytes()
    assert "Nothing was changed" in (out / "docs" / "page.html").read_text()


@pytest.mark.usefixtures("charts")
def test_brighter_images_are_shown_as_those_of_the_training(bundle, images, tmp_path):
    references = mean_values([{INTENSITIES: DARK}] * 2)
    out = tmp_path / "own_classification"
    result = adapt_bundle(bundle(references=references), images(low=60, high=120), out, adaptations=["intensity"])
    gamma = inference(out)["image_gamma"]
    assert gamma > 1 and result.adapted.settings == {"image_gamma": gamma} and not result.adapted.share
    assert torch.allclose(result.adapted.shown[0]["image"], result.adapted.images[0]["image"] ** gamma, atol=1e-6)
    assert "of the training hospitals" in (out / "docs" / "page.html").read_text()
    again = open_given(out, tmp_path / "place")
    assert inference(again)["image_gamma"] == gamma


def test_frames_are_shown_in_the_colours_of_the_training_and_then_measured(bundle, images, tmp_path):
    root, out = bundle(PHASES, mean_values([{COLOURS: GREEN.stacked().flatten()}] * 2)), tmp_path / "own_classification"
    result = adapt_bundle(root, images(40, tint=(1, 0.4, 0.3)), out, adaptations=["statistics", "colour"])
    assert made(result.adapted) == {"intensity": False, "colour": True, "statistics": True}
    torch.testing.assert_close(torch.tensor(inference(out)["image_colours"][1]), GREEN.stacked()[:2], atol=1e-4, rtol=0)
    local, shown = (images[0]["image"].mean(dim=(1, 2)) for images in (result.adapted.images, result.adapted.shown))
    assert local.argmax() == 0 and shown.argmax() == 1
    assert "times as far" in (out / "docs" / "README.md").read_text()


def test_black_frames_have_no_colours_to_match(bundle, images, tmp_path):
    root = bundle(PHASES, mean_values([{COLOURS: GREEN.stacked().flatten()}] * 2))
    result = adapt_bundle(root, images(40, low=0, high=1), tmp_path / "own_classification", adaptations=["colour"])
    assert not made(result.adapted)["colour"] and "image that is not black" in why(result.adapted, "colour")


def test_what_the_model_calls_after_it_may_speak_against_it(bundle, images, tmp_path, monkeypatch):
    monkeypatch.setattr("fedmed.adapting.decisions.DEAD_ZONE", 0.0)
    monkeypatch.setattr("fedmed.adapting.decisions.objection", lambda before, after: "after it one class is called")
    root, folder = bundle(), images()
    by_itself = adapt_bundle(root, folder, tmp_path / "a_classification").adapted
    assert not made(by_itself)["statistics"] and "--adaptation statistics" in why(by_itself, "statistics")
    assert "was left out" in (tmp_path / "a_classification/docs/page.html").read_text()
    requested = adapt_bundle(root, folder, tmp_path / "b_classification", adaptations=["statistics"]).adapted
    assert made(requested)["statistics"] and "after it one class is called. It was asked for" in why(
        requested, "statistics"
    )


@pytest.mark.usefixtures("charts")
def test_volumes_of_a_network_without_such_layers(bundle, images, tmp_path):
    root = bundle("covid_ct_segmentation")
    (root / "models" / "model.ts").write_text("of the same weights")
    write_digests(root, {"bundle": root.name, "overlays": ["demo"]})
    folder, out = images(0), tmp_path / "own_segmentation"
    scan = np.random.default_rng(0).uniform(-1000, 0, (40, 40, 8)).astype(np.float32)
    nib.save(nib.Nifti1Image(scan, np.diag([3.0, 3.0, 6.0, 1.0])), folder / "scan.nii.gz")
    result = adapt_bundle(root, folder, out, few=True, device="cpu")
    assert "no BatchNorm layer" in why(result.adapted, "statistics") and "scan" in result.amount
    assert result.adapted.before.classes == ("background", "covid_region") and result.adapted.before.each[0].is_mask
    assert (out / "models" / "model.ts").read_text() == "of the same weights"
    page = (out / "docs" / "page.html").read_text()
    assert "Outlines" in page and page.count("data:image/png") == 1, "nothing was changed"


@pytest.mark.parametrize(
    ("count", "name", "message"),
    [
        (19, "cxr_classification", "19 images; .* 20 images or more.*--few"),
        (39, PHASES, "39 frames; .* 2 videos, or 40 single frames or more"),
    ],
)
def test_few_images_are_refused_unless_a_person_says_so(bundle, images, tmp_path, count, name, message):
    root, folder, out = bundle(name), images(count), tmp_path / "own_classification"
    with pytest.raises(DataError, match=message):
        adapt_bundle(root, folder, out)
    assert not out.exists()
    assert adapt_bundle(root, folder, out, few=True, adaptations=["intensity"]).amount.startswith(str(count))


def test_images_of_another_kind_are_one_clear_error(bundle, images, tmp_path):
    folder = images(0)
    for number in range(30):
        (folder / f"{number}.png").write_text("a table")
    with pytest.raises(DataError, match=r"an image that cxr_classification reads; the first: .*0\.png"):
        adapt_bundle(bundle(), folder, tmp_path / "own_classification")


def test_mistakes_leave_nothing(bundle, images, tmp_path):
    root, folder, out = bundle(), images(), tmp_path / "own_classification"
    with pytest.raises(DataError, match="nowhere does not exist"):
        adapt_bundle(root, tmp_path / "nowhere", out)
    with pytest.raises(BundleError, match="holds no"):
        adapt_bundle(root, images(0, name="empty"), out)
    with pytest.raises(ExportError, match="end in _segmentation or _classification"):
        adapt_bundle(root, folder, tmp_path / "own")
    bare = shutil.copytree(root, tmp_path / "bare" / root.name)
    (bare / "models" / "model.pt").unlink()
    with pytest.raises(BundleError, match="has no weights"):
        adapt_bundle(bare, folder, out)
    assert not out.exists()
    adapt_bundle(root, folder, out)
    with pytest.raises(ExportError, match="exists; choose another folder or use --replace"):
        adapt_bundle(root, folder, out)
    with pytest.raises(BundleError, match="was adapted to a hospital's images already"):
        adapt_bundle(out, folder, tmp_path / "twice_classification")
