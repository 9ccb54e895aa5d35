"""Content that the archive of a job may have, and archives that pretend."""

import io
import json
import stat
import zipfile
from pathlib import Path

import pytest
from nvflare.apis.app_validation import AppValidationKey
from nvflare.fuel.utils.zip_utils import unzip_all_from_bytes, zip_directory_to_bytes
from nvflare.lighter.tool_consts import NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE
from nvflare.private.fed.app.default_app_validator import DefaultAppValidator

from fedmed.errors import JobError
from fedmed.flare.job_archive import SIGNATURES, check_app, check_job
from fedmed.jobs.app_shape import server_config
from fedmed.recovery.checkpoint import CARRIED, ROUNDS, Checkpoints

CHECKOUT = Path(__file__).resolve().parents[2]
META = json.dumps({"name": "job", "deploy_map": {"app": ["@ALL"]}})
SERVER = json.dumps(server_config("fedmed.flare.aggregators.IterationWeightedAggregator"))
GOOD = {"job/meta.json": META, "job/app/config/config_fed_server.json": SERVER}


def archive(entries: dict) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as opened:
        for name, data in entries.items():
            opened.writestr(name, data)
    return content.getvalue()


def zipped(folder: Path) -> bytes:
    return zip_directory_to_bytes(str(folder.parent), folder.name)


@pytest.mark.parametrize("job", sorted(path.parent.name for path in CHECKOUT.glob("jobs/*/meta.json")))
def test_every_job_of_the_repository_passes(job):
    check_job(zipped(CHECKOUT / "jobs" / job), job)
    for app in (CHECKOUT / "jobs" / job).glob("app_*"):
        check_app(zip_directory_to_bytes(str(app), ""))


