"""Errors when a piece of a bundle cannot be built: the bundle's own text, not that of the library below it."""

import pytest

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import parsed
from fedmed.errors import BundleError, DataError


def refused(parser, id="network"):
    with pytest.raises(BundleError, match=f"^bundle item '{id}' cannot be built: ") as caught:
        parsed(parser, id)
    return str(caught.value)


@pytest.mark.parametrize("name", ["start.pth", "start.safetensors"])
def test_a_damaged_encoder_is_told_by_the_bundle(tmp_path, name):
    (tmp_path / name).write_bytes(b"no weights")
    bundle = Bundle("instrument_segmentation", ["demo"])
    said = refused(bundle.parser(device="cpu", encoder_checkpoint=str(tmp_path / name)))
    assert f"{tmp_path / name} is not a file of weights" in said and "correct 'encoder_checkpoint'" in said
    assert "weights_only" not in said and "header" not in said


def test_a_damaged_indicator_is_told_by_the_bundle(tmp_path):
    (tmp_path / "b.txt").write_text("1 two 3")
    bundle = Bundle("instrument_segmentation", ["demo"], {"indicator": "file"})
    words = {"indicator_path": "b.txt"}
    said = refused(bundle.parser(device="cpu", dataset_dir=str(tmp_path), site_words=words))
    assert f"{tmp_path / 'b.txt'} cannot be read" in said


def test_a_damaged_text_encoder_is_told_by_the_bundle(tmp_path):
    folder = tmp_path / "clip"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "clip_text_model"}')
    for name, content in (("model.safetensors", "xx"), ("vocab.json", "{}"), ("merges.txt", "")):
        (folder / name).write_text(content)
    bundle = Bundle("instrument_segmentation", ["demo"], {"indicator": "text"})
    words = {"indicator_path": "clip", "procedure": "nephrectomy"}
    said = refused(bundle.parser(device="cpu", dataset_dir=str(tmp_path), site_words=words))
    assert str(folder) in said and "cannot be read" in said and "indicator: file" in said


def test_our_own_errors_come_out_as_they_are(tmp_path):
    parser = Bundle("surgical_tool_classification", ["demo"]).parser(device="cpu", dataset_dir=str(tmp_path / "none"))
    with pytest.raises(DataError, match="the data folder .*none does not exist"):
        parsed(parser, "train#data")


def test_a_missing_item_is_named():
    refused(Bundle("surgical_tool_classification", ["demo"]).parser(device="cpu"), "nothing")
