"""The page that leaves the hospital says nothing of a patient, a file or the machine's name."""

import csv
import getpass
import os
import re
import socket
import stat
from dataclasses import replace

import pytest
from PIL import Image

from fedmed.checks.bins import in_bins, rounded, shown
from fedmed.checks.hospital_report import default_csv, page, print_checked, write_csv, write_page
from fedmed.checks.site_check import Options, check_site
from fedmed.errors import FedMedError

SKIP = ("device", "training")


@pytest.fixture
def broken(small_site):
    """A site with something wrong in every part that names a file or a patient."""
    for seed, name in enumerate(["KOCH_a1", "BAUER_b2", "RICHTER_c3", "WOLF_d4"], start=20):
        small_site.case("training", name, seed)
    small_site.mask("KOCH_a1", value=3)
    (small_site.root / "aufnahmen" / "BAUER_b2.nii.gz").write_bytes(b"\x1f\x8b nothing")
    (small_site.root / "konturen" / "RICHTER_c3.nii.gz").unlink()
    small_site.image("WOLF_d4", 2)  # the voxels of a validation case
    small_site.lists["testing"][0]["patient"] = "Patient-MUELLER_19540312"
    small_site.lists["training"].append("entry ohne image")
    small_site.config(cache_dir="/dev/null/zwischenlager", words={"procedure": "Splenektomie links"})
    return small_site


def secrets(site):
    """Every name that must not leave, and the parts of it."""
    names = {path.name for path in site.root.parent.rglob("*")} | {site.root.parent.name, site.root.name}
    names |= {path.name.split(".")[0] for path in site.root.rglob("*.nii.gz")}
    names |= {entry["patient"] for entries in site.lists.values() for entry in entries if isinstance(entry, dict)}
    names |= {socket.gethostname(), socket.getfqdn(), "zwischenlager", "entry ohne image", "hohenfels", "Splenektomie"}
    names |= {"MUELLER", "WEBER", "WOLF", "19540312", str(site.root), "aufnahmen", "konturen"}
    user = getpass.getuser()
    return {name.lower() for name in names | {f"/{user}", "/home"} if name}


def test_nothing_private_is_on_the_page_but_all_of_it_is_in_the_csv(broken, tmp_path, capsys):
    checked = check_site(str(broken.yaml), Options(role="supervised", skip=SKIP))
    out = write_page(checked, tmp_path / "page.html")
    html = out.read_text(encoding="utf-8").lower()
    assert [name for name in secrets(broken) if name in html] == []
    assert "hospital_k" in html and "does not contain" in html
    assert not re.search(r"\b(19|20)\d\d-\d\d|/(tmp|data|dev)\b|https?:", html)
    assert "src=" not in html and "href=" not in html  # needs nothing else
    kept = write_csv(checked, tmp_path / "kept.csv")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    text = kept.read_text(encoding="utf-8")
    assert all(name in text for name in ("KOCH_a1", "BAUER_b2", "RICHTER_c3", "WOLF_d4", "Patient-MUELLER_19540312"))
    print_checked(checked, kept, out)
    shown = capsys.readouterr().out
    assert "word 'procedure': Splenektomie links" in shown
    assert "KOCH_a1.nii.gz" in shown and "7 problems must be solved" in shown


def test_the_csv_marks_every_entry_of_a_finding(broken, tmp_path):
    checked = check_site(str(broken.yaml), Options(skip=SKIP))
    with write_csv(checked, tmp_path / "kept.csv").open(encoding="utf-8") as file:
        rows = {(row["list"], row["entry"]): row for row in csv.DictReader(file)}
    assert rows["testing", "0"]["status"] == rows["training", "0"]["status"] == "problem"
    assert rows["validation", "0"]["status"] == "problem" and rows["training", "1"]["status"] == "fine"
    assert "does not exist" in rows["training", "4"]["what"]


def test_a_sound_site_is_ready_and_says_what_was_left_out(small_site):
    small_site.config()
    checked = check_site(str(small_site.yaml), Options(skip=SKIP))
    assert checked.ready and checked.left_out == ["training", "device", "connection"]
    html = page(checked)
    assert "Nothing is wrong with what was checked" in html
    assert "not checked: a training step, device and the connection" in html
    assert "The images were not opened" in page(check_site(str(small_site.yaml), Options(skip=(*SKIP, "data"))))


