"""Every script says what it does, and the long ones at once: nobody waits for MONAI to read how one is called."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "scripts").glob("[!_]*.py"))
A_SECOND = {"package_job.py", "purge_cache.py", "write_docs.py"}  # these load PyTorch alone


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_it_can_be_executed(script):
    assert os.access(script, os.X_OK), f"chmod +x {script}"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_help_is_quick(script):
    code = f"import runpy, sys; sys.path[0] = {str(script.parent)!r}; sys.argv[1:] = ['--help']\n"
    code += f"try: runpy.run_path({str(script)!r}, run_name='__main__')\n"
    code += "finally: print(*sys.modules, file=sys.stderr)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert shown.returncode == 0 and shown.stdout.startswith("usage: ")
    loaded = set(shown.stderr.split())
    assert "monai" not in loaded and ("torch" not in loaded or script.name in A_SECOND)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_outside_of_the_environment_it_says_what_to_type(script):
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    line = [sys.executable, "-S", script, "--help"]  # -S: without the packages that are installed
    shown = subprocess.run(line, capture_output=True, text=True, env=bare)
    assert shown.returncode == 1 and not shown.stdout and "Traceback" not in shown.stderr
    assert shown.stderr.startswith(
        f"{script}: this Python, {sys.executable}, has no fedmed and no nvflare and no monai."
    )
    assert shown.stderr.endswith(f"\n    source {script.parents[1] / '.venv/bin/activate'}\n")
