"""Each kind names classes that exist, and every kind of the folder is found without being entered anywhere."""

import pytest

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.score import DICE, HD95, Score
from fedmed.data.datalist import ClassEntry, MaskEntry, UnlabelledEntry, Video
from fedmed.errors import BundleError
from fedmed.kinds.classification import Classification
from fedmed.kinds.encoder import Encoder
from fedmed.kinds.find_kind import installed, kind_by_look, kind_of, load_kind, made, named_class
from fedmed.kinds.kind import Kind
from fedmed.kinds.phases import Phases
from fedmed.kinds.phases_over_time import PhasesOverTime
from fedmed.kinds.presence import Presence
from fedmed.kinds.segmentation_2d import Segmentation2D
from fedmed.kinds.segmentation_3d import Segmentation3D

IMAGE, MASK = {"image": "a.nii.gz"}, {"image": "a.nii.gz", "label": "m.nii.gz"}
NAMED = {"image": "a.png", "label": "normal"}


def test_every_file_of_the_folder_is_a_kind():
    kinds = {"classification": Classification, "encoder": Encoder, "phases": Phases, "phases_over_time": PhasesOverTime}
    kinds |= {"presence": Presence, "segmentation_2d": Segmentation2D, "segmentation_3d": Segmentation3D}
    assert installed() == kinds


@pytest.mark.parametrize(
    "kind", [Segmentation3D(), Segmentation2D(), Classification(), Phases(), Presence(), Encoder(Classification())]
)
def test_the_classes_that_a_kind_names_are_there(kind):
    for path, methods in {
        kind.inspects: ("open", "judge", "judge_labels", "rows", "bins", "cache_bytes"),
        kind.report: ("summary", "note", "facts", "table", "training", "values", "charts", "figure"),
        kind.exporter: ("baked", "kept", "start", "complete_without", "facts", "same_results", "next_steps"),
    }.items():
        assert all(hasattr(named_class(path, "test"), method) for method in methods), path


def test_a_bundle_names_its_kind_and_an_overlay_another():
    assert kind_of(Bundle("covid_ct_segmentation", ["demo", "unlabelled", "consistency"])) == Segmentation3D()
    assert kind_of(Bundle("cxr_classification", ["demo", "linear"])) == Classification()
    assert kind_of(Bundle("surgical_tool_classification", ["demo"])) == Presence()
    assert kind_of(Bundle("cxr_classification", ["demo", "pretrain"])) == Encoder(Classification())
    temporal = kind_of(Bundle("surgical_phase_classification", ["demo", "temporal"]))
    assert temporal == PhasesOverTime(Phases()) and temporal.inspects == Phases().inspects


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("segmentation3d", "'segmentation3d'; use classification, .* did you mean 'segmentation_3d'"),
        (None, "None; use classification, .*segmentation_3d, or the class path"),
        (3, "3; use"),
        ("fedmed.kinds.encoder.Decoder", "'fedmed.kinds.encoder.Decoder', which cannot be imported"),
        ("nowhere.Kind", "'nowhere.Kind', which cannot be imported"),
        ("pathlib.Path", "'pathlib.Path', which is not a Kind"),
    ],
)
def test_an_unknown_kind_is_one_clear_error(spec, message):
    with pytest.raises(BundleError, match=f"^here (is )?{message}"):
        load_kind(spec, "here")


def test_a_class_path_of_elsewhere_is_a_kind_too():
    assert load_kind("fedmed.kinds.encoder.Encoder", "here", Classification()).base == Classification()


def test_a_kind_without_images_of_its_own_needs_a_base():
    assert Encoder(Segmentation3D()).inspects == Segmentation3D.readers["volume"]
    with pytest.raises(BundleError, match="the kind Encoder opens images as another does"):
        _ = Encoder().inspects