def test_a_job_that_continues_a_run_passes(tiny_job):
    """Its server's app carries what fedmed study resume puts there."""
    job = tiny_job()
    kept = Checkpoints(job / "app_server" / CARRIED)
    for path in (kept.path(12), kept.folder / ROUNDS, kept.model_path(0), kept.model_path(12)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    check_job(zipped(job), job.name)
    check_app(zip_directory_to_bytes(str(job / "app_server"), ""))


def test_a_study_has_one_place_and_a_size():
    study = {"job/app/config/study.yaml": "rounds: 1\nsites: {a: supervised}\n"}
    check_job(archive({**GOOD, **study}), "job")
    for place in ("job/study.yaml", "job/app/study.yaml", "job/app/config/deep/study.yaml", "job/app/config/study.yml"):
        with pytest.raises(JobError, match="no place in a job"):
            check_job(archive({**GOOD, place: "rounds: 1"}), "job")
    with pytest.raises(JobError, match="'job/app/config/study.yaml' has more than 1048576 bytes"):
        check_job(archive({**GOOD, "job/app/config/study.yaml": "#" * ((1 << 20) + 1)}), "job")


def test_a_configuration_of_another_form_passes_only_where_nvflare_asks_for_the_right_to_bring_code(tmp_path):
    other = {**GOOD, "job/app/config/config_fed_server.json": '{"format_version": 2}'}
    for elsewhere in ({}, {"job/b/custom/x.py": ""}, {"job/custom/config/study.yaml": ""}):
        with pytest.raises(JobError, match="config_fed_server.json' is not as FedMed writes it, at 'server'"):
            check_job(archive({**other, **elsewhere}), "job")
    for number, code in enumerate(({"custom/x.py": ""}, {"custom/": ""})):
        check_job(archive({**other, **{f"job/app/{name}": data for name, data in code.items()}}), "job")
        app = archive({"config/config_fed_server.json": '{"format_version": 2}', **code})
        check_app(app)
        (tmp_path / str(number)).mkdir()
        unzip_all_from_bytes(app, str(tmp_path / str(number)))
        assert DefaultAppValidator("server").validate(str(tmp_path / str(number))) == (
            "",
            {AppValidationKey.BYOC: True},
        )


def test_what_nvflare_signs_a_job_with_passes():
    assert {NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE} == SIGNATURES
    folders = ("job/", "job/app/", "job/app/config/", "job/app/custom/", "job/app/custom/deep/")
    signed = {f"{folder}{name}": "{}" for folder in folders for name in SIGNATURES}
    check_job(archive({**dict.fromkeys(folders, ""), **GOOD, **signed, "job/app/custom/deep/x.py": ""}), "job")


@pytest.mark.parametrize(
    "name",
    [
        *("job/meta.conf", "job/META.json", "job/meta.json.default", "job/meta.yml", "meta.json", "other/meta.json"),
        *("job/config/config_fed_client.json", "job/app/config_fed_client.json", "job/app/config/deep/"),
        *("job/app/config/config_fed_server.conf", "job/app/config/CONFIG_FED_CLIENT.JSON", "job/app/meta.json"),
        *("job/app/config/config_fed_client.json.default", "job/app/config/config_fed_client.yaml"),
        *("job/app/config/config_fed_client.json/", "job/app/config/deep/config_fed_client.json"),
        *("job/app/config/comm_config.json", "job/app/config/resources.json", "job/app/config/driver.py"),
        *("job/app/config/environment.json", "job/app/x.conf", "job/app/resume/fed_client.json", "job/app/other/"),
        *("job/app/resume/models/round_1.json", "job/app/custom/resources.json", "job/app/custom/a/x.Conf"),
        *("job/app/custom/x.yml.default", "job/app/custom/x.json.py", "job/app/custom", "job/notes.txt", "job"),
        *("/job/meta.json", "job/../x.py", "job/app/custom/../config/x", "job//x", "job/./x", "./job/x", "../x"),
        *("job\\app\\x", "C:\\x", "job/app/custom/x\n.py", "job/app/custom/\u202ey.py", "job/-x/", "job/a b/"),
    ],
)
def test_an_entry_with_another_name_or_place_is_refused(name):
    check_job(archive(GOOD), "job")
    with pytest.raises(JobError, match="has no place in a job|not a plain name") as refused:
        check_job(archive({**GOOD, name: "{}"}), "job")
    assert "study package" in str(refused.value) and "docs/deployment.md" in str(refused.value)
    if name.startswith("job/app/"):
        with pytest.raises(JobError):
            check_app(archive({name.removeprefix("job/app/"): "{}"}))


CONTENTS = {
    "hocon": "a = 1",
    "hocon in braces": "{a = ${HOME}}",
    "an include": 'include file("/etc/hostname")\n{}',
    "a comment": '{"a": 1} // b',
    "a comma too many": '{"a": 1,}',
    "yaml": "a: 1",
    "a list": "[]",
    "a text": '"a"',
    "nothing": "",
    "a key twice": '{"a": 1, "a": 2}',
    "a key twice, deep": '{"a": [{"b": 1, "b": 2}]}',
    "not a number": '{"a": NaN}',
    "infinity": '{"a": -Infinity}',
    "a variable": '{"a": "{$HOME}"}',
    "a variable within": '{"a": ["x/{WORKSPACE}/y"]}',
    "a secret": '{"a": "${secret:HOME}"}',
    "a key with a variable": '{"{$HOME}": 1}',
    "escaped": '{"a": "\\u007b$HOME\\u007d"}',
    "a mark": b"\xef\xbb\xbf{}",
    "utf-16": "{}".encode("utf-16"),
    "latin-1": '{"a": "\u00e4"}'.encode("latin-1"),
    "deep": "[" * 100_000,
    "deep and closed": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "large": '{"a": "' + "x" * (1 << 20) + '"}',
    "two": "{}{}",
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("name", ["job/meta.json", "job/app/config/config_fed_client.json"])
def test_a_file_that_is_called_json_must_be_json(name, content):
    with pytest.raises(JobError, match="is not plain JSON"):
        check_job(archive({**GOOD, name: content}), "job")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_is_there_once_and_is_no_link():
    for again in ("job/meta.json", "job/Meta.json", "job/meta.json/"):
        content = io.BytesIO(archive(GOOD))
        with zipfile.ZipFile(content, "a") as opened:
            opened.writestr(again, META)
        with pytest.raises(JobError, match="there twice|has no place"):
            check_job(content.getvalue(), "job")
    link = zipfile.ZipInfo("job/app/custom/x.py")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with pytest.raises(JobError, match="a link"):
        check_job(archive({**GOOD, link: "/etc/hostname"}), "job")


def test_a_name_that_readers_cut_off_is_refused():
    content = archive({**GOOD, "job/app/custom/x.py?.conf": ""}).replace(b"x.py?.conf", b"x.py\0.conf")
    with pytest.raises(JobError, match="not a plain name"):
        check_job(content, "job")


def test_a_damaged_archive_is_refused_and_not_quoted(tmp_path):
    whole = archive({**GOOD, "job/app/config/config_fed_client.json": '{"a": "some text"}'})
    for broken in (b"", b"no archive", whole[:-30], whole.replace(b"some text", b"other txt")):
        with pytest.raises(JobError, match="cannot be read"):
            check_job(broken, "job")
    with pytest.raises(JobError, match="cannot be read") as refused:
        check_job(tmp_path / "missing.zip", "job")
    assert str(tmp_path) not in str(refused.value)
