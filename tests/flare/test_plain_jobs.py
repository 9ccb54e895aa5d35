"""Hostile jobs meet the functions of NVFlare that load jobs, in a process that a provisioned kit has set up.

That whole federations refuse them is tested in tests/e2e/test_provisioned.py and tests/e2e/test_hostile_jobs.py.
"""

import argparse
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import nvflare
import pytest
from nvflare.apis.fl_context import FLContext
from nvflare.apis.workspace import Workspace
from nvflare.app_common.logging.constants import is_log_streaming_allowed
from nvflare.fuel.sec.authz import AuthorizationService
from nvflare.fuel.utils import secret_utils, wfconf
from nvflare.fuel.utils.config import ConfigFormat
from nvflare.fuel.utils.config_factory import ConfigFactory
from nvflare.fuel.utils.config_service import ConfigService
from nvflare.fuel.utils.zip_utils import zip_directory_to_bytes
from nvflare.lighter.utils import load_private_key_file, sign_folders
from nvflare.private.admin_defs import Message, MsgHeader, ReturnCode
from nvflare.private.defs import RequestHeader, TrainingTopic
from nvflare.private.fed.app.fl_conf import FLClientStarterConfiger, FLServerStarterConfiger
from nvflare.private.fed.client.admin_commands import AdminCommands
from nvflare.private.fed.client.client_engine import ClientEngine
from nvflare.private.fed.client.client_json_config import ClientJsonConfigurator
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from nvflare.private.fed.server.job_meta_validator import JobMetaValidator
from nvflare.private.fed.utils.app_authz import AppAuthzService
from nvflare.private.fed.utils.app_deployer import AppDeployer
from nvflare.security.security import EmptyAuthorizer

from fedmed.checks.startup_kit import check_kit, read_kit
from fedmed.errors import JobError, SiteConfigError
from fedmed.flare import job_archive, job_gate, json_only

SERVER, SITE, LEAD = "fl.example.org", "hospital_a", "lead@example.org"
ID, OTHER = "0a4c5f3e-2b1d-4c6e-8f70-9182a3b4c5d6", "7d9e8f60-5a4b-4c3d-9e2f-1a0b9c8d7e6f"
VALIDATE, DEPLOY = JobMetaValidator.validate, AppDeployer.deploy


@pytest.fixture
def bait(tmp_path, monkeypatch, hostile_jobs):
    placed = hostile_jobs.Bait(tmp_path)
    monkeypatch.setenv(hostile_jobs.VARIABLE, placed.words["env"])
    yield placed
    placed.close()


@pytest.fixture
def restored(monkeypatch):
    """Undo after a test what a kit changes in NVFlare."""
    monkeypatch.setattr(JobMetaValidator, "validate", VALIDATE)
    monkeypatch.setattr(AppDeployer, "deploy", DEPLOY)
    monkeypatch.setattr(ConfigFactory, "_fmt2Loader", dict(ConfigFactory._fmt2Loader))
    monkeypatch.setattr(ConfigFactory, "search_config_format", ConfigFactory.__dict__["search_config_format"])
    monkeypatch.setattr(wfconf._EnvUpdater, "process_element", wfconf._EnvUpdater.process_element)
    monkeypatch.setattr(secret_utils, "SECRET_REF_PATTERN", secret_utils.SECRET_REF_PATTERN)
    monkeypatch.setattr(ClientRequestProcessors, "request_processors", list(ClientRequestProcessors.request_processors))
    monkeypatch.setattr(AdminCommands, "commands", list(AdminCommands.commands))
    monkeypatch.setattr(AppAuthzService, "app_validator", None)
    monkeypatch.setenv("NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT", "60")
    ConfigService.reset()
    yield
    ConfigService.reset()


