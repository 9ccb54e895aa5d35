"""A study whose sites could not begin is refused before anything starts, with all reasons."""

import json

import pytest
import yaml
from PIL import Image

from fedmed.checks.control_check import check_study, held_back, withheld_scores
from fedmed.errors import JobError
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import write_job

TWO = {"ct_north": "supervised", "ct_east": "unsupervised"}


@pytest.fixture
def write_job_of_pictures(tmp_path, monkeypatch):
    """Return a function: keys of a study -> its job, of one site whose images are 'normal' and 'viral'."""
    (tmp_path / "data").mkdir()
    for name in "abcdef":
        Image.new("L", (8, 8)).save(tmp_path / "data" / f"{name}.png")
    entries = [{"image": f"{name}.png", "label": "viral" if n % 2 else "normal"} for n, name in enumerate("abcdef")]
    lists = {"training": entries, "validation": entries[:2]}
    (tmp_path / "data" / "list.json").write_text(json.dumps(lists))
    site = {"data_root": str(tmp_path / "data"), "datalist": "list.json", "device": "cpu"}
    (tmp_path / "cxr_north.yaml").write_text(yaml.safe_dump(site))
    monkeypatch.setenv("FEDMED_SITE_CONFIGS", str(tmp_path))

    def write(**changes):
        study = {"name": "x", "bundle": "cxr_classification", "overlays": ["demo"], "rounds": 1, "steps": 1}
        study |= {"method": {"path": "fedmed.systems.fedmoco.method.Linear"}, "sites": {"cxr_north": "supervised"}}
        return write_job(Job.of(study | changes), tmp_path / "job", replace=True)

    return write


@pytest.fixture
def write_job_of_frames(tmp_path, monkeypatch):
    """Return a function: seconds of a folder's frames, its list, keys of a study -> its job; no frame can be opened."""

    def entry(name, seconds):
        (tmp_path / name).mkdir(exist_ok=True)
        times, rows = (
            "".join(f"{line}\n" for line in lines)
            for lines in zip(
                *[(f"{n}.png,{second}", f"{second},{n % 2}") for n, second in enumerate(seconds)], strict=True
            )
        )
        (tmp_path / name / "frames.csv").write_text(f"file,second\n{times}")
        (tmp_path / f"{name}.csv").write_text(f"second,grasper\n{rows}")
        return {"video": name, "labels": f"{name}.csv"}

    def write(seconds, key="training", **changes):
        lists = {"training": [entry("even", range(7))]}
        lists.setdefault(key, []).append(entry("op", seconds))
        (tmp_path / "list.json").write_text(json.dumps(lists))
        site = {"data_root": str(tmp_path), "datalist": "list.json", "device": "cpu"}
        (tmp_path / "or_north.yaml").write_text(yaml.safe_dump(site))
        monkeypatch.setenv("FEDMED_SITE_CONFIGS", str(tmp_path))
        study = {"name": "x", "bundle": "surgical_tool_classification", "classes": ["grasper"], "rounds": 1, "steps": 1}
        study |= {"method": {"path": "fedmed.methods.supervised_fedavg.SupervisedFedAvg"}}
        study |= {"sites": {"or_north": "supervised"}, "select": "last"}
        return write_job(Job.of(study | changes), tmp_path / "job", replace=True)

    return write


def test_a_study_that_can_begin_passes(configs, tiny_job):
    check_study(tiny_job(sites=TWO))


def test_all_reasons_are_told_at_once_with_the_site(configs, change_lists, tiny_job):
    job = tiny_job(sites=TWO, encoder="r50.pth")
    (configs / "ct_north.yaml").write_text("demo: chest_ct_tiny\ndevise: cpu\n")
    change_lists("ct_east", lambda content: content.update(unlabeled=[]))
    with pytest.raises(JobError) as error:
        check_study(job)
    lines = str(error.value).splitlines()
    assert lines[0].startswith("tiny cannot start; fedmed site check SITE --job")
    assert any(line.startswith("- server: 'encoder': bundle") for line in lines)
    assert any(line.startswith("- ct_north: ") and "devise" in line for line in lines)
    assert any(line.startswith("- ct_east: ") and "'unlabeled'" in line for line in lines)


