import json

import pytest

from fedmed.errors import DataError, FedMedError, JobError
from fedmed.reports.notes import remarks, training_note
from fedmed.reports.run import read_run
from fedmed.reports.slice_picture import read_slice
from tests.commands import fedmed
from tests.reports.records import SERVER


def test_reads_a_finished_run(fake_run):
    run = read_run(fake_run(rounds=4, refuse=(2,)))
    assert (run.job, run.total_rounds, len(run.rounds), run.seed) == ("covid_fssl", 4, 4, 0)
    assert [site.role for site in run.sites] == ["supervised", "supervised", "unsupervised", "evaluate"]
    assert run.rounds[2].refused == (("ct_east", "conv_init.weight: 3 values are not finite"),)
    assert run.rounds[2].coefficients == {"ct_north": 0.5, "ct_south": 0.5}
    assert len(run.sites[0].cases) == 5
    assert run.sites[0].closing_score == pytest.approx(0.79)


def test_reads_pictures_best_first(fake_run):
    pictures = list(read_run(fake_run(rounds=1)).sites[2].pictures(read_slice))
    assert [picture.kind for picture in pictures] == ["best", "median", "worst"]
    assert pictures[0].image.shape == pictures[0].truth.shape == (160, 200)
    assert pictures[0].truth.dtype == bool
    assert pictures[0].dice >= pictures[1].dice >= pictures[2].dice


@pytest.mark.parametrize(("n_cases", "kinds"), [(1, ["best, median and worst"]), (2, ["best", "median and worst"])])
def test_few_cases_are_not_shown_twice(fake_run, n_cases, kinds):
    pictures = read_run(fake_run(rounds=1, n_cases=n_cases)).sites[0].pictures(read_slice)
    assert [picture.kind for picture in pictures] == kinds


def test_an_interrupted_run_is_readable_and_a_half_written_line_is_left_out(fake_run):
    folder = fake_run(rounds=5, done=2)
    with (folder / SERVER / "rounds.jsonl").open("a") as file:
        file.write('{"round": 2, "sec')
    run = read_run(folder)
    assert run.result is None
    assert [line.index for line in run.rounds] == [0, 1]


def test_the_last_line_of_a_repeated_round_counts(fake_run):
    folder = fake_run(rounds=2)
    with (folder / SERVER / "rounds.jsonl").open("a") as file:
        file.write(json.dumps({"round": 1, "score": 0.5, "aggregated": False}) + "\n")
    run = read_run(folder)
    assert len(run.rounds) == 2
    assert run.rounds[1].score == 0.5
    assert not run.rounds[1].aggregated


def test_missing_and_non_finite_numbers_become_none(fake_run):
    folder = fake_run(rounds=1)
    line = {"round": 0, "score": None, "seconds": float("nan"), "sites": {"ct_north": {"train_loss": float("inf")}}}
    (folder / SERVER / "rounds.jsonl").write_text(json.dumps(line) + "\n")
    first = read_run(folder).rounds[0]
    assert (first.score, first.seconds, first.bytes_up) == (None, None, None)
    assert first.sites["ct_north"]["train_loss"] is None


def test_the_servers_own_folder_is_a_run_without_site_folders(fake_run):
    folder = fake_run(rounds=2, site_folders=False)
    for place in (folder, folder / SERVER):
        run = read_run(place)
        assert not run.has_site_folders
        assert list(run.sites[0].pictures(read_slice)) == []


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda root: root / "nowhere", "does not exist"),
        (lambda root: root, "is not the folder of a run"),
        (lambda root: ((root / "server").mkdir(), root)[1], "stopped before its first round"),
    ],
)
def test_a_wrong_folder_is_a_job_error_that_says_what_to_do(tmp_path, make, words):
    with pytest.raises(JobError, match=words):
        read_run(make(tmp_path))


def test_a_damaged_file_is_named(fake_run):
    folder = fake_run(rounds=3)
    path = folder / SERVER / "rounds.jsonl"
    path.write_text("nonsense\n" + path.read_text())
    with pytest.raises(FedMedError, match=r"rounds\.jsonl, line 1 is damaged"):
        read_run(folder)
    (folder / SERVER / "run.json").write_text("[1]")
    with pytest.raises(FedMedError, match=r"run\.json"):
        read_run(folder)


def test_a_damaged_picture_is_named(fake_run):
    folder = fake_run(rounds=1)
    (folder / "ct_east" / "simulate_job/fedmed/evaluation/median.npz").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"median\.npz"):
        list(read_run(folder).sites[2].pictures(read_slice))


def test_errors_of_a_site_are_kept(fake_run):
    folder = fake_run(rounds=3, done=1)
    with (folder / "ct_south/simulate_job/fedmed/progress.jsonl").open("a") as file:
        file.write(json.dumps({"event": "error", "task": "train", "round": 1, "message": "no data"}) + "\n")
    assert read_run(folder).sites[1].errors == ["no data"]


def test_the_report_says_what_each_site_trained_on(fake_run):
    """With patients where the site's own file tells; else the images that the server was told of."""
    folder = fake_run(rounds=1)
    counts = {"labelled": 3, "unlabelled": 0, "labelled_patients": 2, "unlabelled_patients": 0, "listed": 88}
    with (folder / "ct_north" / "simulate_job/fedmed/progress.jsonl").open("a") as file:
        file.write(json.dumps({"event": "data", "task": "train", **counts, "what": "image"}) + "\n")
    numbers = {"ct_north": {"n_samples": 3}, "ct_south": {"n_samples": 12}, "ct_east": {"n_samples": 0}}
    (folder / SERVER / "rounds.jsonl").write_text(json.dumps({"round": 0, "sites": numbers}) + "\n")
    run = read_run(folder)
    assert training_note(run) == (
        "Trained: ct_north on 3 of 88 labelled images of 2 patients; ct_south on 12 labelled images; "
        "ct_east on images whose number it does not tell."
    )
    assert training_note(run) in remarks(run)


@pytest.fixture(scope="module")
def script():
    return fedmed("report")


def test_it_prints_the_table_and_the_absolute_path(script, fake_run, capsys, monkeypatch):
    folder = fake_run(rounds=1)
    monkeypatch.setattr("fedmed.reports.run_page.write_pngs", lambda run, out, figures: [])
    monkeypatch.chdir(folder.parent)
    assert script([folder.name, "--out", "here"]) == 0
    printed = capsys.readouterr().out
    assert "ct_west" in printed
    assert f"report: {folder.parent / 'here' / 'report.html'}" in printed


def test_a_wrong_folder_is_said_in_plain_words(script, tmp_path, capsys):
    assert script([str(tmp_path / "nowhere")]) == 2
    assert "error: no run at" in capsys.readouterr().err
