"""An interrupted run, for the scripts that continue one."""

import shutil

import pytest


@pytest.fixture(scope="session")
def _interrupted(tmp_path_factory, write_tiny_job):
    from fedmed.federation.client import Client
    from fedmed.federation.loop import run_job
    from fedmed.federation.server import Server

    folder, tasks = tmp_path_factory.mktemp("interrupted"), Server.train_tasks

    def first_round_only(self, round):
        if round:
            raise KeyboardInterrupt
        return tasks(self, round)

    job = write_tiny_job(folder, "study", sites={"ct_north": "supervised"}, rounds=2, steps=1)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Client, "_score", lambda self, task, parser: {"val_dice": 0.5})
        patch.setattr(Server, "train_tasks", first_round_only)
        run_job(job, folder / "ws")
    return folder


@pytest.fixture
def interrupted(_interrupted, tmp_path):
    """Folder with the job ``study`` of two rounds and the workspace ``ws`` of its run, stopped after the first."""
    return shutil.copytree(_interrupted, tmp_path / "interrupted")
