"""A hospital's images as a bundle's own inference prepares them."""

import pytest
import torch

from fedmed.adapting.folder_images import FolderImages
from fedmed.bundles.given_bundle import open_given
from fedmed.errors import BundleError


@pytest.fixture
def look(bundle, tmp_path):
    root = open_given(bundle(), tmp_path / "opened")
    return lambda folder: FolderImages(root, folder, {"device": "cpu"}, tmp_path / "results")


def test_too_many_to_be_kept_are_read_again_and_are_the_same(look, images, monkeypatch):
    folder = images(6)
    (folder / "003.png").write_text("damaged")
    kept = look(folder)
    assert kept.names == [f"{n:03d}.png" for n in (0, 1, 2, 4, 5)] and "003.png" in kept.faults[0]
    monkeypatch.setattr("fedmed.adapting.folder_images.KEPT", 0)
    read = look(folder)
    for place in (0, 3, 4, 1, 1):
        assert torch.equal(read[place]["image"], kept[place]["image"])
    assert len(read.faults) == 1, "each is told once"


def test_a_folder_that_changes_meanwhile_is_told(look, images, monkeypatch):
    monkeypatch.setattr("fedmed.adapting.folder_images.KEPT", 0)
    read = look(folder := images(3))
    (folder / "001.png").write_text("damaged")
    with pytest.raises(BundleError, match="has changed while it was read"):
        read[2]
