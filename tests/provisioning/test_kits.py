"""Content of the kits, and refusals of provisioning; that they run is tested in tests/e2e/test_provisioned.py."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from nvflare.fuel.sec.authz import AuthzContext, Person
from nvflare.fuel.utils.config_service import ConfigService
from nvflare.lighter.entity import Project
from nvflare.security.security import FLAuthorizer

from fedmed.commands.command_line import main
from fedmed.errors import SiteConfigError
from fedmed.flare.kit import KitJobs, KitStorage, ServerTimeouts
from fedmed.jobs.job_classes import job_classes
from fedmed.provisioning.kit_builder import MESSAGES, TEMPLATES, SiteBuilder
from fedmed.provisioning.kits import Federation
from fedmed.provisioning.make_kits import EXAMPLE
from fedmed.provisioning.project_file import BUILDER, OLD_BUILDER, read_project
from fedmed.settings.server import load_server
from fedmed.settings.site import load_site

JOBS = Path(__file__).resolve().parents[2] / "jobs"
SITES = ("hospital_a", "hospital_b", "hospital_c")
PEOPLE = {"project_admin": "admin@example.org", "lead": "lead@example.org", "member": "researcher@example.org"}
SERVER = "fl.example.org"


@pytest.fixture
def federation(example_federation, tmp_path):
    """A copy that a test may change."""
    return Federation.open(shutil.copytree(example_federation.folder, tmp_path / "study"))


def read(folder: Path, name: str):
    return json.loads((folder / "local" / name).read_text())


def component(resources: dict, name: str):
    return next((part for part in resources["components"] if part["id"] == name), None)


# --- kits


def test_every_participant_gets_a_kit_that_only_its_owner_reads(example_federation):
    assert {kit.name for kit in example_federation.kits.iterdir()} == {SERVER, *SITES, *PEOPLE.values()}
    for path in (example_federation.folder, *example_federation.folder.rglob("*")):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    assert os.access(example_federation.kits / "hospital_a" / "startup" / "start.sh", os.X_OK)
    assert (example_federation.folder / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("name", [SERVER, "hospital_b"])
def test_kits_allow_exactly_the_classes_that_jobs_name(example_federation, name, tmp_path, write_tiny_job):
    changes = {"full": {}, "partial": {"sharing": "block_6"}}
    jobs = [write_tiny_job(tmp_path, name, **change) for name, change in changes.items()]
    jobs += [JOBS / name for name in ("cxr_fedmoco", "cxr_linear", "cxr_finetune")]
    configs = [json.loads(path.read_text()) for job in jobs for path in job.rglob("config_fed_*.json")]
    assert {name for config in configs for name in class_paths(config)} == set(job_classes())
    resources = read(example_federation.kits / name, "resources.json.default")
    assert resources["class_allow_list"] == job_classes()
    assert resources["class_list_enforcement_mode"] == "enforce"
    assert not component(resources, "log_receiver"), "it writes into folders that sites name"


def class_paths(node):
    if isinstance(node, dict):
        yield from [node["path"]] if isinstance(node.get("path"), str) else []
        for value in node.values():
            yield from class_paths(value)
    elif isinstance(node, list):
        for value in node:
            yield from class_paths(value)


def test_a_site_keeps_its_logs_and_files_and_limits_what_leaves(example_federation):
    kit = example_federation.kits / "hospital_a"
    resources = read(kit, "resources.json.default")
    assert resources["allow_log_streaming"] is False and not component(resources, "site_log_streamer")
    assert resources["components"][2] == component(resources, "site_messages") == MESSAGES
    assert component(resources, "no_remote_reading")["path"] == "fedmed.flare.kit.NoRemoteReading"
    privacy = read(kit, "privacy.json")
    assert privacy["default_scope"] == privacy["scopes"][0]["name"] == "site"
    assert privacy["scopes"][0]["task_result_filters"][0]["path"] == "fedmed.flare.filters.SiteLimitsFilter"


def test_the_server_stores_below_its_kit(example_federation):
    resources = read(example_federation.kits / SERVER, "resources.json.default")
    assert component(resources, "job_manager")["args"]["uri_root"] == "store/jobs"
    assert resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] == "store/snapshots"
    for kit in example_federation.kits.iterdir():
        for path in (kit / "local").iterdir():
            assert "/tmp/" not in path.read_text(), path


def test_the_servers_settings_are_the_template(example_federation):
    template = (TEMPLATES / "fedmed_server.yaml").read_text()
    assert (example_federation.kits / SERVER / "local/fedmed_server.yaml").read_text() == template
    assert load_server(example_federation.kits / SERVER).data_root is None


@pytest.mark.parametrize(
    ("site", "list_"), [("hospital_a", "training"), ("hospital_b", "unlabeled"), ("hospital_c", "testing")]
)
def test_a_site_does_not_run_until_its_data_folder_is_filled_in(example_federation, site, list_, tmp_path):
    template = example_federation.kits / site / "local" / "fedmed_site.yaml"
    text = template.read_text()
    assert f"'{list_}'" in text.split("data_root")[0] and "{" not in text.split("site:")[0]
    with pytest.raises(SiteConfigError, match="key 'data_root' is .*; the folder /FILL/IN/the/folder/of/your/images"):
        load_site(site, template.parents[1])
    filled = tmp_path / "local" / "fedmed_site.yaml"
    filled.parent.mkdir()
    text = text.replace("/FILL/IN/the/folder/of/your/images", str(tmp_path))
    filled.write_text(text.replace("# privacy:", "privacy:").replace("\n#   ", "\n  "))
    read = load_site(site, tmp_path)
    assert read.data_root == tmp_path and read.privacy.noise_multiplier == 8 and read.privacy.max_epsilon == 10


def rights(kit: Path, org: str):
    """Return a function: role, right, submitter's role -> whether a kit's policy allows it to somebody of the study."""
    policy = FLAuthorizer(org, read(kit, "authorization.json.default"))

    def may(role: str, right: str, submitter: str = "lead", org: str = "study_office") -> bool:
        user, owner = Person(role, org, role), Person(submitter, "study_office", submitter)
        return policy.authorize(AuthzContext(right=right, user=user, submitter=owner))[0]

    return may


def test_who_may_do_what_at_the_server(example_federation):
    may = rights(example_federation.kits / SERVER, "study_office")
    job = ("submit_job", "abort_job", "delete_job", "download_job", "get_job_log")
    assert all(may("lead", right) and may("project_admin", right) and not may("member", right) for right in job)
    assert not may("lead", "abort_job", submitter="project_admin") and may("project_admin", "abort_job")
    assert may("lead", "download_job", submitter="project_admin")
    assert all(may(role, "list_jobs") and may(role, "report_version") for role in PEOPLE)
    assert may("project_admin", "shutdown")
    assert not may("lead", "shutdown") and not may("org_admin", "shutdown", org="x")
    assert not any(may(role, right) for role in PEOPLE for right in ("byoc", "configure_job_log", "clone_job"))


def test_who_may_do_what_at_a_site(example_federation):
    may = rights(example_federation.kits / "hospital_a", "hospital_a")
    reading = ("cat", "ls", "grep", "head", "tail", "show_errors", "report_env", "configure_site_log")
    assert not any(may(role, right) for role in PEOPLE for right in (*reading, "byoc"))
    assert may("org_admin", "restart", org="hospital_a") and not may("org_admin", "restart", org="hospital_b")
    assert may("lead", "submit_job") and not may("member", "submit_job") and not may("org_admin", "submit_job")


def test_custom_code_is_a_participants_own_choice(tmp_path):
    project = read_project(EXAMPLE)
    project["participants"][1]["custom_code"] = True
    federation = Federation.open(tmp_path / "study")
    federation.provision(project)
    assert rights(federation.kits / "hospital_a", "hospital_a")("lead", "byoc")
    assert not rights(federation.kits / "hospital_a", "hospital_a")("member", "byoc")
    assert not rights(federation.kits / "hospital_b", "hospital_b")("lead", "byoc")


@pytest.mark.parametrize("name", [SERVER, "hospital_a"])
def test_a_kit_prepared_for_containers_keeps_what_we_added(example_federation, name, tmp_path):
    (tmp_path / "docker.yaml").write_text("runtime: docker\nparent: {docker_image: fedmed}\n")
    command = [str(Path(sys.executable).with_name("nvflare")), "deploy", "prepare", str(example_federation.kits / name)]
    places = ["--config", str(tmp_path / "docker.yaml"), "--output", str(tmp_path / "prepared")]
    env = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run([*command, *places], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    kits = (example_federation.kits / name, tmp_path / "prepared")
    before, after = (read(kit, "resources.json.default") for kit in kits)
    assert after["class_allow_list"] == before["class_allow_list"]
    assert after.get("allow_log_streaming") == before.get("allow_log_streaming")
    kept = {"timeouts", "no_remote_reading", "job_manager", "json_only", "plain_jobs", "site_messages"} & {
        part["id"] for part in before["components"]
    }
    assert all(component(after, part)["path"] == component(before, part)["path"] for part in kept) and kept
    policy, prepared_policy = (read(kit, "authorization.json.default") for kit in kits)
    assert prepared_policy == policy
    assert (tmp_path / "prepared" / "local" / "privacy.json").is_file() == (name != SERVER)


# --- parts of a kit


def test_stores_follow_a_kit_that_is_carried_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NVFL_JOB_STORE_ROOT", raising=False)
    assert KitJobs("store/jobs").job_uri("a-job") == str(tmp_path / "store" / "jobs" / "a-job")
    assert KitStorage("store/snapshots").root_dir == str(tmp_path / "store" / "snapshots")
    for folder in ("jobs", "snapshots"):
        assert stat.S_IMODE((tmp_path / "store" / folder).stat().st_mode) == 0o700
    monkeypatch.setenv("NVFL_JOB_STORE_ROOT", str(tmp_path / "volume"))
    assert KitJobs("store/jobs").uri_root == str(tmp_path / "volume")


def test_the_servers_main_process_waits_a_minute_for_a_vanished_site(monkeypatch):
    monkeypatch.setenv("NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT", "5")
    ServerTimeouts(60.0)
    assert os.environ["NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT"] == "5"
    monkeypatch.delenv("NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT")
    ServerTimeouts(60.0)
    ConfigService.reset()
    try:
        assert ConfigService.get_float_var("client_outcome_wait_timeout", "application_config", 900.0) == 60.0
    finally:
        ConfigService.reset()


# --- provisioning again, later, wrongly


def certificate(kit: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(next((kit / "startup").glob("*.crt")).read_bytes())


def authority(kit: Path) -> bytes:
    return (kit / "startup" / "rootCA.pem").read_bytes()


def test_a_site_joins_later_with_a_complete_kit_and_the_others_stay(federation, capsys):
    before = {path: path.read_bytes() for path in federation.kits.rglob("*") if path.is_file()}
    shutil.rmtree(federation.kits / "hospital_c")  # handed over and deleted, as advised
    assert main(["add-site", "hospital_d", "clinic_d", "--role", "evaluate", "--out", str(federation.folder)]) == 0
    said, kit = capsys.readouterr().out, federation.kits / "hospital_d"
    assert "kits/hospital_d" in said and "evaluate, clinic_d" in said and "hospital_a" not in said
    same = {path.relative_to(federation.kits / "hospital_a") for path in (federation.kits / "hospital_a").rglob("*")}
    assert {path.relative_to(kit) for path in kit.rglob("*")} == same
    certificate(kit).verify_directly_issued_by(x509.load_pem_x509_certificate(authority(federation.kits / SERVER)))
    after = {p: p.read_bytes() for p in federation.kits.rglob("*") if p.is_file() and kit not in p.parents}
    assert after == {path: content for path, content in before.items() if path.exists()}
    assert not (federation.kits / "hospital_c").exists()
    assert main(["add-site", "hospital_d", "clinic_d", "--out", str(federation.folder)]) == 2
    assert "has a participant 'hospital_d' already" in capsys.readouterr().err
    assert main(["add-site", "hospital.e", "clinic_e", "--out", str(federation.folder)]) == 2
    assert "'hospital.e' is not a site's name" in capsys.readouterr().err


def test_provisioning_again_changes_nothing_and_adds_only_new_participants(federation, tmp_path, capsys):
    before = authority(federation.kits / SERVER)
    assert main(["provision", str(EXAMPLE), "--out", str(federation.folder)]) == 0
    assert "nothing was changed" in capsys.readouterr().out
    project = read_project(EXAMPLE)
    project["participants"] += [{"name": "new@example.org", "type": "admin", "org": "study_office", "role": "member"}]
    (tmp_path / "more.yml").write_text(yaml.safe_dump(project))
    assert main(["provision", str(tmp_path / "more.yml"), "--out", str(federation.folder)]) == 0
    said = capsys.readouterr().out
    assert "kits/new@example.org" in said and "authority and the other kits are unchanged" in said
    assert authority(federation.kits / "new@example.org") == before
    project["participants"][1]["org"] = "another"
    project["name"] = "other"
    (tmp_path / "other.yml").write_text(yaml.safe_dump(project))
    assert main(["provision", str(tmp_path / "other.yml"), "--out", str(federation.folder)]) == 2
    assert "'name' differs from what was provisioned before" in capsys.readouterr().err
    assert authority(federation.kits / SERVER) == before


def test_a_renewed_certificate_is_new_and_of_the_same_authority(federation, capsys):
    kit = federation.kits / "hospital_a"
    (kit / "local" / "fedmed_site.yaml").write_text("data_root: /data\n")
    before, others = certificate(kit), certificate(federation.kits / "hospital_b")
    assert main(["add-site", "hospital_a", "--renew", "--out", str(federation.folder)]) == 0
    after = certificate(kit)
    assert str(kit / "startup" / "client.key") in capsys.readouterr().out
    assert after.public_key() != before.public_key() and after.subject == before.subject
    after.verify_directly_issued_by(x509.load_pem_x509_certificate(authority(kit)))
    assert certificate(federation.kits / "hospital_b") == others
    assert (kit / "local" / "fedmed_site.yaml").read_text() == "data_root: /data\n"
    assert main(["add-site", "nobody", "--renew", "--out", str(federation.folder)]) == 2
    assert "has no participant 'nobody'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda p: p["participants"][1].update(fedmed_role="doctor"),
            "key 'fedmed_role' of entry 2 of 'participants' is 'doctor'; it must be 'supervised', 'uns",
        ),
        (lambda p: p["participants"][1].update(connection_security="clear"), "is 'clear'; FedMed's kits use"),
        (
            lambda p: p["participants"][1].update(custom_code="yes"),
            "key 'custom_code' of entry 2 of 'participants' is 'yes'; it must be true or false",
        ),
        (lambda p: p["participants"][1].update(name="hospital a"), "is not a site's name"),
        (lambda p: p["participants"][1].update(name="hospital_b"), "a 'name' of its own; twice: hospital_b"),
        (lambda p: p.update(participants=[]), "key 'participants' is []; it must be of 1 entries or more"),
        (lambda p: p["participants"][1].pop("org"), "key 'org' of entry 2 of 'participants' is missing"),
        (lambda p: p["participants"][1].update(fedmed_rol="x"), "'fedmed_rol'; did you mean 'fedmed_role'?"),
        (lambda p: p["builders"].pop(2), "does not name fedmed.provisioning.kit_builder.SiteBuilder"),
    ],
)
def test_a_wrong_project_is_one_line_and_leaves_no_kit(tmp_path, capsys, change, message):
    project = yaml.safe_load(EXAMPLE.read_text())
    change(project)
    (tmp_path / "wrong.yml").write_text(yaml.safe_dump(project))
    assert main(["provision", str(tmp_path / "wrong.yml"), "--out", str(tmp_path / "study")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and message in said and len(said.splitlines()) == 1
    assert not list((tmp_path / "study").rglob("*")), "something that the next attempt could stumble over"


def test_a_project_with_several_mistakes_names_all_with_their_lines(tmp_path):
    text = EXAMPLE.read_text().replace("type: server", "type: sever").replace("fedmed_role: evaluate", "fedmed_role: x")
    (tmp_path / "wrong.yml").write_text(text)
    with pytest.raises(SiteConfigError) as caught:
        read_project(tmp_path / "wrong.yml")
    first, *result = str(caught.value).splitlines()
    where = [number for number, line in enumerate(text.splitlines(), 1) if "sever" in line or "fedmed_role: x" in line]
    assert first.endswith("wrong.yml: 2 mistakes:")
    assert [line.split(":")[0] for line in result] == [f"  line {number}" for number in where]


@pytest.mark.parametrize("props", [{"connection_security": "tls"}, {"fedmed_role": "doctor"}, {"custom_code": "yes"}])
def test_a_project_that_nvflare_itself_is_given_is_checked_too(props):
    project = Project("p", "", {})
    project.add_client("hospital_a", "clinic", props)
    with pytest.raises(SiteConfigError, match=f"participant 'hospital_a': key '{next(iter(props))}' is "):
        SiteBuilder().initialize(project, None)


def test_the_record_of_an_older_federation_is_read(tmp_path):
    (tmp_path / "old.yml").write_text(EXAMPLE.read_text().replace(BUILDER, OLD_BUILDER))
    assert read_project(tmp_path / "old.yml") == read_project(EXAMPLE)


def test_a_federation_with_a_name_from_before_the_rule_grows_and_says_what_to_do(federation, tmp_path, capsys):
    record = federation.folder / "project.yml"
    record.write_text(record.read_text().replace("name: hospital_b", "name: hospital.b"))
    (federation.kits / "hospital_b").rename(federation.kits / "hospital.b")
    shutil.copy(record, tmp_path / "wanted.yml")
    place = ["--out", str(federation.folder)]
    for command in (["add-site", "hospital_d", "clinic_d"], ["provision", str(tmp_path / "wanted.yml")]):
        assert main([*command, *place]) == 0
        assert "no job can name the site 'hospital.b'" in capsys.readouterr().err
    assert (federation.kits / "hospital_d" / "startup").is_dir()
    assert {"hospital.b", "hospital_d"} < set(Federation.open(federation.folder).names())
    for command in (["add-site", "hospital.e", "clinic_e"], ["add-site", "hospital.b", "--renew"]):
        assert main([*command, *place]) == 2
        assert f"error: '{command[1]}' is not a site's name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["provision"], "name a project file"),
        (["provision", "nothing.yml"], "not a readable YAML file"),
        (["provision", str(EXAMPLE), "--out", str(EXAMPLE.parent / "kits")], "lies in the checkout"),
        (["add-site", "x", "y", "--out", "/does/not/exist"], "holds no federation"),
    ],
)
def test_mistakes_of_the_command_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_a_folder_with_something_else_is_not_touched(tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("x")
    assert main(["provision", str(EXAMPLE), "--out", str(tmp_path)]) == 2
    assert "is not a federation of FedMed's" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_the_default_place_is_the_home_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["provision", str(EXAMPLE)]) == 0
    assert (tmp_path / "fedmed" / "fedmed_study" / "kits" / "hospital_a").is_dir()
    assert {path.name for path in tmp_path.iterdir()} == {"fedmed"}, "NVFlare wrote into the home folder"
    assert main(["add-site", "hospital_d", "clinic_d"]) == 0
