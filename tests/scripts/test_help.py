"""Every script says what it does, and the long ones at once: nobody waits for MONAI to read how one is called."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "scripts").glob("*.py"))
A_SECOND = {"package_job.py", "purge_cache.py", "write_docs.py"}  # these load PyTorch alone


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_it_can_be_executed(script):
    assert os.access(script, os.X_OK), f"chmod +x {script}"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_help_is_quick(script):
    code = f"import runpy, sys; sys.argv[1:] = ['--help']\ntry: runpy.run_path({str(script)!r}, run_name='__main__')\n"
    code += "finally: print(*sys.modules, file=sys.stderr)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert shown.returncode == 0 and shown.stdout.startswith("usage: ")
    loaded = set(shown.stderr.split())
    assert "monai" not in loaded and ("torch" not in loaded or script.name in A_SECOND)
