"""provision.sh and add_site.sh: what they say of themselves; what they do is tested in tests/flare and tests/e2e."""

import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def run(name, *arguments):
    return subprocess.run([str(SCRIPTS / name), *arguments], capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize(
    ("name", "usage"), [("provision.sh", "PROJECT.yml [--out DIR]"), ("add_site.sh", "NAME ORG [--role")]
)
def test_help_shows_how_it_is_called(name, usage):
    shown = run(name, "--help")
    assert shown.returncode == 0 and f"scripts/{name} {usage}" in shown.stdout and "set -" not in shown.stdout


@pytest.mark.parametrize(("name", "missing"), [("provision.sh", "name a project file"), ("add_site.sh", "NAME ORG")])
def test_without_arguments_it_says_what_is_missing(name, missing):
    done = run(name)
    assert done.returncode == 2 and missing in done.stdout + done.stderr


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path):
    done = run("provision.sh", str(tmp_path / "nothing.yml"), "--out", str(tmp_path / "out"))
    assert done.returncode == 2 and done.stderr.startswith("error: ") and "not a readable YAML file" in done.stderr
    assert not (tmp_path / "out").exists()
