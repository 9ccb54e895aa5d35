"""Readers' masks of single frames become training data of a site of videos."""

import json
import re

import numpy as np
import pytest
import yaml
from PIL import Image

from fedmed.data.video.frame_masks import FrameMasks
from fedmed.errors import DataError
from fedmed.labelling.corrections import RECORD, use_labels
from fedmed.labelling.studies import prepare_work, read_site
from fedmed.labelling.views import CORRECTED

SIZE = (6, 8)


def mask(*pixels):
    """A mask with these (row, column, value)."""
    values = np.zeros(SIZE, np.uint8)
    for row, column, value in pixels:
        values[row, column] = value
    return values


def save(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path)


def video(root, name, masks=()):
    """Three frames, at 0, 0.5 and 12 s; masks by time."""
    folder = root / "videos" / name
    for number in range(3):
        save(folder / f"{name}{number}.png", np.full((*SIZE, 3), 40 * number, np.uint8))
    times = zip(range(3), (0, 0.5, 12), strict=True)
    lines = ["file,second", *(f"{name}{number}.png,{second}" for number, second in times)]
    (folder / "frames.csv").write_text("\n".join(lines))
    for file, values in masks:
        save(root / "masks" / name / file, values)
    return {"video": f"videos/{name}", "patient": f"P-{name}"} | ({"masks": f"masks/{name}"} if masks else {})


@pytest.fixture
def serve(tmp_path):
    """Return a function that writes a site's lists and serves it: its settings and its work folder."""

    def start(everything=False, **names):
        root = tmp_path / "site"
        labelled = [("00000000.png", mask((0, 0, 1))), ("00000500.png", mask((1, 1, 2)))]
        lists = {
            key: [video(root, name, () if key == "unlabeled" else labelled) for name in listed]
            for key, listed in names.items()
        }
        (root / "datalist.json").write_text(json.dumps(lists))
        path = tmp_path / "theatre.yaml"
        path.write_text(yaml.safe_dump({"site": "theatre", "data_root": str(root)}))
        return read_site(path), prepare_work(path, everything=everything)

    return start


def submit(work, frame, values, ending=".png"):
    save(work.folder / "labels" / "final" / f"{frame}{ending}", values)


def lists(site):
    return json.loads(site.datalist.read_text())


def done(result):
    return {one.case: (one.done, one.note) for one in result.outcomes}


def drawn(site, folder):
    return {path.name: np.array(Image.open(path)) for path in sorted((site.data_root / folder).glob("*.png"))}


def test_masks_of_frames_make_a_video_a_training_case(serve):
    site, work = serve(unlabeled="ab")
    submit(work, "a1", mask((2, 3, 1), (2, 4, 3)))
    submit(work, "a2", mask((5, 7, 2)))
    result = use_labels(site, work)
    stays = ("new", "")
    assert done(result) == {"a1": stays, "a2": stays} and (result.labelled, result.unlabelled) == (1, 1)
    assert [one.foreground for one in result.outcomes] == pytest.approx([200 / 48, 100 / 48])
    assert lists(site) == {
        "training": [{"video": "videos/a", "masks": f"{CORRECTED}/a", "patient": "P-a"}],
        "unlabeled": [{"video": "videos/b", "patient": "P-b"}],
    }
    masks = drawn(site, f"{CORRECTED}/a")
    assert list(masks) == ["00000500.png", "00012000.png"]  # called as training expects: by the time of the frame
    assert np.array_equal(masks["00000500.png"], mask((2, 3, 1), (2, 4, 3)))
    assert [second for second, _ in FrameMasks(site.data_root / CORRECTED / "a", range(4)).files()] == [0.5, 12]
    record = json.loads((site.data_root / CORRECTED / RECORD).read_text())
    assert [(one["video"], one["frame"]) for one in record] == [("videos/a", f) for f in masks]