def test_forms_and_scores():
    assert Segmentation3D().form(["a"]) == MaskEntry() and Encoder().form() == UnlabelledEntry()
    assert Classification().form(["a", "b"]) == ClassEntry(("a", "b"))
    assert Presence().form(["grasper"]) == Phases().form(["cleaning"]) == Video()
    assert Segmentation2D().form(["shaft"]) == Video(labels=False, masks=True)
    assert Segmentation2D().validation_error(["shaft", "jaw"]) == Phases().validation_error(["a", "b"]) == ""
    assert "phases are two or more" in Phases().validation_error(
        ["a"]
    ) and "names 'mean'" in Segmentation2D().validation_error(["mean"])
    auroc = Score("auroc", "AUROC", "auroc", low="auroc_low", high="auroc_high")
    assert [score.name for score in Classification().further_scores(auroc)] == ["accuracy"]
    assert Segmentation3D().further_scores(DICE) == (HD95,) and Encoder().further_scores(auroc) == ()
    assert all(score.label and score.test for kind in installed().values() for score in kind.scores)


def test_words_of_the_card():
    card, channels = Segmentation3D.card, [("0", "a"), ("1", "b")]
    assert "0 = a, 1 = b" in card.channels(channels) and "0" not in Classification.card.channels(channels)
    assert card.part("supervised") == "trained with masks" and card.part("evaluate") == "none, tested only"
    assert Encoder.card.part("supervised") == Encoder.card.part("unsupervised") == "trained without labels"


@pytest.mark.parametrize(
    ("lists", "kind"),
    [
        ({"training": [MASK], "unlabeled": [IMAGE]}, Segmentation3D),
        ({"training": [NAMED], "unlabeled": [IMAGE]}, Classification),
        ({"training": [{"image": "a.nii.gz", "label": "grade 1.5"}]}, Classification),
        ({"training": [NAMED], "testing": [MASK]}, Segmentation3D),
        ({"training": [{"image": "a.png", "label": 3}, NAMED]}, Segmentation3D),
        ({"training": [{"image": "a.png", "label": ""}]}, Segmentation3D),
        ({"training": [{"video": "a.mp4", "labels": "a.csv"}], "unlabeled": [{"video": "b.mp4"}]}, Presence),
        ({"training": [{"video": "a", "labels": "a.csv", "masks": "m"}, {"video": "b", "masks": "m"}]}, Presence),
        ({"training": [{"video": "a", "masks": "m"}], "unlabeled": [{"video": "b"}]}, Segmentation2D),
        ({"unlabeled": [{"video": "b"}]}, Presence),
        ({"unlabeled": [{"video": "b"}, IMAGE]}, Segmentation3D),
        ({"unlabeled": [{"image": "a.PNG"}, {"image": "b.dcm"}]}, Classification),
        ({"unlabeled": [{"image": "a.png"}, IMAGE]}, Segmentation3D),
        ({"unlabeled": [{"image": "a.png", "label": "labels/x.nii.gz"}]}, Classification),  # nobody reads that label
        ({"training": "rubbish", "unlabeled": ["x"]}, Segmentation3D),
        ({}, Segmentation3D),
    ],
)
def test_a_site_without_a_job_is_taken_for_what_it_looks_like(lists, kind):
    assert type(kind_by_look(lists)) is kind


def test_another_kind_is_one_file(tmp_path, monkeypatch):
    """A kind outside the room, as a bundle of others brings it, with everything taken from two that there are."""
    (tmp_path / "tool_presence.py").write_text(
        "from fedmed.bundles.score import Score\n"
        "from fedmed.kinds.classification import Classification\n"
        "class ToolPresence(Classification):\n"
        "    scores = (Score('map', 'mAP', 'map'),)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    kind = load_kind("tool_presence.ToolPresence", "here")
    assert isinstance(kind, Kind) and kind.scores[0].label == "mAP" and made(kind.inspects)


def test_images_that_a_kind_does_not_read_are_named():
    assert load_kind("classification", "here", images="volume").inspects.endswith("ClassifiedCTInspection")
    with pytest.raises(BundleError, match="'images' is 'slide'; Classification reads radiograph, volume"):
        load_kind("classification", "here", images="slide")
