"""Meaning of a bundle's outputs."""

import pytest
import torch

from fedmed.adapting.decisions import predictions


class Images:
    """Three images, of which a model says what the test wants."""

    def __init__(self, output, classes):
        self.output, self.classes = output, classes

    def __len__(self):
        return 3

    def __getitem__(self, place):
        return {"image": torch.zeros(3, 4, 4)}

    def infer(self, images, network):
        return self.output.expand(len(images), *self.output.shape)


def said(output, classes):
    return predictions(Images(torch.tensor(output), classes), torch.nn.Linear(1, 1))


def test_probabilities_of_one_class_each():
    result = said([0.25, 0.75], ["normal", "ill"])
    assert result.classes == ("normal", "ill") and not result.several and result.called.shares == (0, 1)
    assert [one.place for one in result.each] == [0, 1, 2] and not result.each[0].is_mask


def test_classes_that_may_be_there_at_once():
    assert said([0.75, 0.75], ["hook", "clipper"]).several


def test_logits_of_masks_have_a_background():
    result = said([[[-1.0, 3.0]], [[2.0, -2.0]]], ["nodule"])
    assert result.classes == ("background", "nodule") and result.called.shares == (1, 1)
    assert result.each[0].is_mask and result.each[0].values.tolist() == [[1, 0]]


def test_of_features_nothing_is_said():
    """As those of a model that tells phases of whole videos."""
    assert said([0.5] * 64, ["preparation", "cutting"]) is None


def test_how_many_images_get_other_calls():
    assert said([0.25, 0.75], []).other_calls(said([0.75, 0.25], [])) == pytest.approx(1)
