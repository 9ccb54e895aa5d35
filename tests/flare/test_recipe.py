"""A study as NVFlare's recipe: every environment gets the same job folder, and a run equals the in-process loop."""

import socket
from pathlib import Path

import pytest
import yaml
from nvflare.recipe import PocEnv, ProdEnv, SimEnv, session_mgr

from fedmed.durable_files import load_tensors
from fedmed.errors import JobError
from fedmed.federation.loop import run_job
from fedmed.flare.recipe import NOTHING_ADDED, FedMedRecipe
from fedmed.jobs.job_folder import read_job
from tests.e2e.runs import model, same

SPEC = {"rounds": 2, "steps": 2, "evaluate": False, "select": "last"}
SITES = ["lap_hei1", "lap_hei2"]


@pytest.fixture
def folder(write_tiny_tools_job, tmp_path):
    """A tiny job, named 'tools'."""
    return write_tiny_tools_job(tmp_path / "jobs", **SPEC)


def content(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_simulation_equals_the_loop(write_tiny_tools_job, tmp_path):
    """Of a study's YAML, whose job has no custom/, as no simulator would run it."""
    folder = write_tiny_tools_job(tmp_path / "jobs", custom=False, **SPEC)
    recipe = FedMedRecipe(folder / "app_server/config/study.yaml")
    result = recipe.execute(SimEnv(clients=recipe.sites, workspace_root=str(tmp_path / "ws"))).get_result()
    run_job(folder, tmp_path / "loop")
    assert result == str(tmp_path / "ws/tools") and same(model(tmp_path / "ws/tools"), model(tmp_path / "loop"))


def values(folder):
    return yaml.safe_load((folder / "app_server/config/study.yaml").read_text())


@pytest.mark.parametrize("study", [str, values, read_job])
def test_its_folder_is_the_job_folder_byte_for_byte(study, folder, tmp_path):
    recipe = FedMedRecipe(study(folder))
    for _ in range(2):  # the second takes the place of the first
        recipe.export(str(tmp_path / "exported"))
    assert content(tmp_path / "exported/tools") == content(folder)
    assert [path.name for path in (tmp_path / "exported").iterdir()] == ["tools"]


@pytest.mark.slow
def test_a_proof_of_concept_equals_the_loop(write_tiny_tools_job, tmp_path, monkeypatch):
    """With the services that NVFlare starts on this machine, and kits of its own."""
    with socket.socket() as probe:
        if not probe.connect_ex(("127.0.0.1", 8002)):
            pytest.skip("port 8002, which NVFlare's proof of concept listens to, is in use")
    monkeypatch.setenv("NVFLARE_POC_WORKSPACE", str(tmp_path / "poc"))
    folder = write_tiny_tools_job(tmp_path / "jobs", custom=False, **SPEC)
    env = PocEnv(clients=SITES)
    try:
        result = FedMedRecipe(folder).execute(env).get_result(timeout=1800, clean_up=False)
        real = load_tensors(Path(result) / "workspace/app_server/FL_global_model.pt")["model"]
    finally:
        env.stop(clean_up=True)
    run_job(folder, tmp_path / "loop")
    assert same(real, model(tmp_path / "loop")) and not (tmp_path / "poc").exists()


def test_a_folder_travels_with_the_state_of_the_run_that_it_resumes(folder, tmp_path):
    (folder / "app_server/resume").mkdir()
    (folder / "app_server/resume/rounds.jsonl").write_text("{}\n")
    FedMedRecipe(folder).export(str(tmp_path / "exported"))
    assert content(tmp_path / "exported/tools") == content(folder)


def test_a_federation_gets_the_job_folder(folder, tmp_path, monkeypatch):
    """Its session is a stub here; tests/e2e has a real federation."""
    submitted = {}

    class Session:
        def __init__(self, **_):
            pass

        def submit_job(self, path):
            submitted.update(content(Path(path)))
            return "the id"

        def close(self):
            pass

    monkeypatch.setattr(session_mgr, "new_secure_session", Session)
    run = FedMedRecipe(folder).execute(ProdEnv(str(tmp_path), username="lead@example.org"))
    assert run.get_job_id() == "the id" and submitted == content(folder)


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (lambda ws: SimEnv(num_clients=2, workspace_root=ws), "has a site 'lap_hei1', and SimEnv's clients lack it"),
        (lambda ws: SimEnv(clients=[*SITES, "x"], workspace_root=ws), "'x', which is not a site of the study; write"),
        (lambda ws: PocEnv(clients=["a", "lap_hei1"]), "site 'lap_hei2', and PocEnv's clients lack it; write PocEnv"),
        (lambda ws: SimEnv(clients=SITES, workspace_root=f"{ws}/a b"), "has a space in its path"),
        (lambda ws: SimEnv(clients=SITES, workspace_root=ws), "holds the job or the current folder"),
    ],
)
def test_an_environment_that_does_not_fit_is_refused_before_anything_starts(env, said, folder, tmp_path):
    before = content(tmp_path)
    with pytest.raises(JobError, match=said):
        FedMedRecipe(folder).execute(env(str(folder.parent)))
    assert content(tmp_path) == before


@pytest.mark.parametrize(
    ("study", "said"),
    [(3, "a int is not a study"), ("/nowhere.yaml", "no study at /nowhere.yaml"), ({"name": "x"}, "'bundle'")],
)
def test_what_is_not_a_study_is_refused(study, said):
    with pytest.raises(JobError, match=said):
        FedMedRecipe(study)


def test_nothing_is_added_and_no_name_taken_that_recipes_refuse(folder):
    recipe = FedMedRecipe(folder)
    for add in (
        lambda: recipe.add_server_config({"a": 1}),
        lambda: recipe.set_per_site_config({"lap_hei1": {}}),
        lambda: recipe.add_client_file(str(folder / "meta.json")),
        lambda: recipe.export(str(folder.parent / "x"), client_exec_params={"a": 1}),
        lambda: recipe.run(ProdEnv(str(folder)), server_exec_params={"a": 1}),
    ):
        with pytest.raises(JobError, match=NOTHING_ADDED):
            add()
    with pytest.raises(JobError, match="'a name': .* change it for NVFlare's recipes"):
        FedMedRecipe(read_job(folder).changed({"name": "a name"}))
