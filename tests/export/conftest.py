"""Finished runs of every kind, most of them without training: what an export reads are files."""

import shutil

import pytest

from fedmed.export.exporter import exporter_of
from fedmed.export.finished_run import read_finished
from fedmed.export.weights import open_store
from fedmed.federation.client import Client
from fedmed.federation.loop import run_job
from fedmed.federation.server import Server
from fedmed.recovery.model_store import ModelStore

TWO = {"ct_north": "supervised", "ct_east": "unsupervised"}
SMALL = {"pixdim": [5.5, 5.5, 12.0], "window_size": [32, 32, 16], "patch_size": [16, 16, 16]}


@pytest.fixture
def opened():
    """Return a function: folder of a run -> (run, store, exporter)."""

    def opened(folder):
        run = read_finished(folder)
        store = open_store(run)
        return run, store, exporter_of(store.bundle, run.method)

    return opened


@pytest.fixture
def copied(finished_run, tmp_path):
    """A copy of the finished run, to be damaged."""
    return shutil.copytree(finished_run, tmp_path / "copy")


@pytest.fixture
def written(job_of, tmp_path):
    """Return a function that writes a run with the server's own code, but without sites: one round, given tensors.

    ``change`` may alter the named tensors; ``meta`` what is saved beside them.
    """

    def written(overlays=("demo",), overrides=None, change=None, sites=TWO, meta=None, name="made", **said):
        records = tmp_path / name / "server" / "simulate_job"
        said |= {"overlays": list(overlays), "overrides": {"supervised": overrides or SMALL}}
        job = job_of(name=name, sites=sites, rounds=1, steps=1, **said)
        store = ModelStore(job, records / "app_server")
        server = Server(job, store, records / "fedmed")
        tensors = {key: tensor.clone() for key, tensor in server.tensors.items()}
        changed = change(tensors) if change else None
        store.save(changed or tensors, meta or {"round": 0}, False)
        server.record.round({"round": 0, "aggregated": True, "accepted": sorted(server.study.sites), "sites": {}})
        server.record.result({"best_round": None, "best_score": None, "last_score": None, "test": {}})
        return tmp_path / name

    return written


@pytest.fixture(scope="session")
def partial_run(tmp_path_factory, write_tiny_job, two_levels):
    """Workspace of a run whose decoder turns private after round 0, and what each site was tested with.

    The model after round 0 (all tensors shared) is the selected one, the one after round 2 the last.
    """
    tested, folder, scores = {}, tmp_path_factory.mktemp("partial"), {0: 0.1, 1: 0.9, 2: 0.4}

    def score(self, task, parser):
        dice = scores.get(task.round, 0.2) + (0.01 if self.site.site == "ct_south" else 0.0)
        self.progress.validated(task, self.bundle.score, dice)
        return {"val_dice": dice}

    def evaluate(self, task):
        network = self._open(task).network
        tested[task.model, self.site.site] = {name: t.clone() for name, t in network.state_dict().items()}
        return {"dice_mean": 0.5, "dice_std": 0.1, "n_cases": 3}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "_score", score)
        patch.setattr(Client, "evaluate", evaluate)
        spec = {"sharing": "block_6", "warm_start": {"rounds": 1, "sharing": "full"}, "overlays": two_levels}
        job = write_tiny_job(folder, "partial", rounds=3, steps=1, evaluate_last=True, **spec)
        run_job(job, folder / "workspace")
    return folder / "workspace", tested