def test_again_changes_nothing_and_another_mask_replaces_it(serve):
    site, work = serve(unlabeled="ab")
    submit(work, "a1", mask((2, 3, 1)))
    use_labels(site, work)
    before = lists(site)
    again = prepare_work(site.source)  # what was corrected is still served
    assert again.images == work.images
    assert done(use_labels(site, again)) == {"a1": ("unchanged", "")}
    submit(work, "a1", mask((2, 3, 2)))
    submit(work, "a0", mask())
    empty = ("new", "no foreground: a frame that shows nothing")
    assert done(use_labels(site, again)) == {"a0": empty, "a1": ("replaced", "")} and lists(site) == before
    largest = {name: values.max() for name, values in drawn(site, f"{CORRECTED}/a").items()}
    assert largest == {"00000000.png": 0, "00000500.png": 2}


def test_the_masks_that_a_video_had_stay_and_go_on_to_be_used(serve):
    site, work = serve(everything=True, training="a", unlabeled="b")
    submit(work, "a1", mask((4, 4, 3)))
    submit(work, "a2", mask((5, 5, 3)))
    submit(work, "a0", mask((0, 0, 1)))  # as it was
    assert done(use_labels(site, work)) == {
        "a0": ("unchanged", ""),
        "a1": ("replaced", "instead of masks/a, which is kept"),
        "a2": ("new", ""),
    }
    assert lists(site)["training"] == [{"video": "videos/a", "patient": "P-a", "masks": f"{CORRECTED}/a"}]
    largest = {name: values.max() for name, values in drawn(site, f"{CORRECTED}/a").items()}
    assert largest == {"00000000.png": 1, "00000500.png": 3, "00012000.png": 3}
    assert drawn(site, "masks/a")["00000500.png"].max() == 2


def test_videos_that_are_tested_on_are_never_changed(serve):
    site, work = serve(everything=True, testing="t", validation="v", unlabeled="ab")
    for name in ("t0", "v1"):
        submit(work, name, mask((1, 1, 3)))
    before = site.datalist.read_bytes()
    assert done(use_labels(site, work)) == {
        "t0": ("left alone", "in 'testing', whose masks are never changed"),
        "v1": ("left alone", "in 'validation', whose masks are never changed"),
    }
    assert site.datalist.read_bytes() == before and not (site.data_root / CORRECTED).exists()


@pytest.mark.parametrize(
    ("values", "ending", "words"),
    [
        (np.zeros((6, 9), np.uint8), ".png", r"shape \(6, 9\), its picture \(6, 8\)"),
        (np.zeros((*SIZE, 3), np.uint8), ".png", "in one channel"),
        (np.full(SIZE, 300, np.uint16), ".png", "has the value 300"),
        (np.zeros(SIZE, np.uint8), ".tif", "save the mask as .png"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(serve, values, ending, words):
    site, work = serve(unlabeled="ab")
    submit(work, "a1", values, ending)
    (outcome,) = use_labels(site, work).outcomes
    assert outcome.done == "refused" and re.search(words, outcome.note)
    assert "training" not in lists(site)


def test_without_times_a_frame_has_no_mask(serve):
    site, work = serve(unlabeled="ab")
    (site.data_root / "videos/a/frames.csv").unlink()
    submit(work, "a1", mask((1, 1, 1)))
    (outcome,) = use_labels(site, work).outcomes
    assert outcome.done == "refused" and "write frames.csv" in outcome.note


def test_empty_masks_are_taken_beside_others_alone(serve):
    site, work = serve(unlabeled="ab")
    submit(work, "a1", mask())
    with pytest.raises(DataError, match="none of 1 training masks would have any foreground"):
        use_labels(site, work)
    assert not (site.data_root / CORRECTED).exists()
    site, work = serve(everything=True, training="a", unlabeled="b")
    submit(work, "a1", mask())
    assert done(use_labels(site, work))["a1"][0] == "replaced"