@pytest.fixture
def run_kit(example_federation, tmp_path, monkeypatch, restored):
    """Return a function: participant -> its kit, after this process has read it as that participant's would.

    With ``job`` the process is that of this job.
    """

    def run(name: str, job: str | None = None) -> Path:
        kit = tmp_path / "kits" / name
        if not kit.exists():
            shutil.copytree(example_federation.kits / name, kit)
        monkeypatch.chdir(kit)
        places = {"sp_scheme": "grpc", "sp_target": "x:1", "parent_url": "tcp://x:2", "parent_conn_sec": ""}
        args = argparse.Namespace(job_id=job, workspace=str(kit), client_name=name, **places)
        kind = FLServerStarterConfiger if name == SERVER else FLClientStarterConfiger
        settings = [f"uid={name}", "secure_train=true", f"org={name}"]
        conf = kind(workspace=Workspace(str(kit), name, "config"), args=args, kv_list=settings)
        conf.configure()
        AppAuthzService.initialize(conf.app_validator)
        monkeypatch.setattr(AuthorizationService, "the_authorizer", EmptyAuthorizer())
        return kit

    return run


@pytest.fixture(scope="module")
def good_job(write_tiny_job, tmp_path_factory):
    """A job as FedMed writes it. Do not change it."""
    return write_tiny_job(tmp_path_factory.mktemp("jobs"), "job", sites={SITE: "supervised"}, custom=False)


@pytest.fixture
def write(tmp_path, example_federation, good_job, bait, hostile_jobs):
    """Return a function: name of a hostile job -> its folder, signed by the lead; without a name a good one."""

    def write(name: str | None = None) -> Path:
        job = shutil.copytree(good_job, tmp_path / "jobs" / "job")
        if name:
            hostile_jobs.JOBS[name](job, bait)
        return sign(example_federation, job)

    return write


def submit(job: Path) -> tuple[bool, str]:
    """Submit a job as the server's ``submit_job`` does; return whether it is taken, and the message and facts."""
    archive = job.with_suffix(".zip")
    archive.write_bytes(zip_directory_to_bytes(str(job.parent), job.name))
    try:
        valid, error, meta = JobMetaValidator().validate(job.name, str(archive))
    except Exception as failure:  # noqa: BLE001 - NVFlare answers with its text
        return False, str(failure)
    return valid, f"{error} {meta}"


def described(app: Path, job_id: str, **changes) -> dict:
    """The description that a server sends with an app."""
    path = app.parent / "meta.json"
    submitter = {"submitter_name": LEAD, "submitter_org": "study_office", "submitter_role": "lead"}
    meta = {**json.loads(path.read_text()), **submitter} if path.exists() else submitter
    return {**meta, "job_id": job_id, "study": "default", **changes}


def command(kit: Path, message: Message, app: Path, job_id: str, changes: dict, component=None) -> Message:
    """The answer of a site to a command of the server; no process of a job is started."""
    processors = {topic: one for one in ClientRequestProcessors.request_processors for topic in one.get_topics()}
    engine = ClientEngine.__new__(ClientEngine)
    engine.args, engine.client = SimpleNamespace(workspace=str(kit)), SimpleNamespace(client_name=SITE)
    engine.get_component, engine.new_context = lambda _: component, FLContext
    engine.start_app = lambda *_, **__: "Start the client app..."
    message.set_header(RequestHeader.JOB_ID, job_id)
    message.set_header(RequestHeader.JOB_META, described(app, job_id, **changes))
    message.set_header(RequestHeader.APP_NAME, app.name)
    return processors[message.topic].process(message, engine)


def deploy_at_site(kit: Path, app: Path, job_id: str = ID, **changes) -> Message:
    """The answer of a site to the server's command to deploy an app; ``changes`` are of its description."""
    message = Message(TrainingTopic.DEPLOY, zip_directory_to_bytes(str(app), ""))
    try:
        return command(kit, message, app, job_id, changes)
    except Exception as failure:  # noqa: BLE001 - NVFlare answers with its text
        return Message("reply", f"exception_occurred: {failure}")


def deploy_at_server(kit: Path, app: Path, job_id: str = ID, **changes) -> str:
    """Entries that the server makes in a job's description after deploying its own app."""
    data, meta = zip_directory_to_bytes(str(app), ""), described(app, job_id, **changes)
    try:
        return str(AppDeployer().deploy(Workspace(str(kit), SERVER), job_id, meta, app.name, data, FLContext()))
    except Exception as failure:  # noqa: BLE001 - NVFlare logs its text
        return str(failure)


