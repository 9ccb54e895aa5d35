"""Images that a site trains on, in words and as plain values."""

import json

import pytest

from fedmed.data.patients import TrainedOn, owners


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (TrainedOn(88, 0, 44, 0, 88), "88 labelled images of 44 patients"),
        (TrainedOn(3, 0, 1, 0, 88), "3 of 88 labelled images of 1 patient"),
        (TrainedOn(1, 12, 1, None, 1), "1 labelled image of 1 patient and 12 unlabelled images"),
        (TrainedOn(0, 1, 0, 1, what="video"), "1 unlabelled video of 1 patient"),
        (TrainedOn(1, 0, None, 0, 2, "video"), "1 of 2 labelled videos"),
        (TrainedOn(), "0 labelled images"),
    ],
)
def test_the_words_say_what_is_known(counts, words):
    assert counts.words == words and TrainedOn.read(json.loads(json.dumps(counts.facts()))) == counts


@pytest.mark.parametrize("wrong", [{"labelled": "3"}, {"what": "<b>"}, {"listed": True}, {"unlabelled": None}])
def test_a_damaged_line_tells_nothing(wrong):
    assert TrainedOn.read({**TrainedOn(3).facts(), **wrong}) is None and TrainedOn.read({}) is None


def test_each_image_counts_once_and_spellings_of_an_id_are_one_patient(tmp_path):
    listed = [{"image": "a.png", "patient": "P 01"}, {"image": "b.png", "patient": "p1"}, {"image": "c.png"}, 7]
    (tmp_path / "datalist.json").write_text(json.dumps({"training": listed, "unlabeled": []}))
    patients = owners(tmp_path, tmp_path / "datalist.json", "training")
    a, b, c = (str(tmp_path / f"{name}.png") for name in "abc")
    assert patients == {a: "p1", b: "p1", c: None} and owners(tmp_path, tmp_path / "datalist.json", "unlabeled") == {}
    assert TrainedOn.of([a, a, b], [], patients).words == "2 labelled images of 1 patient"
    assert TrainedOn.of([a, b, c], [], patients).words == "3 labelled images", "of one nobody says whose it is"
