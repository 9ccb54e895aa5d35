"""An interrupted run, for the scripts that continue one, and a stand-in for NVFlare's simulator."""

import json
import os
import shutil
import sys

import pytest

from tests.commands import fedmed


@pytest.fixture
def run_script(capsys):
    """Return a function that runs a command in this process: exit code, what it says, what it complains of."""

    def run(words, *arguments):
        code = fedmed(*words.split())(arguments)
        return code, *capsys.readouterr()

    return run


@pytest.fixture(scope="session")
def run_first_round():
    """Return a function: job, workspace -> runs the job there and stops it after its first round."""
    from fedmed.federation.client import Client
    from fedmed.federation.loop import run_job
    from fedmed.federation.server import Server

    tasks = Server.train_tasks

    def first_round_only(self, round):
        if round:
            raise KeyboardInterrupt
        return tasks(self, round)

    def run(job, workspace):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Client, "_score", lambda self, task, parser: {"val_dice": 0.5})
            patch.setattr(Server, "train_tasks", first_round_only)
            run_job(job, workspace)

    return run


@pytest.fixture(scope="session")
def _interrupted(tmp_path_factory, write_tiny_job, run_first_round):
    folder = tmp_path_factory.mktemp("interrupted")
    job = write_tiny_job(folder, "study", sites={"ct_north": "supervised"}, rounds=2, steps=1)
    run_first_round(job, folder / "ws")
    return folder


@pytest.fixture
def interrupted(_interrupted, tmp_path):
    """Folder with the job ``study`` of two rounds and the workspace ``ws`` of its run, stopped after the first."""
    return shutil.copytree(_interrupted, tmp_path / "interrupted")


@pytest.fixture
def job(tmp_path):
    """A job folder of two sites, with nothing that the simulator needs of it."""
    folder = tmp_path / "job"
    folder.mkdir()
    meta = {"deploy_map": {"app_server": ["server"], "app": ["site_a", "site_b"]}}
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Write Python code that runs in place of the simulator; `w` is the workspace."""
    real = sys.executable

    def write(code: str) -> None:
        program = tmp_path / "bin" / "nvflare"
        program.parent.mkdir(exist_ok=True)
        head = "import json, os, subprocess, sys, time\nfrom pathlib import Path\n"
        head += "w = Path(sys.argv[sys.argv.index('-w') + 1])\n"
        program.write_text(f"#!{os.path.realpath(sys.executable)}\n{head}{code}\n")
        program.chmod(0o755)
        python = program.parent / "python"
        python.write_text(f'#!/bin/sh\nexec "{real}" "$@"\n')
        python.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(python))

    return write
