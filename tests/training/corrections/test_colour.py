"""A site's colours for the others, and the colours in which the network sees its images."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from monai.bundle import ConfigParser

from fedmed.data.augment.colours import colours, transfer
from fedmed.training.corrected_steps import Corrections
from fedmed.training.corrections.colour import MatchedColours, OwnColours
from fedmed.training.corrections.correction import Correction, RoundStart

from . import conftest

BUNDLES = Path(__file__).resolve().parents[3] / "bundles"


def frames(tint, count=4, seed=0):
    base = 0.3 + 0.4 * torch.rand(count, 1, 16, 16, generator=torch.Generator().manual_seed(seed))
    shade = 1 + 0.1 * torch.randn(count, 1, 1, 1, generator=torch.Generator().manual_seed(seed + 1))
    return list((base * shade * torch.tensor(tint).view(3, 1, 1)).clamp(0.05, 0.95))


RED, PALE = frames((0.9, 0.5, 0.4)), frames((0.7, 0.7, 0.6), seed=7)


def reported(images):
    return OwnColours(conftest.listed(images))()


def begun(local, *others, kept=None):
    return conftest.begun(MatchedColours(OwnColours(conftest.listed(local))), *others, kept=kept)


def test_a_site_tells_nine_numbers():
    assert reported(RED)["colour_statistics"].shape == (9,)


def test_images_of_other_colours_are_moved_in_training_and_scoring_and_after_a_resumption():
    term, batch = begun(RED, reported(PALE)), torch.stack(RED)
    wanted = transfer(batch, colours(RED), colours(PALE))
    again = begun([], kept=term.state_dict())
    for one in (term, again):
        assert one.decision.startswith("images in the colours of the others")
        assert torch.allclose(one.change_images(batch), wanted, atol=1e-5)
        assert torch.equal(one.change_scored_images(batch), one.change_images(batch))


def test_a_site_of_the_same_colours_leaves_its_images_as_they_are(caplog):
    caplog.set_level("INFO")
    term, batch = begun(RED, reported(frames((0.9, 0.5, 0.4), seed=3))), torch.stack(RED)
    assert torch.equal(term.change_images(batch), batch) and "stay as they are" in caplog.text
    assert term.decision == "images keep their colours"
    assert MatchedColours.inference_settings(term.state_dict()) == {}


def test_a_model_that_is_scored_before_the_site_has_trained_sees_images_as_they_are_and_says_so(caplog):
    """As the starting model, `evaluate_first`: its score is of other images than those of later models."""
    corrections = Corrections([MatchedColours(OwnColours([]))])
    evaluator = SimpleNamespace(prepare_batch=lambda batch: (batch, None))
    corrections.attach_to_scoring(evaluator)
    assert "scored with images as they are: a site adapts them from its first training on" in caplog.text
    caplog.clear()
    corrections.items[0].begin(RoundStart({}, values={}))
    corrections.attach_to_scoring(evaluator)
    assert "scored with images as they are" not in caplog.text


def test_a_site_that_has_not_trained_lets_those_alone_decide_for_which_something_came():
    class Trains(Correction):
        def begin(self, start):
            raise AssertionError("nothing is trained")

    term, batch = MatchedColours(OwnColours(conftest.listed(RED))), torch.stack(RED)
    corrections = Corrections([Trains(), term])
    corrections.receive({"others": [reported(PALE)]})
    corrections.begin_without_training()
    assert torch.allclose(term.change_scored_images(batch), transfer(batch, colours(RED), colours(PALE)), atol=1e-5)


@pytest.mark.parametrize(
    ("bundle", "package"),
    [
        ("surgical_phase_classification", "surgical_phase"),
        ("surgical_tool_classification", "surgical_tools"),
        ("instrument_segmentation", "instrument_nets"),
    ],
)
def test_an_exported_bundle_shows_its_network_the_same(bundle, package, monkeypatch):
    """The bundle's own transform, with the setting that an export writes."""
    monkeypatch.syspath_prepend(str(BUNDLES / bundle))
    term = begun(RED, reported(PALE))
    config = ConfigParser()
    config.read_config(str(BUNDLES / bundle / "configs/inference.yaml"))
    config.update({"bundle_root": str(BUNDLES / bundle), **MatchedColours.inference_settings(term.state_dict())})
    *_, last = config["preprocessing"]["transforms"]
    assert last["_target_"] == f"{package}.colours.MatchColoursd"
    change = config.get_parsed_content(f"preprocessing#transforms#{len(config['preprocessing']['transforms']) - 1}")
    for image in RED:
        assert torch.allclose(change({"image": image})["image"], term.change_scored_images(image[None])[0], atol=1e-5)
    config.update({"image_colours": None})
    plain = config.get_parsed_content(f"preprocessing#transforms#{len(config['preprocessing']['transforms']) - 1}")
    assert torch.equal(plain({"image": RED[0]})["image"], RED[0])
