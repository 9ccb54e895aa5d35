"""fedmed site check on a demo site with a tiny job, and its exit codes."""

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from fedmed.commands import command_line
from fedmed_demo import demo_site
from tests.commands import fedmed
from tests.scripts.while_it_runs import not_heeded, while_it_runs

PREPARED = ".fedmed-check-*/cache/*/*.pt"  # cases, below a site's cache


@pytest.fixture(scope="module")
def script():
    return fedmed("site", "check")


@pytest.fixture
def options(tmp_path):
    return ["--out", str(tmp_path / "page.html"), "--csv", str(tmp_path / "kept.csv"), "--workers", "1"]


def test_a_demo_site_is_measured_and_ready(script, tiny_job, options, tmp_path, fedmed_home, capsys):
    before = sorted((fedmed_home / "cache").rglob("*"))
    assert script(["ct_north", "--job", str(tiny_job(steps=40)), *options]) == 0
    shown = capsys.readouterr().out
    assert "No problem was found; not checked: the connection." in shown
    assert "a round of 40 steps" in shown and "scoring a case" in shown
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "CTN-0" not in html and "_ct" not in html.replace("covid_ct", "")
    assert len((tmp_path / "kept.csv").read_text().splitlines()) == 10
    assert sorted((fedmed_home / "cache").rglob("*")) == before  # the site's cache is left alone


def test_problems_end_with_code_1(script, tiny_site_configs, fedmed_home, tmp_path, options, capsys):
    root = demo_site("chest_ct_tiny", "ct_north", fedmed_home)
    lists = json.loads((root / "datalist.json").read_text())
    lists["testing"].append(lists["training"][0])
    (tmp_path / "lists.json").write_text(json.dumps(lists))
    site = tmp_path / "site.yaml"
    site.write_text(f"data_root: {root}\ndatalist: {tmp_path / 'lists.json'}\ndevice: cpu\n")
    assert script([str(site), "--skip", "training", *options]) == 1
    assert "is in two lists" in capsys.readouterr().out


def test_a_site_that_the_job_does_not_name_is_checked_by_its_lists(
    script, tiny_job, fedmed_home, tmp_path, options, capsys
):
    root = demo_site("chest_ct_tiny", "ct_north", fedmed_home)
    site = tmp_path / "a.yaml"
    site.write_text(f"data_root: {root}\ndatalist: {root / 'datalist.json'}\ndevice: cpu\n")
    assert script([str(site), "--job", str(tiny_job()), "--skip", "training", *options]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "does not name 'a': checked as supervised" in shown and "--role" in shown
    assert "the job does not name the site" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["/nowhere/site.yaml"], "not a readable YAML"),
        (["no_such_site"], "has no configuration file"),
        ([], "--kit"),
        (["ct_north", "--job", "no_such_job"], "no such job folder"),
        (["ct_north", "--skip", "everything"], "--skip everything is unknown"),
        (["ct_north", "--kit", "/nowhere"], "startup/fed_client.json is missing"),
    ],
)
def test_what_cannot_be_checked_ends_with_code_2(script, tiny_site_configs, options, capsys, arguments, words):
    assert script([*arguments, *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and words in error


def test_workers_load_no_torch():
    code = "import sys; import fedmed.commands.command_line; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_prepared_cases_do_not_outlive_a_broken_connection(
    script, tiny_job, fedmed_home, options, tmp_path, monkeypatch, capsys
):
    cache, children = tmp_path / "cache", []
    cache.mkdir()
    root = demo_site("chest_ct_tiny", "ct_north", fedmed_home)
    site = tmp_path / "ct_north.yaml"
    site.write_text(f"data_root: {root}\ndevice: cpu\ncache_dir: {cache}\n")
    line = [str(site), *options, "--job", str(tiny_job()), "--steps", "100000", "--skip", "disk,device"]
    monkeypatch.setattr(command_line, "end_workers", lambda: None)  # of other tests of this process

    def hang_up():
        children.extend(set(psutil.Process().children()) - before)
        os.kill(os.getpid(), signal.SIGHUP)

    hangup = signal.signal(signal.SIGHUP, not_heeded)  # the tests themselves may run under nohup
    before = set(psutil.Process().children())
    try:
        assert while_it_runs(lambda: script(line), lambda: [*cache.glob(PREPARED)], hang_up) == 130
    finally:
        signal.signal(signal.SIGHUP, hangup)
    assert "interrupted" in capsys.readouterr().err
    assert children and not list(cache.glob(".fedmed-check-*")) and not psutil.wait_procs(children, timeout=600)[1]


def test_nothing_is_written_to_the_current_folder(script, tiny_site_configs, fedmed_home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert script(["ct_north", "--skip", "training", "--workers", "1"]) == 0
    assert not list(tmp_path.iterdir())
    assert (fedmed_home / "to_send" / "check_ct_north.html").is_file()
    assert (fedmed_home / "checks" / "ct_north.csv").is_file()
