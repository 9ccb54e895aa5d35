"""Places where a run may be, and the error for a folder that is not one."""

import shutil

import pytest
import torch

from fedmed.durable_files import load_tensors
from fedmed.errors import ExportError
from fedmed.export.finished_run import read_finished

SERVER = "server/simulate_job"


def test_a_run_is_found_wherever_it_was_put(finished_run, tmp_path):
    """Simulator's workspace, its server, a download named by the user or by NVFlare, a server's run folder, records."""
    download = tmp_path / "downloads" / "0a1b2c3d"
    shutil.copytree(finished_run / SERVER, download / "workspace")
    places = [finished_run, finished_run / "server", finished_run / SERVER, finished_run / SERVER / "fedmed"]
    places += [download.parent, download, download / "workspace"]
    runs = [read_finished(place) for place in places]
    assert all(run.facts == runs[0].facts and len(run.rounds) == 2 for run in runs)
    models = [run.model("last") for run in runs]
    assert {round for round, _ in models} == {1}
    assert all(
        torch.equal(a, b) for _, other in models for a, b in zip(models[0][1].values(), other.values(), strict=True)
    )


def test_selected_and_last_are_the_files_of_those_rounds(partial_run):
    run = read_finished(partial_run[0])
    app = partial_run[0] / SERVER / "app_server"
    for which, round, name in (("selected", 0, "best_FL_global_model.pt"), ("last", 2, "FL_global_model.pt")):
        number, tensors = run.model(which)
        expected = load_tensors(app / name)["model"]
        assert number == round and all(torch.equal(tensors[key], expected[key]) for key in expected)


def test_without_a_score_the_last_model_is_the_selected_one(written):
    run = read_finished(written())
    assert run.model("selected")[0] == run.model("last")[0] == 0


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda ws: shutil.rmtree(ws), "the folder does not exist"),
        (lambda ws: (shutil.rmtree(ws), ws.write_bytes(b"PK")), "it is a file; unpack it"),
        (
            lambda ws: shutil.rmtree(ws / SERVER / "fedmed"),
            "is not the folder of a run. Looked for server/simulate_job",
        ),
        (lambda ws: (ws / SERVER / "fedmed/result.json").unlink(), "did not finish"),
        (lambda ws: (ws / SERVER / "fedmed/run.json").write_text("{"), "not a readable JSON file"),
        (lambda ws: (ws / SERVER / "fedmed/run.json").write_text("{}"), "'config' is missing from run.json"),
        (lambda ws: (ws / SERVER / "fedmed/rounds.jsonl").write_text(""), "rounds.jsonl"),
    ],
)
def test_a_folder_that_is_no_finished_run_is_refused_in_plain_words(copied, damage, message):
    damage(copied)
    with pytest.raises(ExportError, match=message):
        read_finished(copied)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "has no app_server/FL_global_model.pt"),
        (lambda path: path.write_bytes(path.read_bytes()[:5000]), "is damaged"),
        (lambda path: torch.save({"model": {"x": 1}}, path), "does not hold a 'model' of named tensors"),
        (lambda path: torch.save({"model": {}, "meta": {"round": 7}}, path), "after round 7.*tells of round 1"),
    ],
)
def test_a_damaged_model_is_named(copied, damage, message):
    damage(copied / SERVER / "app_server" / "FL_global_model.pt")
    with pytest.raises(ExportError, match=message):
        read_finished(copied).model("last")
