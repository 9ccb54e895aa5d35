"""Old paths of scripts answer with the command that they are now."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import fedmed

SCRIPTS = Path(__file__).parents[2] / "scripts"
MOVED = sorted(path for path in SCRIPTS.iterdir() if path.is_symlink())


@pytest.mark.parametrize("path", MOVED, ids=lambda path: path.name)
def test_an_old_path_names_a_command_that_there_is(path, capsys):
    line = [sys.executable, "-S", path, "a b", "--replace"]  # -S: any Python will do
    done = subprocess.run(line, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 1 and not done.stdout
    said = done.stderr.partition(" (first: source ")[0].removesuffix("\n")
    old, _, new = said.partition(" is a command now: fedmed ")
    assert old == str(path) and new.endswith(" 'a b' --replace") and "\n" not in new
    words = new.removesuffix(" 'a b' --replace").split()
    assert fedmed(*words)(["--help"]) == 0 and f"fedmed {' '.join(words)}" in capsys.readouterr().out


def test_a_study_was_begun_by_an_option():
    line = [sys.executable, SCRIPTS / "package_job.py", "--init", "fedcy"]
    said = subprocess.run(line, capture_output=True, text=True).stderr
    assert said.partition(": ")[2].startswith("fedmed study init fedcy")