def test_a_site_without_settings_says_where_they_were_looked_for(configs, tiny_job):
    job = tiny_job(sites={"ct_north": "supervised", "clinic": "supervised"})
    with pytest.raises(JobError, match="- clinic: site 'clinic' has no configuration file. Looked at:"):
        check_study(job)


def test_labels_that_the_study_does_not_name_are_told_with_what_to_do(write_job_of_pictures):
    with pytest.raises(JobError) as error:
        check_study(write_job_of_pictures(classes=["normal", "lobar"]))
    lines = str(error.value).splitlines()[1:]
    assert len(lines) == 4 and lines[-1] == "- cxr_north: and 1 more"
    assert lines[0].startswith("- cxr_north: training, entry 1 (b.png): the label is 'viral', which is not a class")
    assert lines[0].endswith("--merge NEW=OLD), or name all that you have in the study, here: classes: [normal, viral]")
    check_study(write_job_of_pictures(classes=["viral", "normal"]))


def test_a_missing_image_is_told_by_its_entry(change_lists, tiny_job):
    change_lists("ct_north", lambda c: c["training"][0].update(image="gone.nii.gz"))
    with pytest.raises(JobError, match=r"- ct_north: training, entry 0.*gone\.nii\.gz"):
        check_study(tiny_job(sites=TWO))


def test_gaps_of_tables_are_told_by_tables_alone_where_the_job_reads_them_at_a_rate(write_job_of_frames):
    """Frames minutes apart, labelled where they are: at one a second most frames have no row of the table."""
    seconds = [0, 1, 2, 3, 240, 241, 242]
    for key, number in (("training", 1), ("testing", 0)):
        with pytest.raises(JobError) as error:
            check_study(write_job_of_frames(seconds, key))
        (line,) = str(error.value).splitlines()[1:]
        assert (
            line.startswith(f"- or_north: {key}, entry {number} (op): ") and "no row from line 5 (3 s) to line" in line
        )
        assert line.endswith("or take single frames (a study: overlays: [single_frames]; a bundle: rate: null)")
    check_study(write_job_of_frames(seconds, overlays=["single_frames"]))
    for key in ("validation", "testing"):
        check_study(write_job_of_frames(seconds, key, evaluate=False))  # nothing reads these labels


def test_a_site_that_could_train_on_what_it_tests_alone_is_named(write_job_of_pictures, tmp_path):
    listed = tmp_path / "data" / "list.json"
    entries = json.loads(listed.read_text())["training"]
    listed.write_text(json.dumps({"training": entries, "validation": entries}))
    method = {"path": "fedmed.systems.fedmoco.method.FedMoCo", "args": {"exchange_from": None}}
    job = write_job_of_pictures(method=method, sites={"cxr_north": "unsupervised"}, evaluate=False, select="last")
    with pytest.raises(JobError, match="all that this site could train on is listed for validation"):
        check_study(job)


@pytest.mark.parametrize(("listed", "said"), [("", "cxr_north does not let rsa leave"), ("allowed_extras: [rsa]", "")])
def test_what_a_method_asks_for_and_a_site_keeps_is_told_with_the_command(
    write_job_of_pictures, tmp_path, listed, said
):
    path = tmp_path / "cxr_north.yaml"
    path.write_text(f"{path.read_text()}privacy: {{{listed}}}\n")
    method = {"path": "fedmed.systems.fedmoco.method.FedMoCo", "args": {"exchange_from": None, "adaptive": True}}
    job = write_job_of_pictures(method=method, sites={"cxr_north": "unsupervised"}, evaluate=False, select="last")
    told = held_back(job, tmp_path / "my study.yaml")
    assert (said in told and f"approve {path} --job '{tmp_path}/my study.yaml'" in told) if said else told == ""


def test_test_scores_that_stay_at_a_site_are_told_before_the_run(tiny_job, change_lists):
    change_lists("ct_north", lambda lists: lists.update(testing=lists["testing"][:1]))
    told = withheld_scores(tiny_job("few"))
    assert "ct_north has 1 test case and lets scores of" in told and "--split" in told
    assert withheld_scores(tiny_job("unscored", evaluate=False)) == ""