JOBS = [f"{part}_{kind}" for part in ("meta", "server", "client") for kind in ("env", "file", "url")]
PLACES = ["default", "deeper", "named_json", "yaml", "beside", "capitals", "in_custom", "elsewhere", "variables"]
CLIENT = [name for name in JOBS if name.startswith("client")] + [f"client_{name}" for name in [*PLACES, "settings"]]
ALL = [*dict.fromkeys([*JOBS, *CLIENT])]


def test_these_are_all_the_hostile_jobs(hostile_jobs):
    assert set(ALL) == set(hostile_jobs.JOBS) and set(CLIENT) == set(hostile_jobs.CLIENT)


# --- the first wall


@pytest.mark.parametrize("name", ALL)
def test_the_server_refuses_a_hostile_job_when_it_is_submitted(run_kit, write, bait, name):
    run_kit(SERVER)
    taken, said = submit(write(name))
    assert not taken and ("has no place in a job" in said or "is not plain JSON" in said), said
    assert not bait.found_in(said) and not bait.requested


@pytest.mark.parametrize("name", CLIENT)
def test_a_site_refuses_it_too_and_answers_with_a_code(run_kit, write, bait, name, caplog):
    kit = run_kit(SITE)
    reply = deploy_at_site(kit, write(name) / "app_supervised")
    assert reply.body == "NOT_PLAIN_JSON" and reply.get_header(MsgHeader.RETURN_CODE) == ReturnCode.ERROR
    assert not bait.requested and not bait.found_in(caplog.text)
    assert not (kit / ID).exists(), "it was unpacked"
    assert f"job {ID}: NOT_PLAIN_JSON: the job's app: 'config" in caplog.text or "custom" in caplog.text


@pytest.mark.parametrize("name", [name for name in ALL if name.startswith("server")])
def test_the_server_refuses_its_own_app_when_it_is_deployed(run_kit, write, bait, name):
    kit = run_kit(SERVER)
    assert deploy_at_server(kit, write(name) / "app_server") == "NOT_PLAIN_JSON"
    assert not bait.requested and not (kit / ID).exists()


def test_a_good_job_passes(run_kit, write):
    kit, job = run_kit(SERVER), write()
    assert submit(job)[0]
    assert deploy_at_server(kit, job / "app_server") == "None"
    kit = run_kit(SITE)
    reply = deploy_at_site(kit, job / "app_supervised")
    assert reply.body == f"deployed app_supervised to {SITE}"
    assert (kit / ID / f"app_{SITE}" / "config" / "config_fed_client.json").is_file()


# --- each submission once, under NVFlare's own id, as its study says


def sign(example_federation, job: Path) -> Path:
    """Sign a job folder anew, as NVFlare's client does whenever one is submitted."""
    startup = example_federation.kits / LEAD / "startup"
    sign_folders(str(job), load_private_key_file(str(startup / "client.key")), str(startup / "client.crt"))
    return job


def contents(kit: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in kit.rglob("*") if path.is_file()}


@pytest.mark.parametrize("job_id", ["local", "startup", "a-job", "..", "../hospital_b", "", None])
def test_no_kit_unpacks_a_job_into_a_folder_of_its_own(run_kit, write, job_id):
    job = write()
    for name, deploy, app in (
        (SERVER, deploy_at_server, job / "app_server"),
        (SITE, lambda *args: deploy_at_site(*args).body, job / "app_supervised"),
    ):
        kit = run_kit(name)
        before = contents(kit)
        assert deploy(kit, app, job_id) == "JOB_ID_WRONG"
        assert contents(kit) == before


def test_the_server_takes_no_job_with_an_id(run_kit, write):
    run_kit(SERVER)
    job = write()
    meta = json.loads((job / "meta.json").read_text())
    for job_id in ("local", ID):
        (job / "meta.json").write_text(json.dumps({**meta, "job_id": job_id}))
        taken, said = submit(job)
        assert not taken and "meta.json has 'job_id', which no job may bring" in said


