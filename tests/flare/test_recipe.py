"""A study as NVFlare's recipe: every environment gets the same job folder, and a run equals the in-process loop."""

import re
import shutil
import socket
from pathlib import Path
from types import SimpleNamespace

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
PAGE = Path(__file__).resolve().parents[2] / "docs" / "recipe.md"
SIM, POC, PROD = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def folder(write_tiny_tools_job, tmp_path):
    """A tiny job, named 'tools'."""
    return write_tiny_tools_job(tmp_path / "jobs", **SPEC)


@pytest.fixture
def as_shown(write_tiny_tools_job, tmp_path, monkeypatch):
    """Return a function that does what docs/recipe.md shows with the study of a job without custom/: its variables."""
    job = write_tiny_tools_job(tmp_path / "made", custom=False, **SPEC)
    shutil.copy(job / "app_server/config/study.yaml", tmp_path / "my_study.yaml")
    monkeypatch.chdir(tmp_path)

    def do(block):
        variables = {"job": job}
        exec(block, variables)
        return variables

    return do


def content(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_simulation_equals_the_loop(as_shown, tmp_path):
    shown = as_shown(SIM)
    run_job(shown["job"], tmp_path / "loop")
    assert shown["run"].get_result() == "runs/tools" and same(model(tmp_path / "runs/tools"), model(tmp_path / "loop"))


@pytest.mark.slow
def test_a_proof_of_concept_equals_the_loop(as_shown, tmp_path, monkeypatch):
    """With the services that NVFlare starts on this machine, and kits of its own."""
    with socket.socket() as probe:
        if not probe.connect_ex(("127.0.0.1", 8002)):
            pytest.skip("port 8002, which NVFlare's proof of concept listens to, is in use")
    monkeypatch.setenv("NVFLARE_POC_WORKSPACE", str(tmp_path / "poc"))
    try:
        shown = as_shown(POC)
        real = load_tensors(Path(shown["run"].get_result()) / "workspace/app_server/FL_global_model.pt")["model"]
    finally:
        PocEnv(clients=SITES).stop(clean_up=True)
    run_job(shown["job"], tmp_path / "loop")
    assert same(real, model(tmp_path / "loop")) and not (tmp_path / "poc").exists()


def values(folder):
    return yaml.safe_load((folder / "app_server/config/study.yaml").read_text())


@pytest.mark.parametrize("study", [str, values, read_job])
def test_its_folder_is_the_job_folder_byte_for_byte(study, folder, tmp_path):
    recipe = FedMedRecipe(study(folder))
    for _ in range(2):  # the second takes the place of the first
        recipe.export(str(tmp_path / "exported"))
    assert content(tmp_path / "exported/tools") == content(folder)
    assert [path.name for path in (tmp_path / "exported").iterdir()] == ["tools"]


def test_a_folder_travels_with_the_state_of_the_run_that_it_resumes(folder, tmp_path):
    (folder / "app_server/resume").mkdir()
    (folder / "app_server/resume/rounds.jsonl").write_text("{}\n")
    FedMedRecipe(folder).export(str(tmp_path / "exported"))
    assert content(tmp_path / "exported/tools") == content(folder)


def test_a_federation_gets_the_job_folder(as_shown, tmp_path, monkeypatch):
    """Its session is a stub here; tests/e2e/test_provisioned.py has a real one."""
    submitted = {}

    def submit_job(path):
        submitted.update(content(Path(path)))
        return "the id"

    session = SimpleNamespace(submit_job=submit_job, close=lambda: None)
    monkeypatch.setattr(session_mgr, "new_secure_session", lambda **_: session)
    (tmp_path / "kits/lead@example.org").mkdir(parents=True)
    shown = as_shown(PROD)
    assert shown["run"].get_job_id() == "the id" and submitted == content(shown["job"])


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
