import errno
import json
import os
import stat
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from fedmed.errors import DataError
from fedmed.labelling.corrections import RECORD, use_labels
from fedmed.labelling.studies import prepare_work, read_site
from fedmed.labelling.views import CORRECTED
from tests.labelling.scans import entry, ones, tree


def datalist(site):
    return json.loads(site.datalist.read_text())


def done(result):
    return {o.case: o.done for o in result.outcomes}


@pytest.fixture
def serve(make_site):
    """Return a function that writes and serves a site: its settings and its work folder."""

    def start(everything=False, **lists):
        path = make_site(**lists)
        return read_site(path), prepare_work(path, everything=everything)

    return start


def test_a_mask_becomes_a_training_case(serve, submit):
    site, work = serve(unlabeled=[entry("a", scanner="S7"), entry("b"), entry("c")])
    site.datalist.chmod(0o640)
    submit(work.folder, "a", ones(7, np.float32))
    before = site.datalist.read_bytes()
    result = use_labels(site, work)
    (outcome,) = result.outcomes
    assert (outcome.case, outcome.done, outcome.note) == ("a", "new", "")
    assert outcome.foreground == pytest.approx(7 * 0.7 * 0.7 * 2 / 1000)
    assert (result.labelled, result.unlabelled, result.changed) == (1, 2, True)
    assert datalist(site) == {
        "training": [{**entry("a"), "label": "corrected_labels/a.nii.gz", "scanner": "S7"}],
        "unlabeled": [entry("b"), entry("c")],
    }
    written = nib.load(site.data_root / CORRECTED / "a.nii.gz")
    image = nib.load(site.data_root / "images/a.nii.gz")
    assert written.get_data_dtype() == np.uint8 and np.array_equal(written.affine, image.affine)
    assert np.array_equal(np.asanyarray(written.dataobj), ones(7))
    assert (site.data_root / "datalist.json.before").read_bytes() == before
    assert stat.S_IMODE(site.datalist.stat().st_mode) == 0o640  # a federation that runs as another user can still read
    assert stat.S_IMODE((site.data_root / CORRECTED / "a.nii.gz").stat().st_mode) == 0o640


def test_running_again_changes_nothing(serve, submit):
    site, work = serve()
    submit(work.folder, "a")
    use_labels(site, work)
    before = tree(site.data_root)
    result = use_labels(site, work)
    assert done(result) == {"a": "unchanged"} and not result.changed and tree(site.data_root) == before
    again = prepare_work(site.source)  # the corrected image is still served, to be corrected again
    assert set(again.images) == set(work.images) and not use_labels(site, again).changed


def test_a_label_corrected_again_replaces_the_earlier_one(serve, submit):
    site, work = serve()
    submit(work.folder, "a")
    use_labels(site, work)
    path = site.data_root / CORRECTED / "a.nii.gz"
    first, lists = path.stat(), datalist(site)
    submit(work.folder, "a", ones(5))
    assert done(use_labels(site, work)) == {"a": "replaced"}
    assert datalist(site) == lists and path.stat().st_mtime_ns != first.st_mtime_ns
    assert np.asanyarray(nib.load(path).dataobj).sum() == 5
    record = json.loads((site.data_root / CORRECTED / RECORD).read_text())
    assert [r["replaces"] for r in record] == [None, "corrected_labels/a.nii.gz"]


def test_a_training_mask_is_replaced_and_kept(serve, submit):
    site, work = serve(everything=True, training=[entry("a", label=True), entry("d", label=True)])
    before = (site.data_root / "labels/a.nii.gz").read_bytes()
    submit(work.folder, "a", ones(9))
    submit(work.folder, "d")  # as it was
    result = use_labels(site, work)
    assert [(o.done, o.note) for o in result.outcomes] == [
        ("replaced", "instead of labels/a.nii.gz, which is kept"),
        ("unchanged", ""),
    ]
    assert (site.data_root / "labels/a.nii.gz").read_bytes() == before
    assert [e["label"] for e in datalist(site)["training"]] == ["corrected_labels/a.nii.gz", "labels/d.nii.gz"]


def test_validation_and_testing_are_never_touched(serve, submit):
    lists = {"validation": [entry("v", label=True)], "testing": [entry("t", label=True)], "unlabeled": [entry("a")]}
    site, work = serve(everything=True, **lists)
    for name in "vt":
        submit(work.folder, name, ones(9))
    before = tree(site.data_root)
    result = use_labels(site, work)
    assert done(result) == {"v": "left alone", "t": "left alone"} and tree(site.data_root) == before
    assert result.outcomes[0].note == "in 'testing', whose masks are never changed"


def test_a_patient_who_is_tested_on_never_enters_training(serve, submit):
    site, work = serve(testing=[entry("t", label=True)], unlabeled=[{**entry("a"), "patient": "P-t"}, entry("b")])
    submit(work.folder, "a")
    submit(work.folder, "b")
    result = use_labels(site, work)
    assert done(result) == {"a": "refused", "b": "new"}
    assert result.outcomes[0].note == "its patient is in 'testing' and must not be trained on"
    assert not any(e["patient"] == "P-t" for e in datalist(site)["training"])


