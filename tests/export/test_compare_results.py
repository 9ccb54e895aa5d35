"""Masks of frames before and after an export, and how each kind of task says that it is run."""

import numpy as np
import pytest
from jinja2 import Environment, PackageLoader, StrictUndefined
from PIL import Image

from fedmed.errors import ExportError
from fedmed.export.exporter import FrameMaskExporter
from fedmed.kinds.find_kind import installed


@pytest.fixture
def compare(tmp_path):
    """Return a function: masks by name, before and after -> what an export says of them."""

    def compare(before, after):
        for when, masks in (("before", before), ("after", after)):
            (tmp_path / when).mkdir()
            for name, mask in masks.items():
                Image.fromarray(np.array(mask, np.uint8)).save(tmp_path / when / name)
        return FrameMaskExporter.compare(None, tmp_path / "before", tmp_path / "after")

    return compare


def test_equal_masks_of_frames(compare):
    masks = {"a.png": [[0, 1], [2, 0]], "b.png": [[0, 0], [0, 3]]}
    assert compare(masks, masks) == "equal pixel for pixel (3 marked)"


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ({"a.png": [[0, 1], [1, 0]]}, "a.png: 1 of 4 pixels differ before and after the export"),
        ({"a.png": [[0, 1]]}, r"a.png: the mask is \(1, 2\) after the export, it was \(2, 2\)"),
        ({}, "inference wrote 1 results, after it 0"),
    ],
)
def test_other_masks_of_frames(compare, after, words):
    with pytest.raises(ExportError, match=words):
        compare({"a.png": [[0, 1], [2, 0]]}, after)


@pytest.mark.parametrize(("kind", "word"), [("phases", "softmax"), ("segmentation_2d", "PNG"), ("presence", "sigmoid")])
def test_how_frames_are_run(kind, word):
    made, environment = installed()[kind], Environment(loader=PackageLoader("fedmed.export"), undefined=StrictUndefined)
    facts = {"folder": "mine", "shape": "(N, 3, 24, 32)", "value_range": "0…1", "channels": 6, "onnx": True}
    text = environment.get_template(made.card.how_to_run).render(kind=made, **facts)
    assert word in text and "models/model.onnx" in text and "None" not in text