def test_a_folder_that_is_there_stays(run_kit, write):
    kit, app = run_kit(SITE), write() / "app_supervised"
    (kit / ID / "fedmed").mkdir(parents=True)
    (kit / ID / "fedmed" / "ledger.jsonl").write_text("{}")
    assert deploy_at_site(kit, app).body == "JOB_ID_WRONG"
    assert (kit / ID / "fedmed" / "ledger.jsonl").read_text() == "{}"


def test_a_signed_job_runs_once_and_again_when_it_is_submitted_again(run_kit, write, example_federation, caplog):
    kit, job = run_kit(SITE), write()
    app = job / "app_supervised"
    assert deploy_at_site(kit, app).body.startswith("deployed")
    assert deploy_at_site(kit, app, OTHER).body == "RUN_BEFORE" and not (kit / OTHER).exists()
    assert f"was taken here as job {ID}" in caplog.text
    shutil.rmtree(kit / ID)
    for job_id in (ID, OTHER):
        assert deploy_at_site(kit, app, job_id).body == "RUN_BEFORE", "the hospital may have deleted its folder"
    sign(example_federation, job)
    assert deploy_at_site(kit, app, OTHER).body.startswith("deployed")


FALSE = [
    *({"min_clients": 2}, {"name": "other"}, {"deploy_map": {"app_server": ["server"]}}, {"scope": "other"}),
    *({"submitter_name": "admin@example.org"}, {"submitter_role": "project_admin"}),
    {"launcher_spec": {SITE: {"docker": {"image": "x"}}}},
]


@pytest.mark.parametrize("false", FALSE)
def test_no_kit_takes_a_job_under_a_false_description(run_kit, write, false):
    job = write()
    kit = run_kit(SERVER)
    assert deploy_at_server(kit, job / "app_server", **false) == "DESCRIPTION_WRONG" and not (kit / ID).exists()
    kit = run_kit(SITE)
    assert deploy_at_site(kit, job / "app_supervised", **false).body == "DESCRIPTION_WRONG" and not (kit / ID).exists()
    assert deploy_at_site(kit, job / "app_supervised").body.startswith("deployed"), "nothing was entered"


def start_at_site(kit: Path, app: Path, job_id: str = ID, **changes) -> Message:
    """The answer of a site to the server's command to start a job."""
    manager = SimpleNamespace(allocate_resources=lambda **_: None)
    return command(kit, Message(TrainingTopic.START_JOB, {}), app, job_id, changes, manager)


def test_a_job_is_started_once_and_as_it_was_deployed(run_kit, write, monkeypatch):
    monkeypatch.setattr("nvflare.private.fed.client.scheduler_cmds.ResourceManagerSpec", SimpleNamespace)
    kit, app = run_kit(SITE), write() / "app_supervised"
    assert start_at_site(kit, app).body == "DESCRIPTION_WRONG", "it was not deployed"
    assert start_at_site(kit, app, "local").body == "JOB_ID_WRONG"
    deploy_at_site(kit, app)
    for false in FALSE:
        assert start_at_site(kit, app, **false).body == "DESCRIPTION_WRONG", false
    assert start_at_site(kit, app, job_clients=[{"name": SITE}]).body == "Start the client app..."
    assert start_at_site(kit, app).body == "RUN_BEFORE"


# --- the second wall, when the first one has let a job pass


@pytest.mark.parametrize("name", ALL)
def test_a_server_evaluates_nothing_even_of_a_job_that_was_not_looked_at(
    run_kit, write, bait, name, monkeypatch, hostile_jobs
):
    kit, job = run_kit(SERVER), write(name)
    monkeypatch.setattr(JobMetaValidator, "validate", VALIDATE)
    monkeypatch.setattr(AppDeployer, "deploy", DEPLOY)
    taken, said = submit(job)
    assert not bait.requested and not bait.found_in(said)
    assert not taken or name in hostile_jobs.CLIENT
    assert not bait.found_in(deploy_at_server(kit, job / "app_server")) and not bait.requested