def test_the_last_unlabelled_scan_stays_there_too(serve, submit, lists_of):
    site, work = serve()
    for name in "abc":
        submit(work.folder, name)
    result = use_labels(site, work)
    assert lists_of(site.source) == {"testing": "t", "training": "abc", "unlabeled": "c"}
    assert [o.note for o in result.outcomes] == ["", "", "stays in 'unlabeled' too, which would be empty"]
    assert not use_labels(site, work).changed
    submit(work.folder, "c", ones(9))
    assert done(use_labels(site, work))["c"] == "replaced"
    assert lists_of(site.source) == {"testing": "t", "training": "abc", "unlabeled": "c"}


def test_entries_that_share_an_image_leave_the_list_together(serve, submit, lists_of):
    twice = [entry("a", study=1), entry("b"), entry("a", study=2)]
    site, work = serve(validation=None, training=None, unlabeled=twice)  # null is as good as missing
    submit(work.folder, "a")
    use_labels(site, work)
    assert lists_of(site.source) == {"unlabeled": "b", "training": "a"}
    assert datalist(site)["training"][0] == entry("a", study=1) | {"label": "corrected_labels/a.nii.gz"}


def test_an_image_with_two_training_masks_is_left_to_the_site(serve, submit):
    masks = [entry("a", label=True), {**entry("a"), "label": "labels/other.nii.gz"}]
    site, work = serve(everything=True, training=masks, unlabeled=[entry("b")])
    submit(work.folder, "a", ones(9))
    outcome = use_labels(site, work).outcomes[0]
    assert outcome.done == "refused" and "'training' has its image 2 times" in outcome.note


def test_without_any_foreground_nothing_is_changed(serve, submit):
    site, work = serve()
    submit(work.folder, "a", ones(0))
    before = tree(site.data_root)
    with pytest.raises(DataError, match="none of 1 training masks would have any foreground.*Nothing was changed"):
        use_labels(site, work)
    assert tree(site.data_root) == before
    submit(work.folder, "b")
    result = use_labels(site, work)
    assert done(result) == {"a": "new", "b": "new"}
    assert result.outcomes[0].note == "no foreground: a scan without disease"
    submit(work.folder, "b", ones(0))  # the only foreground is corrected away
    with pytest.raises(DataError, match="none of 2 training masks"):
        use_labels(site, work)
    submit(work.folder, "b")
    submit(work.folder, "c", ones(0))  # an earlier mask has foreground
    assert done(use_labels(site, work)) == {"a": "unchanged", "b": "unchanged", "c": "new"}


def test_masks_that_do_not_fit_are_refused_and_the_others_used(serve, submit):
    site, work = serve()
    submit(work.folder, "a", np.zeros((3, 3, 3), np.uint8))
    submit(work.folder, "b", ones() * 2)
    (work.folder / "labels/final/c.nii.gz").write_bytes(b"cut off")
    submit(work.folder, "stranger")
    notes = {o.case: (o.done, o.note) for o in use_labels(site, work).outcomes}
    assert notes["a"] == ("refused", "mask has shape 3×3×3, image 6×5×4")
    assert notes["b"] == ("refused", "mask has values other than 0 and 1: 2")
    assert notes["c"][0] == "refused" and notes["c"][1].startswith("unreadable")
    assert notes["stranger"] == ("left alone", "its image is not in datalist.json")
    assert "training" not in datalist(site)
    submit(work.folder, "c")
    assert done(use_labels(site, work))["c"] == "new"


def test_of_two_files_of_one_label_the_newest_counts(serve, submit):
    site, work = serve()
    old = submit(work.folder, "a", ones(3), ending=".nii")
    os.utime(old, (1, 1))
    submit(work.folder, "a", ones(8))
    use_labels(site, work)
    assert np.asanyarray(nib.load(site.data_root / CORRECTED / "a.nii.gz").dataobj).sum() == 8


def test_equal_ids_of_two_work_folders_do_not_overwrite_each_other(serve, submit, tmp_path):
    site, work = serve(unlabeled=[entry("x/s"), entry("y/s"), entry("c")])
    submit(work.folder, "s", ones(1))
    use_labels(site, work)
    other = prepare_work(site.data_root / "images" / "y", tmp_path / "other")
    submit(other.folder, "s", ones(2))
    use_labels(site, other)
    assert [(e["image"], e["label"]) for e in datalist(site)["training"]] == [
        ("images/x/s.nii.gz", "corrected_labels/s.nii.gz"),
        ("images/y/s.nii.gz", "corrected_labels/s-2.nii.gz"),
    ]


