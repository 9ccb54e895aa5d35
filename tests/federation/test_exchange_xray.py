"""FedMoCo's own engine in a job that exchanges: the same seed is the same run, also when it is cut in two."""

import pytest
import torch
import yaml

from fedmed.federation import loop
from fedmed.federation.client import Client
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import write_job
from fedmed.settings.site import load_file
from fedmed_demo import demo_site
from tests.federation.run_folder import Killed, model_of, rounds_of

SITES = ("cxr_metro", "cxr_rural")
SMALL = {"batch_size": 8, "queue_size": 16, "metadata_min_images": 4, "rsa_samples": 8, "learning_rate": 0.02}
SPEC = {
    "rounds": 3,
    "epochs": 1.0,
    "bundle": "cxr_classification",
    "overlays": ["demo"],
    "method": {"path": "fedmed.systems.fedmoco.method.FedMoCo", "args": {"exchange_from": 1}},
    "select": "last",
    "evaluate": False,
    "overrides": {"unsupervised": {**SMALL, "key_policy": "keep"}},
}


@pytest.fixture
def run(tmp_path, fedmed_home):
    """Return a function: run the job in a workspace of this name; gives model and rounds."""
    sites = {}
    for site in SITES:
        privacy = {"allowed_extras": ["rsa", "mu", "sigma", "n"], "extras_min_images": 4}
        values = {"data_root": str(demo_site("chest_xray_tiny", site, fedmed_home)), "device": "cpu", "threads": 1}
        (tmp_path / f"{site}.yaml").write_text(yaml.safe_dump({**values, "privacy": privacy}))
        sites[site] = load_file(tmp_path / f"{site}.yaml")
    job = write_job(Job.of({"name": "xray", "sites": dict.fromkeys(SITES, "unsupervised"), **SPEC}), tmp_path / "xray")

    def run(name, resume=False):
        loop.run_job(job, tmp_path / name, sites, resume)
        lines = rounds_of(tmp_path / name)
        reported = [{key: line[key] for key in ("round", "coefficients", "extras", "warnings")} for line in lines]
        for line, result in zip(reported, lines, strict=True):
            line["own_keys"] = {site: values["train_own_keys"] for site, values in result["sites"].items()}
        return model_of(tmp_path / name), reported

    return run


def backwards(server, clients, limits, tasks, answer):
    """As the loop's own, with sites that answer in another order."""
    return ask(server, clients, limits, Backwards(tasks), answer)


class Backwards(dict):
    """Tasks whose sorted order is turned."""

    def items(self):
        return [(Turned(site), task) for site, task in super().items()]


class Turned(str):
    """A name that sorts the other way."""

    def __lt__(self, other):
        return str.__gt__(self, other)

    __hash__ = str.__hash__


ask = loop._ask


def test_a_run_in_another_order_and_cut_between_metadata_and_training_is_the_same(run, monkeypatch):
    model, reported = run("whole")
    assert [set(line["extras"]["cxr_metro"]) for line in reported] == [{"rsa"}, {"n", "rsa"}, {"n", "rsa"}]
    assert all(0 < share <= 1 for line in reported for share in line["own_keys"].values())  # 16 keys of a few images
    order = []
    original = Client.train

    def train(self, task):
        order.append((task.round, self.site.site))
        if len(order) == 4:  # round 1, whose metadata is done
            raise Killed
        return original(self, task)

    monkeypatch.setattr(Client, "train", train)
    monkeypatch.setattr(loop, "_ask", backwards)
    with pytest.raises(Killed):
        run("other")
    other, lines = run("other", resume=True)
    assert order[:2] == [(0, "cxr_rural"), (0, "cxr_metro")]
    assert order[3:5] == [(1, "cxr_metro"), (1, "cxr_rural")], "killed at one site, it went on with the other"
    assert lines == reported
    assert all(torch.equal(tensor, other[name]) for name, tensor in model.items())