def test_a_name_with_markup_stays_text(small_site):
    small_site.config()
    checked = check_site(str(small_site.yaml), Options(skip=SKIP))
    html = page(replace(checked, site=replace(checked.site, site="<script>x")))
    assert "<script>" not in html and "&lt;script&gt;x" in html


def test_files_that_cannot_be_written_are_told(small_site, tmp_path):
    small_site.config()
    checked = check_site(str(small_site.yaml), Options(skip=SKIP))
    with pytest.raises(FedMedError, match="--out"):
        write_page(checked, small_site.yaml / "page.html")
    with pytest.raises(FedMedError, match="--csv"):
        write_csv(checked, small_site.yaml / "kept.csv")
    assert default_csv("../x").name == "x.csv"


def test_the_csv_holds_no_formula_and_any_file_name(small_site, tmp_path):
    small_site.lists["training"][0]["patient"] = "=HYPERLINK(1)"
    name = os.fsdecode(b"M\xfcller.nii.gz")  # Latin-1, from an old archive
    (small_site.root / "aufnahmen" / "SCHMIDT_19610101.nii.gz").rename(small_site.root / name)
    small_site.lists["training"][1]["image"] = name
    small_site.config()
    kept = write_csv(check_site(str(small_site.yaml), Options(skip=SKIP)), tmp_path / "kept.csv")
    text = kept.read_text(encoding="utf-8")
    assert ",'=HYPERLINK(1)," in text and "M\\udcfcller.nii.gz" in text


def test_paths_are_relative_to_the_yaml_as_it_is_named(small_site, tmp_path, monkeypatch):
    """A link counts where it lies, as in training."""
    small_site.config(data_root="klinikum_hohenfels")
    kept = tmp_path / "settings" / "praxis.yaml"
    kept.parent.mkdir()
    small_site.yaml.rename(kept)
    small_site.yaml.symlink_to(kept)
    monkeypatch.chdir(tmp_path)
    assert check_site("praxis.yaml", Options(skip=SKIP)).site.data_root == small_site.root


def test_a_value_on_an_edge_belongs_above_it():
    bins = in_bins("x", [0.5, 1, 1.5, 2, 7], (1, 2))
    assert bins.rows == (("below 1", 1), ("1 to 2", 2), ("2 and more", 2))


def test_numbers_of_cases_are_rounded_so_that_none_can_be_told_from_the_rest():
    texts = {0: "0", 1: "under 5", 4: "under 5", 5: "about 5", 7: "about 5", 8: "about 10", 13: "about 15"}
    assert {n: shown(n) for n in texts} == texts
    assert [rounded(n) for n in (0, 3, 6)] == [0, 2.5, 5]


CT_JOB = Options(job="covid_ct_segmentation", role="unsupervised", skip=SKIP)


def test_a_test_list_whose_score_stays_here_is_noted(small_site):
    small_site.config()
    job = replace(CT_JOB, role="evaluate")
    (note,) = (one for one in check_site(str(small_site.yaml), job).findings if one.kind == "few_tested")
    assert "1 test case, and 'privacy.min_cases' is 5" in note.text and note.level == "note"


def test_pictures_in_a_job_of_scans_are_one_clear_problem(small_site):
    for name in ("a", "b"):
        Image.new("L", (64, 64), 90).save(small_site.root / f"{name}.jpg")
    small_site.lists = {"unlabeled": [{"image": f"{name}.jpg"} for name in ("a", "b")]}
    small_site.config()
    checked = check_site(str(small_site.yaml), CT_JOB)
    assert "its lists hold pictures, and the job trains on scans" in checked.findings[0].text
    assert {one.kind for one in checked.findings if one.entry is not None} == {"unreadable"}


def test_videos_in_a_job_of_scans_are_told_too(small_site):
    (small_site.root / "a.mp4").touch()
    small_site.lists = {"unlabeled": [{"video": "a.mp4"}]}
    small_site.config()
    assert "its lists hold videos" in check_site(str(small_site.yaml), CT_JOB).findings[0].text