@pytest.mark.parametrize("name", CLIENT)
def test_neither_does_a_site_nor_the_process_of_a_job(run_kit, write, bait, name, monkeypatch):
    kit, app = run_kit(SITE), write(name) / "app_supervised"
    monkeypatch.setattr(AppDeployer, "deploy", DEPLOY)
    reply = deploy_at_site(kit, app)
    assert not bait.requested and not bait.found_in(str(reply.body))
    deployed = kit / ID / f"app_{SITE}"
    shutil.copytree(app, deployed, dirs_exist_ok=True)
    said = load_in_job(run_kit, kit, deployed)
    assert not bait.requested and not bait.found_in(said)
    assert is_log_streaming_allowed() is False, "the job has changed a setting of the site's own"


def load_in_job(run_kit, kit: Path, app: Path) -> str:
    """Load a job's configuration as its process does: all of it, or an error."""
    run_kit(SITE, job=ID)
    places = {"sp_scheme": "grpc", "sp_target": "x:1", "parent_url": "tcp://x:2"}
    args = argparse.Namespace(job_id=ID, workspace=str(kit), client_name=SITE, **places)
    file = str(app / "config" / "config_fed_client.json")
    try:
        conf = ClientJsonConfigurator(Workspace(str(kit), SITE, "config"), file, args, str(app), ["secure_train=true"])
        loaded = json.dumps(conf.config_data)
        conf.configure()
    except Exception as failure:  # noqa: BLE001 - it is searched for bait
        return f"{failure}"
    return loaded + json.dumps(conf.config_data, default=str)


@pytest.mark.parametrize("ending", [".conf", ".yml", ".yaml", ".conf.default", ".yml.default"])
def test_a_loader_of_another_format_says_what_is_wrong(run_kit, tmp_path, ending):
    run_kit(SITE)
    (tmp_path / f"x{ending}").write_text("a: 1")
    with pytest.raises(JobError, match="is not read here: startup kits of FedMed read JSON alone"):
        ConfigFactory.load_config("x.json", [str(tmp_path)])
    with pytest.raises(JobError, match="read JSON alone"):
        ConfigFactory.get_config_loader(ConfigFormat.config_ext_formats()[ending]).load_config_from_str("a: 1")


def test_a_job_reads_no_secret_by_reference(run_kit, bait, hostile_jobs):
    run_kit(SITE, job=ID)
    for reference in (f"${{secret:{hostile_jobs.VARIABLE}}}", f"${{secret:file:{bait.file}}}"):
        with pytest.raises(ValueError, match="invalid secret reference"):
            secret_utils.resolve_secret_refs(reference)


def test_a_kit_of_ours_passes_the_check_of_a_site(example_federation):
    assert list(check_kit(read_kit(example_federation.kits / SITE), SITE)) == []


def test_nvflare_has_other_formats_in_the_known_places_only():
    """A version of NVFlare that has more of them needs a look at the walls first."""
    root, importing = Path(nvflare.__file__).parent, re.compile(r"^\s*(?:from|import) (?:pyhocon|omegaconf)\b", re.M)
    result = {path.relative_to(root) for path in root.rglob("*.py") if importing.search(path.read_text("utf-8"))}
    commands = {Path("cli.py"), Path("utils/cli_utils.py")}  # of a person at a terminal, and so is tool/
    readers = {path for path in result - commands if path.parts[0] != "tool"}
    assert readers == {Path(f"fuel_opt/utils/{name}_loader.py") for name in ("pyhocon", "omegaconf")}
    assert {ending.split(".")[1] for ending in ConfigFormat.config_ext_formats()} <= job_archive.FORMATS


def test_another_nvflare_is_an_error_and_no_open_door(restored, monkeypatch):
    monkeypatch.delattr(secret_utils, "SECRET_REF_PATTERN")
    with pytest.raises(SiteConfigError, match="secret_utils.SECRET_REF_PATTERN.*requirements.txt"):
        json_only.JsonOnly()


def test_building_the_parts_twice_changes_nothing(run_kit):
    run_kit(SITE)
    before = list(ClientRequestProcessors.request_processors), AppDeployer.deploy, ConfigFactory.search_config_format
    json_only.JsonOnly()
    job_gate.PlainJobs()
    assert before == (
        list(ClientRequestProcessors.request_processors),
        AppDeployer.deploy,
        ConfigFactory.search_config_format,
    )
