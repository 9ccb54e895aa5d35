"""Files that an entry of each form must name, and wrong labels."""

import pytest

from fedmed.data.datalist import ClassEntry, MaskEntry, UnlabelledEntry, Video, is_word
from fedmed.errors import DataError


def test_files_that_an_entry_names():
    assert MaskEntry().files("training") == ("image", "label")
    assert MaskEntry().files("unlabeled") == ClassEntry().files("training") == ("image",)


def test_what_is_spelled_like_a_class():
    assert [label for label in ("COVID-19", "grade 1.5", "St. Elsewhere") if not is_word(label)] == []
    assert [label for label in ("labels/a", "a.nii.gz", "..\\x", "", 3) if is_word(label)] == []


def test_labels_are_listed_where_they_count():
    entry = {"image": "a.png", "label": "normal"}
    assert ClassEntry().word("training", entry) == UnlabelledEntry().word("training", entry) == "normal"
    assert ClassEntry().word("unlabeled", entry) is MaskEntry().word("training", entry) is None
    assert UnlabelledEntry().word("training", {"label": "m/a.nii.gz"}) is None


def test_what_is_wrong_with_a_label():
    assert "here: the label is 'normal'" in MaskEntry().wrong("training", "here", {"label": "normal"})
    assert MaskEntry().wrong("training", "here", {"label": "m.nii"}) == ""
    assert "here has no class as its 'label'" in ClassEntry().wrong("testing", "here", {"label": 3})
    assert ClassEntry().wrong("unlabeled", "here", {}) == UnlabelledEntry().wrong("training", "here", {}) == ""


def test_a_mask_may_be_called_like_a_class(tmp_path):
    for name in ("a", "normal"):
        (tmp_path / name).touch()
    entry = {"image": "a", "label": "normal"}
    assert MaskEntry().read(tmp_path, "training", "here", entry)["label"] == str(tmp_path / "normal")
    (tmp_path / "normal").unlink()
    with pytest.raises(DataError, match="here: the label is 'normal', the name of a class"):
        MaskEntry().read(tmp_path, "training", "here", entry)


def test_an_image_alone_keeps_what_else_is_written(tmp_path):
    (tmp_path / "a").touch()
    read = UnlabelledEntry().read(tmp_path, "training", "here", {"image": "a", "label": "gone.nii", "patient": "p"})
    assert read == {"image": str(tmp_path / "a"), "label": "gone.nii", "patient": "p"}


def test_a_video_with_what_is_wanted(tmp_path):
    (tmp_path / "frames").mkdir()
    (tmp_path / "a.csv").touch()
    entry = {"video": "frames", "labels": "a.csv", "patient": "p"}
    read = Video().read(tmp_path, "training", "here", entry)
    assert read == {"video": str(tmp_path / "frames"), "labels": str(tmp_path / "a.csv"), "patient": "p"}
    assert Video(labels=False).files("training") == Video().files("unlabeled") == ("video",)
    with pytest.raises(DataError, match="here has no 'masks'; cases without masks belong into 'unlabeled'"):
        Video(masks=True).read(tmp_path, "training", "here", entry)
    with pytest.raises(DataError, match="the masks .*a.csv does not exist"):
        Video(masks=True).read(tmp_path, "training", "here", {**entry, "masks": "a.csv"})
    with pytest.raises(DataError, match="here is 'a.mp4'; it must look like .*videos/a.mp4"):
        Video().read(tmp_path, "training", "here", "a.mp4")
    assert "names an 'image'" in Video().wrong("training", "here", {"image": "a.png"})