def test_the_record_says_when_and_from_which_model(serve, submit):
    site, work = serve()
    for name in "abc":
        submit(work.folder, name, ones(5))
    score = {"fedmed": {"uncertainty": {"score": 0.5, "model": "covid_ct_segmentation 0.2.0"}}}
    notes = {
        "a": {"image": {"info": {}}, "labels": {"final": {"info": {"ts": 1767225600, "model": "named by the client"}}}},
        "b": {"image": {"info": score}, "labels": {"final": {"info": {"served": {"m": "1.2", "n": ""}}}}},
        "c": {"image": {"info": score}, "labels": "damaged"},
    }
    (work.folder / "datastore_v2.json").write_text(json.dumps({"objects": notes}))
    use_labels(site, work)
    record = json.loads((site.data_root / CORRECTED / RECORD).read_text())
    assert [r["model"] for r in record] == ["named by the client", "m 1.2, n", "covid_ct_segmentation 0.2.0"]
    assert record[0]["drawn"] == "2026-01-01T00:00:00+00:00" and record[0]["image"] == "images/a.nii.gz"
    (work.folder / "datastore_v2.json").write_text("no JSON")
    submit(work.folder, "a", ones(6))
    use_labels(site, work)
    assert json.loads((site.data_root / CORRECTED / RECORD).read_text())[-1]["model"] == "unknown"


@pytest.mark.parametrize("fail_at", [0, 1, 2, 3, 4])
def test_a_full_disk_changes_nothing(serve, submit, monkeypatch, fail_at):
    """Two masks, the old datalist, the new one and the record are written; the disk is full at each of them."""
    site, work = serve()
    submit(work.folder, "a")
    submit(work.folder, "b")
    before, real, calls = tree(site.data_root), os.fsync, []

    def fsync(handle):
        calls.append(handle)
        if len(calls) == fail_at + 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(DataError, match="No space left on device.*The datalist is unchanged"):
            use_labels(site, work)
    assert tree(site.data_root) == before and not (site.data_root / CORRECTED).exists()
    assert done(use_labels(site, work)) == {"a": "new", "b": "new"}


def test_a_read_only_data_folder_is_an_error(serve, submit, monkeypatch):
    site, work = serve()
    submit(work.folder, "a")

    def refuse(self, *_, **__):
        raise OSError(errno.EROFS, "Read-only file system", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(DataError, match="hospital_b: .* cannot be written .*Read-only file system.*may write there"):
        use_labels(site, work)


def test_a_datalist_that_changes_meanwhile_is_not_overwritten(serve, submit, monkeypatch):
    site, work = serve()
    submit(work.folder, "a")
    real = os.fsync

    def fsync(handle):
        site.datalist.write_text(json.dumps({"unlabeled": [entry("b")]}))
        return real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(DataError, match="was changed by something else meanwhile"):
        use_labels(site, work)
    assert datalist(site) == {"unlabeled": [entry("b")]}


def test_a_linked_datalist_stays_a_link(serve, submit, tmp_path):
    site, work = serve()
    site.datalist.rename(tmp_path / "real.json")
    site.datalist.symlink_to(tmp_path / "real.json")
    submit(work.folder, "a")
    use_labels(site, work)
    assert site.datalist.is_symlink() and len(datalist(site)["training"]) == 1
    assert (tmp_path / "real.json.before").is_file()


def test_a_damaged_datalist_is_an_error(serve, submit):
    site, work = serve()
    submit(work.folder, "a")
    (site.data_root / "images/b.nii.gz").unlink()
    with pytest.raises(DataError, match="images/b.nii.gz does not exist"):
        use_labels(site, work)
    site.datalist.unlink()
    with pytest.raises(DataError, match="datalist.json cannot be read"):
        use_labels(site, work)


def test_the_preprocessing_cache_notices_a_new_and_a_corrected_label(serve, submit, tmp_path):
    from fedmed.data.cache import CaseCacheDataset
    from fedmed.data.cases import LoadCased
    from fedmed.data.datalist import load_datalist

    site, work = serve()

    def prepared(key):
        cases = load_datalist(site.data_root, site.datalist, key)
        return CaseCacheDataset(cases, [LoadCased(["image", "label"])], tmp_path / "cache").prepared(0)

    assert set(prepared("unlabeled")) == {"image"}
    for count in (5, 6):
        submit(work.folder, "a", ones(count))
        use_labels(site, work)
        assert prepared("training")["label"].sum() == count


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        ({"testing": [{"image": "images/t.nii.gz", "label": "covid"}], "unlabeled": [entry("a")]}, "names of classes"),
        ({"training": [{"video": "a.mp4", "labels": "a.csv"}], "unlabeled": [{"video": "b.mp4"}]}, "with tables"),
    ],
)
def test_a_site_whose_labels_no_reader_draws_is_told_where_they_go(serve, submit, lists, words):
    site, work = serve()
    submit(work.folder, "a")
    site.datalist.write_text(json.dumps(lists))
    before = tree(site.data_root)
    with pytest.raises(DataError, match=f"{words}.* Write "):
        use_labels(site, work)
    assert tree(site.data_root) == before
