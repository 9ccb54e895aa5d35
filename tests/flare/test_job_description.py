"""A job's description may say only what its study says."""

import json
from pathlib import Path

import pytest
import yaml
from nvflare.apis.job_def import JobMetaKey
from nvflare.fuel.utils.zip_utils import zip_directory_to_bytes

from fedmed.errors import JobError
from fedmed.flare.job_description import LEADS, SERVERS, Signed, check_deployed, check_started, check_submitted

CHECKOUT = Path(__file__).resolve().parents[2]
ID = "0a4c5f3e-2b1d-4c6e-8f70-9182a3b4c5d6"
LEAD = ("lead@example.org", "study_office", "lead")
SIGNED = Signed(frozenset([LEAD]), frozenset(["a"]))
STUDY = {"name": "study", "sites": {"b": "supervised", "a": "supervised", "c": "evaluate"}, "rounds": 1}
META = {
    "name": "study",
    "resource_spec": {},
    "min_clients": 2,
    "deploy_map": {"app_server": ["server"], "app_supervised": ["a", "b"], "app_evaluate": ["c"]},
}
SENT = {
    **META,
    **dict(zip(("submitter_name", "submitter_org", "submitter_role"), LEAD, strict=True)),
    **{"job_id": ID, "study": "default", "status": "SUBMITTED", "byoc": True, "job_clients": []},
}
FALSE = [
    *(
        {"name": "other"},
        {"name": None},
        {"min_clients": 1},
        {"min_clients": "2"},
        {"resource_spec": {"a": {"gpu": 1}}},
    ),
    {"deploy_map": {"app_server": ["server"], "app_supervised": ["@ALL"]}},
    {"deploy_map": {**META["deploy_map"], "app_supervised": ["a"]}},
    {"deploy_map": {**META["deploy_map"], "app_evaluate": ["c", "d"]}},
    {"deploy_map": {"app_server": ["server"], "app_supervised": ["a", "c"], "app_evaluate": ["b"]}},
    {"deploy_map": {**META["deploy_map"], "../app": ["a"]}},
    {"deploy_map": []},
]
# What NVFlare would let change where and how a job runs.
MORE = ["launcher_spec", "scope", "custom_props", "edge_method", "stats_pool_config", "mandatory_clients", "anything"]


@pytest.fixture
def job(tmp_path):
    """Return a function: a small job folder, with another description or study; of an app, a study that is its own."""

    def write(meta: dict, **studies: object) -> Path:
        folder = tmp_path / "job"
        for app in META["deploy_map"]:
            (folder / app / "config").mkdir(parents=True, exist_ok=True)
            text = studies.get(app, STUDY)
            (folder / app / "config" / "study.yaml").write_text(text if isinstance(text, str) else yaml.safe_dump(text))
        (folder / "meta.json").write_text(json.dumps(meta))
        return folder

    return write


def submit(folder: Path) -> None:
    check_submitted(zip_directory_to_bytes(str(folder.parent), folder.name), folder.name)


@pytest.mark.parametrize("name", sorted(path.parent.name for path in CHECKOUT.glob("jobs/*/meta.json")))
def test_every_job_of_the_repository_is_what_its_study_says(name):
    submit(CHECKOUT / "jobs" / name)
    meta = json.loads((CHECKOUT / "jobs" / name / "meta.json").read_text())
    for app in (CHECKOUT / "jobs" / name).glob("app_*"):
        check_deployed({**SENT, **meta}, ID, zip_directory_to_bytes(str(app), ""), SIGNED)


def test_a_job_brings_nothing_that_the_server_says(job):
    """Its id above all: it would be the name of a folder beside the kit's own."""
    submit(job(META))
    for key in sorted({*SERVERS, *MORE, *(key.value for key in JobMetaKey)} - LEADS):
        for value in ("local", ""):
            with pytest.raises(JobError, match=f"meta.json has '{key}', which no job may bring"):
                submit(job({**META, key: value}))


@pytest.mark.parametrize("false", FALSE)
def test_a_description_that_is_not_the_studys_is_refused(job, false):
    key = next(iter(false))
    with pytest.raises(JobError, match=f"description has {key} .*study package"):
        submit(job({**META, **false}))
    folder = job(META)
    app = zip_directory_to_bytes(str(folder / "app_supervised"), "")
    check_deployed(SENT, ID, app, SIGNED)
    with pytest.raises(JobError, match=f"description has {key} "):
        check_deployed({**SENT, **false}, ID, app, SIGNED)
    with pytest.raises(JobError, match=f"was deployed with {key} "):
        check_started({**SENT, **false}, SENT)


@pytest.mark.parametrize("study", [{**STUDY, "sites": ["a"]}, {"name": "study"}, "a", "", {**STUDY, "sites": {1: "x"}}])
def test_a_study_that_is_none_is_refused(job, study):
    with pytest.raises(JobError):
        submit(job(META, app_evaluate=study))


def test_every_app_carries_a_study(job):
    folder = job(META)
    (folder / "app_evaluate" / "config" / "study.yaml").unlink()
    with pytest.raises(JobError, match="app_evaluate/config/study.yaml is missing"):
        submit(folder)
    with pytest.raises(JobError, match="config/study.yaml is missing"):
        check_deployed(SENT, ID, zip_directory_to_bytes(str(folder / "app_evaluate"), ""), SIGNED)
    folder = job(META)
    (folder / "app_more" / "config").mkdir(parents=True)
    (folder / "app_more" / "config" / "study.yaml").write_text(yaml.safe_dump(STUDY))
    with pytest.raises(JobError, match="app 'app_more' is not both"):
        submit(folder)


OTHERS = [{"submitter_name": "admin@example.org"}, {"submitter_role": "project_admin"}, {"submitter_org": ""}]


@pytest.mark.parametrize("change", [*OTHERS, {"job_id": ID.replace("0a", "1a")}])
def test_a_description_under_another_id_or_of_another_person_is_refused(job, change):
    app = zip_directory_to_bytes(str(job(META) / "app_supervised"), "")
    with pytest.raises(JobError, match="signed by|is that of job"):
        check_deployed({**SENT, **change}, ID, app, SIGNED)
    with pytest.raises(JobError, match="was deployed with"):
        check_started({**SENT, **change}, SENT)


@pytest.mark.parametrize("name", ["../x", "a/b", ".", "", "local\n", "Study", 7.5, None])
def test_the_study_of_nvflares_is_a_plain_name(job, name):
    app = zip_directory_to_bytes(str(job(META) / "app_supervised"), "")
    with pytest.raises(JobError, match="is not the name of a study"):
        check_deployed({**SENT, "study": name}, ID, app, SIGNED)


@pytest.mark.parametrize("key", MORE)
def test_what_would_change_how_a_job_runs_is_refused_everywhere(job, key):
    app = zip_directory_to_bytes(str(job(META) / "app_supervised"), "")
    with pytest.raises(JobError, match=f"'{key}', which no study says"):
        check_deployed({**SENT, key: {}}, ID, app, SIGNED)
    with pytest.raises(JobError, match=f"'{key}', which no study says"):
        check_started({**SENT, key: {}}, SENT)


def test_what_the_server_adds_between_deployment_and_start_may_differ():
    check_started({**SENT, "status": "DISPATCHED", "job_clients": [{"name": "a"}], "start_time": "now"}, SENT)
