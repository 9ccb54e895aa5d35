import errno
import json
import os
import stat
from pathlib import Path

import pytest
import yaml

from fedmed.errors import DataError, SiteConfigError
from fedmed.labelling.studies import MAP, prepare_work, read_site, read_work, work_folder
from fedmed.settings.site import parse_site
from tests.labelling.scans import tree


@pytest.fixture
def folder(tmp_path):
    """Studies with equal names in two folders, endings in capitals, and things that are not studies."""
    root = tmp_path / "scans"
    for name in (
        *("scan.nii.gz", "y 2024/scan.nii.gz", "y 2024/deep/er/b.v2.nii", "x/film.PNG", "x/photo.JPEG"),
        *("labels/scan.nii.gz", ".hidden/h.nii.gz", ".h.nii.gz", "notes.txt", "x/slice.dcm"),
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return root


def links(work):
    return {p.name: os.readlink(p) for p in work.folder.iterdir() if p.is_symlink()}


def test_every_image_gets_a_link_with_an_id_of_its_own(folder):
    before = tree(folder)
    work = prepare_work(folder)
    assert set(work.images) == {"scan", "scan-2", "b_v2", "film", "photo"}
    assert set(links(work)) == {"scan.nii.gz", "scan-2.nii.gz", "b_v2.nii", "film.png", "photo.jpg"}
    assert all(Path(target).read_text() in target for target in links(work).values())
    assert links(work)["scan-2.nii.gz"] == str(folder / "y 2024/scan.nii.gz")
    assert stat.S_IMODE(work.folder.stat().st_mode) == 0o700
    assert work.folder == work_folder(folder) and work.folder.name.startswith("scans-")
    assert tree(folder) == before and set(os.listdir(folder)) == {p.relative_to(folder).parts[0] for p in before}


def test_dicom_files_are_images_where_pictures_are_asked_for(folder):
    (folder / "x" / "second.DICOM").write_text("x/second.DICOM")
    work = prepare_work(folder, pictures=True)
    assert set(work.images) == {"scan", "scan-2", "b_v2", "film", "photo", "slice", "second"}
    assert {"slice.dcm", "second.dcm"} < set(links(work))
    assert "slice" not in prepare_work(folder).images, "slices of CT are not separate images"


def test_a_folder_without_pictures_says_which_are_meant(tmp_path):
    with pytest.raises(
        DataError,
        match=r"no image \(.nii, .nii.gz, .png, .jpg\) .* fedmed prepare ct, or give the URL of a DICOMweb",
    ):
        prepare_work(tmp_path)
    with pytest.raises(DataError, match=r"no image \(.nii, .nii.gz, .png, .jpg, .dcm\)"):
        prepare_work(tmp_path, pictures=True)


def test_a_site_of_classes_is_served_like_one_of_masks(tmp_path):
    """Its labels are words, no files; what is served by default are the images without one."""
    lists = {"training": [("a.dcm", "normal"), ("b.png", "normal")], "validation": [("c.jpg", "covid")]}
    entries = {key: [{"image": name, "label": label} for name, label in listed] for key, listed in lists.items()}
    entries["unlabeled"] = [{"image": "d.dcm"}]
    root = tmp_path / "site"
    root.mkdir()
    for name in ["a.dcm", "b.png", "c.jpg", "d.dcm"]:
        (root / name).write_text(name)
    (root / "datalist.json").write_text(json.dumps(entries))
    path = tmp_path / "site.yaml"
    path.write_text(yaml.safe_dump({"site": "s", "data_root": str(root)}))
    assert set(links(prepare_work(path))) == {"d.dcm"}
    assert set(links(prepare_work(path, everything=True))) == {"a.dcm", "b.png", "c.jpg", "d.dcm"}
    (root / "b.png").unlink()
    with pytest.raises(DataError, match="entry 1 of 'training': the image .*b.png does not exist"):
        prepare_work(path, everything=True)


def test_a_site_of_videos_serves_the_frames_of_their_folders(tmp_path):
    root, frames = tmp_path / "site", ["a/1.png", "a/2.png", "b/1.png", "b/deeper/3.jpg", "c/1.png"]
    for name in (*frames, "a/frames.csv", "film.mp4"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    tables = [{"video": "c", "labels": "a/frames.csv"}]
    path = tmp_path / "site.yaml"
    path.write_text(yaml.safe_dump({"site": "s", "data_root": str(root)}))

    def serve(*videos, **options):
        unlabelled = [{"video": video} for video in videos]
        (root / "datalist.json").write_text(json.dumps({"training": tables, "unlabeled": unlabelled}))
        return links(prepare_work(path, **options))

    served = serve("a", "b")
    assert set(served) == {"1.png", "1-2.png", "2.png", "3.jpg"}
    assert served["1-2.png"].endswith("/b/1.png") and served["3.jpg"].endswith("/b/deeper/3.jpg")
    assert len(serve("a", "b", everything=True)) == 5
    with pytest.raises(DataError, match=r"film.mp4 is a video, and the label server shows single pictures.*ffmpeg"):
        serve("a", "film.mp4")
    with pytest.raises(DataError, match="has no 'unlabeled' videos; --all serves"):
        serve()


def test_folders_may_be_links_and_each_image_is_served_once(folder, tmp_path):
    """Hospitals put large disks behind links; one that leads upwards must not be walked for ever."""
    (disk := tmp_path / "disk").mkdir()
    (disk / "far.nii.gz").write_text("far")
    (folder / "a_disk").symlink_to(disk)
    (folder / "b_disk").symlink_to(disk)
    (disk / "up").symlink_to(folder)
    work = prepare_work(folder)
    assert set(work.images) == {"scan", "scan-2", "b_v2", "film", "photo", "far"}
    assert work.images["far"] == folder / "a_disk/far.nii.gz"


def test_ids_stay_when_images_come_and_go_and_are_never_given_to_others(folder, tmp_path):
    first = prepare_work(folder)
    label = first.folder / "labels/final/scan.nii.gz"
    label.parent.mkdir(parents=True)
    label.write_text("a reader's work")
    (folder / "scan.nii.gz").rename(tmp_path / "away")
    (folder / "a").mkdir()
    (folder / "a" / "scan.nii.gz").write_text("another")
    second = prepare_work(folder)
    assert second.images["scan-2"] == first.images["scan-2"] and "scan" not in second.images
    assert second.images["scan-3"] == folder / "a/scan.nii.gz" and second.gone == {"scan": folder / "scan.nii.gz"}
    assert "scan.nii.gz" not in links(second) and label.read_text() == "a reader's work"
    (tmp_path / "away").rename(folder / "scan.nii.gz")
    third = prepare_work(folder)
    assert third.images["scan"] == folder / "scan.nii.gz" and not third.gone
    assert read_work(third.folder) == third


def test_running_again_changes_nothing(folder):
    work = prepare_work(folder)
    before = {p: p.lstat().st_mtime_ns for p in work.folder.iterdir()}
    assert prepare_work(folder) == work
    assert {p: p.lstat().st_mtime_ns for p in work.folder.iterdir()} == before


def test_an_uploaded_image_keeps_its_name(folder):
    work = prepare_work(folder)
    (work.folder / "new.nii.gz").write_text("uploaded")
    (folder / "new.nii.gz").write_text("later")
    again = prepare_work(folder)
    assert again.images["new-2"] == folder / "new.nii.gz" and (work.folder / "new.nii.gz").read_text() == "uploaded"


def test_a_site_serves_its_unlabelled_images_or_all(make_site):
    path = make_site()
    work = prepare_work(path)
    assert list(work.images) == ["a", "b", "c"] and work.folder.name.startswith("hospital_b-")
    assert set(prepare_work(path, everything=True).images) == {"a", "b", "c", "t"}
    assert set(prepare_work(path).gone) == {"t"}
    assert read_site(path).device == "cpu", "the reader's computer may have no GPU"


def test_the_work_on_a_site_is_found_from_any_copy_of_its_yaml(make_site, tmp_path):
    path = make_site()
    (tmp_path / "local").mkdir()
    copy = tmp_path / "local" / "fedmed_site.yaml"
    copy.write_text(path.read_text())
    assert work_folder(copy) == work_folder(path)


def test_a_linked_yaml_means_the_same_data_as_in_training(make_site, tmp_path):
    """Relative paths in it are relative to the link."""
    path = make_site()
    path.write_text(path.read_text().replace(str(tmp_path / "site"), "site"))
    (tmp_path / "shared").mkdir()
    path.rename(tmp_path / "shared" / path.name)
    path.symlink_to(tmp_path / "shared" / path.name)
    values = yaml.safe_load(path.read_text()) | {"device": "cpu", "amp": False}
    assert read_site(path).data_root == parse_site("hospital_b", values, path).data_root == tmp_path / "site"
    assert list(prepare_work(path).images) == ["a", "b", "c"]


def test_a_site_without_unlabelled_images_is_told_about_all(make_site):
    path = make_site(training=[{"image": "images/a.nii.gz", "label": "labels/a.nii.gz"}])
    with pytest.raises(DataError, match="has no 'unlabeled' images; --all serves"):
        prepare_work(path)
    assert list(prepare_work(path, everything=True).images) == ["a"]


def test_what_is_no_studies_is_an_error(tmp_path, folder):
    for given, words in (
        (tmp_path / "absent", "does not exist; give a folder"),
        (tmp_path / "absent.yaml", "absent.yaml does not exist"),
        (folder / "notes.txt", "is neither a folder nor a site's YAML"),
    ):
        with pytest.raises(DataError, match=words):
            prepare_work(given)
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump({"data_root": str(folder), "colour": "red"}))
    with pytest.raises(SiteConfigError, match="unknown key 'colour'"):
        prepare_work(tmp_path / "bad.yaml")
    (tmp_path / "list.yaml").write_text("- a")
    with pytest.raises(SiteConfigError, match="holds a list"):
        prepare_work(tmp_path / "list.yaml")


def test_a_work_folder_of_something_else_is_an_error(folder, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("x")
    (tmp_path / "file").write_text("x")
    for work, words in (
        (folder / "work", "lies inside the images' folder"),
        (folder, "lies inside the images' folder"),
        (tmp_path / "file", "is a file; name another with --work"),
        (tmp_path / "thesis", "is not empty and is not a work folder"),
    ):
        with pytest.raises(DataError, match=words):
            prepare_work(folder, work)
    other = tmp_path / "other"
    other.mkdir()
    (other / "o.nii").write_text("x")
    mine = prepare_work(folder, tmp_path / "work")
    with pytest.raises(DataError, match="is the work folder of .*scans"):
        prepare_work(other, mine.folder)
    (mine.folder / MAP).write_text("{}")
    with pytest.raises(DataError, match="is damaged"):
        prepare_work(folder, mine.folder)
    with pytest.raises(DataError, match="is not a work folder"):
        read_work(tmp_path / "absent")


def test_unreadable_images_are_left_out_and_said(folder, monkeypatch):
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).suffix != ".PNG" and real(path, mode))
    work = prepare_work(folder)
    assert work.skipped == (folder / "x/film.PNG",) and "film" not in work.images
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(DataError, match="none of 5 images may be read"):
        prepare_work(folder)


def test_a_folder_that_cannot_be_listed_is_an_error(folder, monkeypatch):
    real = os.scandir

    def scandir(path):
        if Path(path).name == "x":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(DataError, match="cannot be listed"):
        prepare_work(folder)


@pytest.mark.parametrize("broken", ["mkdir", "symlink_to", "chmod"])
def test_a_full_or_read_only_disk_is_an_error_and_the_next_run_repairs_it(folder, tmp_path, monkeypatch, broken):
    def fail(self, *_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    with monkeypatch.context() as patch:
        patch.setattr(Path, broken, fail)
        with pytest.raises(DataError, match="cannot be written .No space left on device.; free some space or name"):
            prepare_work(folder, tmp_path / "work")
    work = prepare_work(folder, tmp_path / "work")
    assert len(links(work)) == 5
    assert set(json.loads((work.folder / MAP).read_text())["images"]) == set(work.images)
