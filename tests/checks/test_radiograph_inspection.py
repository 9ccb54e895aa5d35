"""Radiographs are opened by the bundle's own reader; classes and what is exchanged are held against the job."""

import csv
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from fedmed.checks import measurement, measuring_process
from fedmed.checks.bins import judge_classes, picture_table
from fedmed.checks.bundle_demands import BundleDemands, check_exchange, check_share, read_demands
from fedmed.checks.entries import Entry, check_lists, read_entries
from fedmed.checks.facts import round_seconds, round_steps
from fedmed.checks.hospital_report import page, print_checked, write_csv
from fedmed.checks.measurement import Measured
from fedmed.checks.part_in_job import find_work
from fedmed.checks.radiograph_inspection import PICTURE, RadiographInspection
from fedmed.checks.site_check import Options, check_site
from fedmed.checks.video_inspection import VideoInspection
from fedmed.data import image_size
from fedmed.data.datalist import ClassEntry
from fedmed.data.patients import TrainedOn
from fedmed.data.prepare.pool import DIED
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import write_job
from fedmed.kinds.classification import Classification
from fedmed.kinds.encoder import Encoder
from fedmed_demo.xray.image_files import Header, save
from tests.checks.parts import part_in_job

NAMES = ("normal", "bacteria", "virus")
SKIP = ("training", "disk", "device")
EXTRAS = ("mu", "n", "rsa", "sigma")
SUPERVISED = {
    "bundle": "cxr_classification",
    "method": {"path": "fedmed.methods.supervised_fedavg.SupervisedFedAvg"},
    "sites": {"hospital_k": "supervised"},
}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A supervised job with the classes of ``xray_site``."""
    said = {"classes": list(NAMES), "overrides": {"supervised": {"label_fraction": 0.5}}}
    job = Job.of({**SUPERVISED, "name": "study", "rounds": 2, "epochs": 2, "overlays": ["demo"], **said})
    return write_job(job, tmp_path_factory.mktemp("jobs") / "study")


@pytest.fixture(scope="module")
def pretraining(tmp_path_factory):
    """A job of federated contrastive pre-training."""
    study = {"name": "pre", "bundle": "cxr_classification", "overlays": ["demo"], "rounds": 2, "epochs": 1}
    study |= {"method": {"path": "fedmed.systems.fedmoco.method.FedMoCo", "args": {"exchange_from": 1}}}
    study |= {"sites": {"hospital_k": "unsupervised", "b": "unsupervised"}, "select": "last", "evaluate": False}
    study |= {"overrides": {"unsupervised": {"batch_size": 4, "queue_size": 16}}}
    return write_job(Job.of(study), tmp_path_factory.mktemp("jobs") / "pre")


@pytest.fixture
def check(xray_site):
    """Return a function: job or None -> what is found about the data."""

    def check(job=None, skip=SKIP, **settings):
        xray_site.config(**settings)
        return check_site(str(xray_site.yaml), Options(job=job and str(job), skip=skip))

    return check


def kinds(checked):
    return [finding.kind for finding in checked.findings]


# --- images


def test_every_kind_of_file_is_opened_as_training_opens_it(xray_site, check):
    image = np.linspace(0, 1, 48 * 36, dtype=np.float32).reshape(48, 36)
    header = Header("p", 0, 7, 0.2, "PA")
    for number, kind in enumerate(("dx", "jpeg", "cr", "png")):
        relative = save(image * (1 - 0.1 * number), xray_site.root, f"{kind}{number}", kind, header)
        xray_site.lists["unlabeled"].append({"image": relative, "patient": kind})
    checked = check()
    cases = {entry.image.name: case for entry, case in checked.cases.items()}
    assert checked.ready, checked.findings
    assert {cases[name].kind for name in ("dx0.dcm", "cr2.dcm")} == {"DICOM"}
    assert cases["jpeg1.jpg"].kind == "JPEG" and cases["png3.png"].shape == (48, 36)
    assert all(0 < cases[name].mean < 1 for name in ("dx0.dcm", "jpeg1.jpg", "cr2.dcm", "png3.png"))


def test_what_the_reader_refuses_is_a_problem_with_its_place(xray_site, check):
    folder = xray_site.root / "bilder"
    (folder / "training1.png").write_bytes((folder / "training1.png").read_bytes()[:60])
    colour = np.zeros((40, 30, 3), np.uint8)
    colour[..., 0] = 250
    Image.fromarray(colour).save(folder / "testing0.png")
    (folder / "unlabeled3.png").write_bytes(b"no image")
    checked = check()
    assert kinds(checked) == ["picture"] * 3 and not checked.ready
    texts = [finding.text for finding in checked.findings]
    assert texts[0].startswith("training, entry 1 (training1.png): is damaged (")
    assert "testing, entry 0 (testing0.png): is a colour photograph" in texts[1]
    assert "is not a DICOM, PNG or JPEG file" in texts[2] and str(xray_site.root) not in "".join(texts)


def test_images_that_would_take_all_memory_are_problems_with_their_place(xray_site, check, monkeypatch):
    monkeypatch.setattr(image_size, "PIXELS", 1)
    checked = check()
    assert set(kinds(checked)) == {"picture"} and not checked.ready
    first = checked.findings[0].text
    assert first.startswith("training, entry 0 (training0.png): does not fit into memory:") and "pixels" in first


@pytest.mark.parametrize("inspection", [RadiographInspection, VideoInspection])
def test_an_image_at_which_the_reader_dies_is_a_problem_with_its_place(tmp_path, monkeypatch, inspection):
    def all_die(work, sources, workers, track, *, apart, died):
        return [died(source) for source in sources]

    for module in ("radiograph", "video"):
        monkeypatch.setattr(f"fedmed.checks.{module}_inspection.run_all", all_die)
    (tmp_path / "a.png").touch()
    entry = Entry("training", 0, tmp_path / "a.png", None, None)
    (finding,) = inspection().judge_images(inspection().open([entry]), None)
    assert DIED in finding.text and finding.entry == 0


def test_patients_and_copies_in_two_lists_and_images_of_two_classes(xray_site, check):
    folder, lists = xray_site.root / "bilder", xray_site.lists
    lists["validation"][0]["patient"] = lists["training"][0]["patient"]
    (folder / "testing1.png").write_bytes((folder / "unlabeled1.png").read_bytes())
    lists["training"].append({"image": "bilder/training2.png", "label": "virus", "patient": "Ptraining2"})
    checked = check()
    assert sorted(kinds(checked)) == ["copy", "patient", "twice", "two_classes"]
    texts = {finding.kind: finding.text for finding in checked.findings}
    assert "patient 'Ptraining0' is in two lists" in texts["patient"]
    assert "the same image is in two lists" in texts["copy"]
    assert "(training2.png) as 'bacteria'; training, entry 4 (training2.png) as 'virus'" in texts["two_classes"]


def test_images_below_the_networks_size_are_worth_a_look(check, study):
    checked = check(study)
    (finding,) = [f for f in checked.findings if f.kind == "small_picture"]
    assert "16 images are smaller than the network's input of 64 pixels" in finding.text and finding.level == "note"


@pytest.mark.slow
def test_worker_processes_find_the_same(xray_site, monkeypatch):
    monkeypatch.setattr("fedmed.checks.radiograph_inspection.POOL_FROM", 2)
    entries, _ = read_entries(xray_site.config(), ClassEntry())
    inspection = RadiographInspection()
    assert inspection.open(entries[:3], workers=2) == inspection.open(entries[:3])


def test_disk_space_of_radiographs_is_that_of_prepared_ones(check):
    checked, cache_bytes = check(), RadiographInspection().cache_bytes
    assert cache_bytes(checked.entries, checked.cases, [], None) == 16 * PICTURE
    assert cache_bytes(checked.entries, checked.cases, [], 100) == 1600


# --- classes


def test_labels_that_are_no_class_of_the_job(xray_site, check, study):
    xray_site.lists["training"][3]["label"] = "viral"
    xray_site.lists["validation"][2]["label"] = xray_site.lists["validation"][3]["label"] = "normal"
    checked = check(study)
    seen = {finding.kind: finding for finding in checked.findings}
    assert "'viral', which is not a class of the job; use one of normal, bacteria, virus" in seen["class"].text
    assert seen["one_class"].text.startswith("all images of 'validation' are 'normal'")
    assert "no training image is of the class 'virus'" in seen["no_class"].text and seen["no_class"].level == "note"
    assert not checked.ready


def test_labels_do_not_matter_to_a_pretraining(xray_site, check, pretraining):
    xray_site.lists["training"][3]["label"] = "viral"
    del xray_site.lists["testing"]
    del xray_site.lists["validation"]
    assert kinds(check(pretraining)) == ["small_picture"]


def test_one_class_is_enough_for_a_test_list_but_gives_no_auroc(xray_site):
    entries, _ = read_entries(xray_site.config(), ClassEntry())
    alike = [entry for entry in entries if entry.label in (None, "normal")]
    assert [f.kind for f in judge_classes(alike, NAMES, "evaluate")] == ["no_auroc"]
    judged = judge_classes(alike, NAMES, "supervised", chooses=False)
    assert [f.kind for f in judged] == ["one_class", "no_class", "no_auroc"]


def test_which_lists_a_job_check_lists(tmp_path):
    some = {"training": 3, "unlabeled": 2}
    judged = check_lists(some, "supervised", tmp_path, kind=Classification())
    assert [f.kind for f in judged] == ["not_validated", "not_scored"]
    assert list(check_lists(some, "supervised", tmp_path, kind=Classification(), chooses=False, scores=False)) == []
    for counts, expected in ((some, []), ({"training": 3}, []), ({"testing": 3}, ["list"])):
        assert [f.kind for f in check_lists(counts, "unsupervised", tmp_path, kind=Encoder())] == expected


# --- what leaves


def test_the_page_counts_classes_in_steps_of_five_and_names_nobody(xray_site, check, study, tmp_path, capsys):
    for number in range(8):
        entry = xray_site.lists["unlabeled"][0] | {"label": "normal", "patient": f"Q{number}"}
        xray_site.lists["training"].append(entry)
    xray_site.lists["training"][3]["label"] = "geheim"
    checked = check(study)
    html = page(checked)
    assert "Classes of &#39;training&#39;" in html and "about 10" in html and "under 5" in html
    assert "Pixels along the longer side" in html and "PNG" in html
    for secret in ("geheim", "bilder", "unlabeled0", "Q3", "hohenfels", "praxis"):
        assert secret not in html
    kept = write_csv(checked, tmp_path / "kept.csv")
    with kept.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["class"] for row in rows} == {"", "geheim", *NAMES} and rows[0]["voxels"] == "40x30"
    print_checked(checked, kept, tmp_path / "page.html")
    shown = capsys.readouterr().out
    assert "geheim" in shown and "praxis.yaml" in shown


def test_without_a_job_no_class_is_named_on_the_page(check):
    html = page(check())
    assert "bacteria" not in html and "Classes of" not in html and "Mean brightness" in html


def test_views_stand_in_the_table_and_the_csv(check, xray_site, tmp_path):
    for number, position in enumerate(("LL", "PA")):
        header = Header(f"P{number}", 0, number + 1, 1.0, position)
        image = np.random.default_rng(number).random((64, 60)).astype(np.float32)
        save(image, xray_site.root, f"d{number}", "dx", header)
        xray_site.lists["training"][number] |= {"image": f"images/d{number}.dcm"}
    checked = check()
    (finding,) = [f for f in checked.findings if f.kind == "view"]
    assert (finding.level, finding.list, finding.entry) == ("note", "training", 0)
    assert "d0.dcm" in finding.text and "its view is LL, from the side; remove the entry" in finding.text
    rows = checked.inspection.rows(checked.entries, checked.images)
    assert rows[0][-2] == "views" and rows[1][-2] == "unknown 2, LL 1, PA 1"
    rows = list(csv.DictReader(write_csv(checked, tmp_path / "x.csv").open()))
    assert [row["view"] for row in rows[:3]] == ["LL", "PA", ""]


def test_the_screens_table_has_exact_numbers(xray_site):
    entries, _ = read_entries(xray_site.config(), ClassEntry())
    head, *rows = picture_table(entries, [])
    assert head[-1] == "classes" and rows[0] == ("training", "4", "4", "–", "–", "bacteria 1, normal 2, virus 1")
    assert rows[-1] == ("unlabeled", "4", "4", "–", "–", "–")


# --- the job


def test_a_job_tells_epochs_choice_and_what_it_asks_for(study, pretraining):
    work = find_work(str(study), "hospital_k")
    assert (work.study.steps, work.study.epochs, work.chooses, work.scores, work.extras) == (None, 2, True, True, [])
    work = find_work(str(pretraining), "hospital_k")
    assert (work.chooses, work.scores, work.exchanged) == (False, False, ("mu", "sigma", "n"))
    assert work.extras == list(EXTRAS)
    for role, overlays in {"unsupervised": ["pretrain"], "supervised": []}.items():
        assert find_work("cxr_classification", "k", role).job.overlays(role) == overlays


def test_values_that_the_sites_limits_keep_back(xray_site, pretraining):
    work = find_work(str(pretraining), "hospital_k")
    demands, wrong = read_demands(work, xray_site.config())
    assert wrong == [] and (type(demands.kind), demands.least, demands.size) == (Encoder, 64, 64)
    extras, few = check_exchange(work, demands, xray_site.config(), images=8)
    assert (extras.kind, extras.level, few.kind, few.level) == ("extras", "note", "few_images", "note")
    assert "asks for mu, n, rsa, sigma" in extras.text and "[mu, n, rsa, sigma]" in extras.text
    assert "8 images are fewer than the 64" in few.text
    allowed = xray_site.config(privacy={"allowed_extras": ["rsa", "loss"]})
    (extras,) = check_exchange(work, demands, allowed, images=64)
    assert "asks for mu, n, sigma" in extras.text and "[loss, mu, n, rsa, sigma]" in extras.text
    everything = xray_site.config(privacy={"allowed_extras": list(EXTRAS)})
    assert list(check_exchange(work, demands, everything, images=64)) == []


def test_a_round_of_epochs_is_as_long_as_the_sites_images(check, study):
    checked = check(study)
    checked.measured = Measured(batch=2, step_seconds=0.5, score_seconds=0.1)
    assert round_steps(checked) == 3  # 2 epochs of 3 images, one of each class, in batches of 2
    assert round_seconds(checked) == pytest.approx(3 * 0.5 + 4 * 0.1)
    checked.kind = Encoder()
    checked.work = part_in_job("b", "unsupervised", epochs=1, select="last")
    checked.measured = Measured(batch=2, step_seconds=0.5, metadata_seconds=0.25)
    assert round_seconds(checked) == pytest.approx(4 * 0.5 + 8 * 0.25)  # 8 images without their labels


@pytest.fixture
def measured_here(monkeypatch):
    """Measure in this process; scripts/test_check_site.py does it in one of its own."""

    def run(line, **_):
        measuring_process.main(Path(line[-1]))
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(measuring_process, "die_first", lambda: None)
    monkeypatch.setattr(measurement, "subprocess", SimpleNamespace(**{**vars(subprocess), "run": run}))


@pytest.mark.usefixtures("measured_here")
def test_a_pretraining_is_measured_with_what_it_exchanges(xray_site, check, pretraining):
    checked = check(pretraining, skip=("disk", "device"), privacy={"allowed_extras": list(EXTRAS)})
    assert kinds(checked) == ["small_picture", "few_images"], checked.findings
    measured = checked.measured
    assert measured.extras_bytes == 4 * (32 + 32 * 33 // 2) + 8 and measured.metadata_seconds > 0  # mu, sigma, n
    assert measured.step_seconds > 0 and measured.batch == 4 and measured.score_seconds is None
    assert "exchanged statistics" in page(checked) and round_steps(checked) == 2


@pytest.mark.slow
def test_a_classifier_is_measured_on_a_case_of_each_class(xray_site, check, study):
    checked = check(study, skip=("disk", "device"))
    assert kinds(checked) == ["few_tested", "small_picture", "few_labels"], checked.findings
    assert checked.measured.score_seconds > 0 and checked.demands.fraction == 0.5 and checked.ready


def test_a_job_that_trains_on_a_part_of_the_labels_says_so():
    (finding,) = check_share(TrainedOn(3, 0, 3, 0, listed=88), BundleDemands(fraction=0.03))
    assert "trains on 3 of 88 labelled images of 3 patients ('label_fraction' is 0.03)" in finding.text
    assert finding.kind == "few_labels"
    assert not [*check_share(TrainedOn(88, listed=88), BundleDemands()), *check_share(TrainedOn(), BundleDemands())]


def test_the_check_says_on_the_sites_own_screen_what_the_job_trains_on(check, study, pretraining, tmp_path, capsys):
    """The study takes half of the labels; the page that leaves counts no patients."""
    checked = check(study)
    assert checked.trains_on == TrainedOn(3, 0, 3, 0, listed=4), "one of each class"
    print_checked(checked, None, tmp_path / "page.html")
    words = "rains on 3 of 4 labelled images of 3 patients"
    assert words in capsys.readouterr().out and "patients" not in page(checked).partition("rains on")[2]
    assert check(pretraining).trains_on.words == "8 unlabelled images of 8 patients"
    assert check().trains_on == TrainedOn()


def test_a_bundle_that_is_not_here_is_a_problem_of_the_training(check, study, change_study):
    job = Job.of({**SUPERVISED, "name": "other", "rounds": 1, "steps": 1})
    change_study(write_job(job, study.parent / "other", replace=True), overlays=["nothing"])
    checked = check(study.parent / "other", skip=("disk", "device"))
    assert kinds(checked) == ["few_tested", "bundle"] and checked.measured is None and checked.cases
